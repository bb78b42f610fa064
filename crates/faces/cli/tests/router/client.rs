//! A raw client of the Unix socket: bytes are sent and received exactly as a test says.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::server::Server;

/// Starts a server whose socket is in its own folder.
pub fn serve(flags: &[&str]) -> Server {
    Server::with(&[&["--socket", "os.sock"], flags].concat())
}

pub fn path(server: &Server) -> PathBuf {
    server.folder().join("os.sock")
}

pub struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    /// Makes this client's ids differ from those of other clients.
    number: usize,
    next: u64,
}

static NUMBERS: AtomicUsize = AtomicUsize::new(0);

impl Client {
    pub fn of(server: &Server) -> Client {
        let stream = UnixStream::connect(path(server)).expect("the socket accepts");
        let reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        Client { stream, reader, number: NUMBERS.fetch_add(1, Ordering::Relaxed), next: 0 }
    }

    pub fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Like [`Client::write`], for a server that may have closed the connection.
    pub fn try_write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub fn stops_writing(&self) {
        self.stream.shutdown(Shutdown::Write).expect("an open socket");
    }

    /// Returns the next line as it came; `None` at the end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => {
                assert_eq!(line.pop(), Some('\n'), "{line}");
                Some(line)
            }
            // The server closed the connection with unread bytes of ours.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    pub fn next(&mut self) -> Value {
        let line = self.line().expect("a line, not the end");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("JSON, not {line}"))
    }

    #[track_caller]
    pub fn ends(&mut self) {
        assert_eq!(self.line(), None);
    }

    pub fn send(&mut self, kind: &str, ty: &str, data: &Value) -> String {
        self.next += 1;
        let id = format!("{}-{}", self.number, self.next);
        self.write(message(kind, ty, &data.to_string(), &id) + "\n");
        id
    }

    #[track_caller]
    pub fn ask(&mut self, kind: &str, ty: &str, data: &Value) -> Value {
        let id = self.send(kind, ty, data);
        let answer = self.next();
        assert_eq!(answer["metadata"]["causation"], *id, "{answer}");
        assert_eq!(answer["type"], ty, "{answer}");
        answer
    }

    /// Sends a request and returns the data of the reply.
    #[track_caller]
    pub fn reply(&mut self, kind: &str, ty: &str, data: &Value) -> Value {
        let answer = self.ask(kind, ty, data);
        assert_eq!(answer["kind"], "reply", "{answer}");
        answer["data"].clone()
    }

    /// Sends a request and returns the code and message of the error.
    #[track_caller]
    pub fn refused(&mut self, kind: &str, ty: &str, data: &Value) -> (u64, String) {
        let answer = self.ask(kind, ty, data);
        fault(&answer)
    }

    /// Checks that the connection still works, as it must after every error.
    #[track_caller]
    pub fn still_works(&mut self) {
        assert_eq!(
            self.reply("query", "Syscall.Ping", &json!({"payload": "still"})),
            json!({"payload": "still"})
        );
    }

    /// Returns all remaining bytes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("{error}"),
        }
    }
}

#[track_caller]
pub fn fault(answer: &Value) -> (u64, String) {
    assert_eq!(answer["kind"], "error", "{answer}");
    let data = &answer["data"];
    (data["code"].as_u64().expect("a code"), data["message"].as_str().expect("a message").to_owned())
}

pub fn message(kind: &str, ty: &str, data: &str, id: &str) -> String {
    format!(
        r#"{{"kind":"{kind}","type":"{ty}","data":{data},"metadata":{{"id":"{id}","timestamp":1767910000000}}}}"#
    )
}

pub fn ping(id: &str, payload: &str) -> String {
    message("query", "Syscall.Ping", &format!(r#"{{"payload":{payload}}}"#), id)
}

/// Returns a value of `/metrics`.
#[track_caller]
pub fn metric(server: &Server, series: &str) -> f64 {
    let (status, text) = server.request("GET", "/metrics", None);
    assert_eq!(status, 200);
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("millrace_{series} ")));
    line.unwrap_or_else(|| panic!("no {series} in {text}")).parse().expect("a number")
}

/// Checks that nothing is left of clients that have disconnected.
#[track_caller]
pub fn nothing_is_left(server: &Server) {
    crate::server::eventually("every connection is forgotten", || metric(server, "os_connections") < 0.5);
    assert!(metric(server, "os_pending") < 0.5, "who is gone waits for nothing");
    // Their requests are still carried out.
    for series in ["os_mailbox_messages", "os_lane_messages{lane=\"user\"}"] {
        crate::server::eventually(series, || metric(server, series) < 0.5);
    }
}
