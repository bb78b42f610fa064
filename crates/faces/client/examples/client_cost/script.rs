//! The server: a script that confirms every publish and delivers without end to whoever subscribes. The
//! script reads all that is there before it answers, as a server does that shares a sync.

use std::fmt::Write;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};

use serde_json::Value;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use crate::loads::WINDOW;

/// Deliveries that are sent together.
const DELIVERIES: u64 = 64;

/// Serves one connection after the other.
pub(crate) fn serve(listener: &TcpListener) -> ! {
    loop {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        // The end of a connection is an error here, and the end of its load.
        drop(Script::new(stream).run());
    }
}

struct Script {
    socket: WebSocket<TcpStream>,
    offset: u64,
    /// Set by SUBSCRIBE.
    acked: Option<u64>,
    answers: Vec<String>,
    payload: String,
}

impl Script {
    fn new(stream: TcpStream) -> Script {
        let socket = tungstenite::accept(stream).unwrap();
        Script {
            socket,
            offset: 0,
            acked: None,
            answers: Vec::new(),
            payload: format!("\"{}\"", "x".repeat(254)),
        }
    }

    fn run(&mut self) -> Result<(), tungstenite::Error> {
        loop {
            let sent = self.deliver()?;
            if sent == 0 {
                let frame = self.socket.read()?;
                self.take(frame);
            }
            self.socket.get_ref().set_nonblocking(true)?;
            let emptied = self.take_all();
            self.socket.get_ref().set_nonblocking(false)?;
            emptied?;
            for answer in self.answers.drain(..) {
                self.socket.write(Message::text(answer))?;
            }
            self.socket.flush()?;
        }
    }

    fn take_all(&mut self) -> Result<(), tungstenite::Error> {
        loop {
            match self.socket.read() {
                Ok(frame) => self.take(frame),
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, frame: Message) {
        let Message::Text(text) = frame else { return };
        let frame: Value = serde_json::from_str(&text).unwrap();
        let rid = &frame["rid"];
        match frame["type"].as_str().unwrap() {
            "PUBLISH" => {
                self.offset += 1;
                self.answers.push(format!(
                    "{{\"type\":\"PUBLISHED\",\"topic\":\"t\",\"partition\":0,\"offset\":{},\
                     \"id\":\"0190e0a8-7c5e-7000-8000-000000000001\",\"durability\":\"fsync\",\"rid\":{rid}}}",
                    self.offset
                ));
            }
            "SUBSCRIBE" => {
                self.acked = Some(0);
                self.answers.push(format!(
                    "{{\"type\":\"OK\",\"op\":\"SUBSCRIBE\",\"rid\":{rid},\"topic\":\"t\",\"group\":\"g\",\
                     \"partitions\":[{{\"partition\":0,\"next\":1}}]}}"
                ));
            }
            "ACK" => self.acked = frame["offset"].as_u64(),
            _ => {}
        }
    }

    /// Returns how many events were sent.
    fn deliver(&mut self) -> Result<u64, tungstenite::Error> {
        let Some(acked) = self.acked else { return Ok(0) };
        let count = (acked + WINDOW).saturating_sub(self.offset).min(DELIVERIES);
        for _ in 0..count {
            self.offset += 1;
            let (offset, payload) = (self.offset, &self.payload);
            let mut text = String::with_capacity(payload.len() + 256);
            write!(
                text,
                "{{\"type\":\"MESSAGE\",\"topic\":\"t\",\"partition\":0,\"group\":\"g\",\"offset\":{offset},\
                 \"envelope\":{{\"id\":\"0190e0a8-7c5e-7000-8000-000000000001\",\"ts\":1700000000000,\"topic\":\"t\",\
                 \"partition\":0,\"offset\":{offset},\"payload\":{payload}}}}}"
            )
            .unwrap();
            self.socket.write(Message::text(text))?;
        }
        self.socket.flush()?;
        Ok(count)
    }
}
