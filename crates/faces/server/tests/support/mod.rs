//! A server on a free port, a plain HTTP client and a WebSocket client that speaks JSON.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod tls_identity;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use millrace_bus::BusLimits;
use millrace_server::{Server, ServerSettings};
use millrace_store::{MemoryStore, Store};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn start() -> Server {
    start_with(ServerSettings::default(), BusLimits::default()).await
}

pub(crate) async fn start_with(settings: ServerSettings, limits: BusLimits) -> Server {
    start_on(settings, limits, Arc::new(MemoryStore::new())).await
}

pub(crate) async fn start_on(settings: ServerSettings, limits: BusLimits, store: Arc<dyn Store>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Server::start(settings, store, limits, listener).await.unwrap()
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn code(&self) -> String {
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        assert!(problem["detail"].as_str().unwrap().len() > 10, "{self:?}");
        problem["code"].as_str().unwrap().to_owned()
    }
}

pub(crate) async fn http(addr: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    http_with(addr, method, path, &[], body.as_bytes()).await
}

pub(crate) async fn http_with(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {addr}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !headers.iter().any(|(name, _)| *name == "transfer-encoding") {
        head += &format!("content-length: {}\r\n", body.len());
    }
    head += "\r\n";
    let mut socket = TcpStream::connect(addr).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    // A refusal may arrive before the body was read; then the rest of the body cannot be written.
    let _ = socket.write_all(body).await;
    tokio::time::timeout(PATIENCE, read_answer(&mut socket)).await.expect("an answer in time")
}

/// Some requests keep their connection open, so the response ends by its length and not with the connection.
async fn read_answer(socket: &mut TcpStream) -> Answer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    socket.read_exact(&mut body).await.unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: String::from_utf8(body).unwrap() }
}

pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Client {
        Client::connect_to(&format!("ws://{addr}/")).await
    }

    pub(crate) async fn connect_to(url: &str) -> Client {
        Client { socket: connect_async(url).await.unwrap().0 }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.socket.send(Message::Text(text.into())).await.unwrap();
    }

    /// The next message of the protocol, without pings and pongs.
    pub(crate) async fn message(&mut self) -> Message {
        loop {
            let message =
                tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("an answer in time");
            match message.expect("an open connection").expect("a sound connection") {
                Message::Ping(_) | Message::Pong(_) => {}
                message => return message,
            }
        }
    }

    pub(crate) async fn recv(&mut self) -> Value {
        match self.message().await {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?} is no frame"),
        }
    }

    pub(crate) async fn ask(&mut self, text: &str) -> Value {
        self.send(text).await;
        self.recv().await
    }

    /// The code and reason of the closing frame, which must be the next message.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        match self.message().await {
            Message::Close(Some(frame)) => (frame.code.into(), frame.reason.to_string()),
            other => panic!("{other:?} is no close frame with a code"),
        }
    }

    pub(crate) async fn close_code(&mut self) -> u16 {
        match self.message().await {
            Message::Close(Some(frame)) => frame.code.into(),
            other => panic!("{other:?} is no close frame with a code"),
        }
    }
}
