//! A blocking connection to the server under test.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use millrace_wire::ServerFrame;
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, Utf8Bytes, WebSocket};

use crate::error::BenchError;

pub(crate) struct WsLink {
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
}

impl WsLink {
    pub(crate) fn open(url: &str) -> Result<WsLink, BenchError> {
        let (socket, _) = tungstenite::connect(url)?;
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_nodelay(true).map_err(|source| BenchError::io("setting up a socket", source))?;
        }
        Ok(WsLink { socket })
    }

    /// Puts a frame into the buffer; `flush` sends the buffer.
    pub(crate) fn feed(&mut self, frame: String) -> Result<(), BenchError> {
        Ok(self.socket.write(Message::Text(Utf8Bytes::from(frame)))?)
    }

    pub(crate) fn flush(&mut self) -> Result<(), BenchError> {
        Ok(self.socket.flush()?)
    }

    /// Sets the longest wait of `try_text`.
    pub(crate) fn wait_at_most(&mut self, most: Duration) -> Result<(), BenchError> {
        match self.socket.get_ref() {
            MaybeTlsStream::Plain(stream) => stream.set_read_timeout(Some(most)),
            _ => Ok(()),
        }
        .map_err(|source| BenchError::io("setting up a socket", source))
    }

    /// The next text frame, if it comes in time. A part that has arrived is kept for the next call.
    pub(crate) fn try_text(&mut self) -> Result<Option<Utf8Bytes>, BenchError> {
        match self.text() {
            Err(BenchError::Socket(error)) => match *error {
                tungstenite::Error::Io(io)
                    if matches!(io.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    Ok(None)
                }
                other => Err(other.into()),
            },
            other => other.map(Some),
        }
    }

    /// The next text frame.
    pub(crate) fn text(&mut self) -> Result<Utf8Bytes, BenchError> {
        loop {
            if let Message::Text(text) = self.socket.read()? {
                return Ok(text);
            }
        }
    }

    /// Returns the next frame if it begins with `kind`; any other frame, such as an ERROR, ends the run.
    pub(crate) fn expect(&mut self, kind: &str) -> Result<Utf8Bytes, BenchError> {
        let text = self.text()?;
        match text.starts_with(kind) {
            true => Ok(text),
            false => Err(BenchError::Unexpected(text.to_string())),
        }
    }

    pub(crate) fn published(&mut self) -> Result<(), BenchError> {
        self.expect("{\"type\":\"PUBLISHED\"").map(|_| ())
    }

    pub(crate) fn subscribe(
        &mut self,
        topic: &str,
        group: &str,
        from: &str,
        window: u32,
    ) -> Result<(), BenchError> {
        self.feed(format!(
            "{{\"type\":\"SUBSCRIBE\",\"topic\":\"{topic}\",\"group\":\"{group}\",\"from\":{{\"kind\":\"{from}\"}},\
             \"max_inflight\":{window}}}"
        ))?;
        self.flush()?;
        self.expect("{\"type\":\"OK\"").map(|_| ())
    }

    pub(crate) fn message(&mut self) -> Result<millrace_wire::Message, BenchError> {
        let text = self.text()?;
        match ServerFrame::parse(&text) {
            Ok(ServerFrame::Message(message)) => Ok(*message),
            _ => Err(BenchError::Unexpected(text.to_string())),
        }
    }
}

pub(crate) fn publish_frame(topic: &str, payload: &str) -> String {
    format!("{{\"type\":\"PUBLISH\",\"topic\":\"{topic}\",\"payload\":{payload}}}")
}

pub(crate) fn ack_frame(topic: &str, group: &str, offset: u64) -> String {
    format!(
        "{{\"type\":\"ACK\",\"topic\":\"{topic}\",\"partition\":0,\"group\":\"{group}\",\"offset\":{offset}}}"
    )
}

/// A JSON string of exactly `bytes` bytes, quotes included.
pub(crate) fn payload(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes.saturating_sub(2)))
}

/// Fills a topic quickly. With `ids` every event has an id, as the events of clients do: the harder case for a store
/// that has to remember them.
pub(crate) fn fill(
    url: &str,
    topic: &str,
    events: u64,
    payload: &str,
    ids: Option<&str>,
) -> Result<(), BenchError> {
    const PER_FRAME: u64 = 500;
    const FRAMES_IN_FLIGHT: u64 = 4;
    let mut link = WsLink::open(url)?;
    let (mut sent, mut waiting) = (0, 0);
    while sent < events || waiting > 0 {
        if sent < events && waiting < FRAMES_IN_FLIGHT {
            let count = PER_FRAME.min(events - sent) as usize;
            let one = |n: u64| match ids {
                Some(prefix) => format!("{{\"id\":\"{prefix}-{n}\",\"payload\":{payload}}}"),
                None => format!("{{\"payload\":{payload}}}"),
            };
            let list = (sent..sent + count as u64).map(one).collect::<Vec<_>>().join(",");
            link.feed(format!("{{\"type\":\"PUBLISH_BATCH\",\"topic\":\"{topic}\",\"events\":[{list}]}}"))?;
            link.flush()?;
            sent += count as u64;
            waiting += 1;
        } else {
            link.published()?;
            waiting -= 1;
        }
    }
    Ok(())
}
