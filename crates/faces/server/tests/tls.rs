//! The bounds that hold for peers in plain text hold over TLS too.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use millrace_bus::BusLimits;
use millrace_server::{Server, ServerSettings};
use serde_json::{Value, json};
use support::tls_identity::TlsIdentity;
use support::{PATIENCE, start_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

struct Desk {
    server: Server,
    identity: TlsIdentity,
}

impl Desk {
    async fn new(settings: ServerSettings) -> Desk {
        let identity = TlsIdentity::new();
        let tls = Some(identity.files());
        let server = start_with(ServerSettings { tls, ..settings }, BusLimits::default()).await;
        Desk { server, identity }
    }

    fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    async fn connect(&self, buffer: Option<u32>) -> TlsStream<TcpStream> {
        self.identity.connect(self.addr(), buffer).await
    }

    /// Sends one request and returns the status of its response.
    async fn request(&self, method: &str, path: &str, body: &str) -> u16 {
        let mut stream = self.connect(None).await;
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = vec![0; 4096];
        let bytes = timeout(PATIENCE, stream.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer[..bytes]).into_owned();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_too_large_gets_its_error_and_a_goodbye_its_answer() {
    let desk = Desk::new(ServerSettings::default()).await;
    let (mut socket, _) = client_async("wss://localhost/", desk.connect(None).await).await.unwrap();
    socket.send(Message::Text(json!({"type": "PING", "rid": 1}).to_string().into())).await.unwrap();
    let Message::Text(text) = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap() else {
        panic!("no text");
    };
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["type"], "PONG");
    // The frame is sent whole before anything is read: the answer must survive that.
    timeout(PATIENCE, socket.send(Message::Text("x".repeat(16 << 20).into()))).await.unwrap().unwrap();
    let Message::Text(text) = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap() else {
        panic!("no text");
    };
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["code"], "too_large");
    let last = timeout(PATIENCE, socket.next()).await.unwrap();
    assert!(
        matches!(&last, Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == 1009),
        "{last:?}"
    );

    let (mut socket, _) = client_async("wss://localhost/ws", desk.connect(None).await).await.unwrap();
    socket.close(None).await.unwrap();
    let last = timeout(PATIENCE, socket.next()).await.unwrap();
    assert!(matches!(last, Some(Ok(Message::Close(_)))), "{last:?}");
    desk.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_their_answer_are_let_go() {
    let settings =
        ServerSettings { http_connections_max: 2, response_write_ms_max: 300, ..ServerSettings::default() };
    let desk = Desk::new(settings).await;
    let events: Vec<_> = (0..10).map(|_| json!({"payload": "x".repeat(800 << 10)})).collect();
    let events = serde_json::to_string(&events).unwrap();
    assert_eq!(desk.request("POST", "/topics/t/events", &events).await, 200);
    let request = "GET /topics/t/events HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(8);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = desk.connect(Some(4096)).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        // The first response is on its way, and is never read.
        stream.read_exact(&mut [0]).await.unwrap();
        held.push(stream);
    }
    assert_eq!(desk.request("GET", "/healthz", "").await, 200);
    desk.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_never_shake_hands_are_let_go() {
    let settings =
        ServerSettings { http_connections_max: 1, request_read_ms_max: 300, ..ServerSettings::default() };
    let desk = Desk::new(settings).await;
    let _silent = TcpStream::connect(desk.addr()).await.unwrap();
    assert_eq!(desk.request("GET", "/healthz", "").await, 200);
    desk.server.stop().await.unwrap();
}
