//! Peers that take more than their share: they lose their connection, the others notice nothing.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use millrace_bus::BusLimits;
use millrace_model::Actor;
use millrace_server::{NamespaceRule, Proof, Scope, ServerSettings, TokenDigest, TokenSettings};
use serde_json::json;
use support::{Client, PATIENCE, http, http_with, start, start_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameHeader};

/// Publishes about 8 MiB, which is two pages.
async fn fill(addr: SocketAddr) {
    let events: Vec<_> = (0..10).map(|_| json!({"payload": "x".repeat(800 << 10)})).collect();
    let answer = http(addr, "POST", "/topics/t/events", &serde_json::to_string(&events).unwrap()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Requests pages and never reads one. The small buffer keeps the operating system from receiving them in its place.
async fn stalled(addr: SocketAddr, requests: usize, buffer: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(buffer).unwrap();
    let mut socket = socket.connect(addr).await.unwrap();
    let request = format!("GET /topics/t/events HTTP/1.1\r\nhost: {addr}\r\n\r\n");
    socket.write_all(request.repeat(requests).as_bytes()).await.unwrap();
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_their_answer_are_let_go() {
    let settings =
        ServerSettings { http_connections_max: 2, response_write_ms_max: 300, ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    let addr = server.addr();
    fill(addr).await;
    let one = stalled(addr, 8, 4096).await;
    let two = stalled(addr, 8, 4096).await;
    // The first responses are on their way, and are never read.
    one.readable().await.unwrap();
    two.readable().await.unwrap();
    assert_eq!(http(addr, "GET", "/healthz", "").await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_slowly_gets_everything() {
    let settings = ServerSettings { response_write_ms_max: 500, ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    let addr = server.addr();
    fill(addr).await;
    let mut socket = stalled(addr, 1, 256 << 10).await;
    let (started, mut read, mut scratch) = (Instant::now(), 0, vec![0; 512 << 10]);
    while read < 3 << 20 {
        read += socket.read(&mut scratch).await.unwrap();
        if started.elapsed() < Duration::from_millis(1200) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_nobody_takes_are_bounded_together() {
    // Memory for one page that is being made, not for another one beside it.
    let settings = ServerSettings {
        pages_bytes_max: 10 << 20,
        response_write_ms_max: 3_600_000,
        crowd_patience_ms: 3_600_000,
        ..ServerSettings::default()
    };
    let server = start_with(settings, BusLimits::default()).await;
    let addr = server.addr();
    fill(addr).await;
    let held = stalled(addr, 1, 4096).await;
    held.readable().await.unwrap();
    let page = || async move { http(addr, "GET", "/topics/t/events?limit=1", "").await.status };
    let waiting = tokio::spawn(page());
    // Meanwhile the server serves others.
    for _ in 0..20 {
        assert_eq!(http(addr, "GET", "/healthz", "").await.status, 200);
    }
    assert!(!waiting.is_finished(), "a page was made although its share was taken");
    drop(held);
    assert_eq!(waiting.await.unwrap(), 200);
    // The same request again, without a stalled reader: all shares came back.
    assert_eq!(page().await, 200);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_unknown_length_is_read_whatever_the_bound_on_all_bodies() {
    let settings = ServerSettings { bodies_bytes_max: 8 << 20, ..ServerSettings::default() };
    assert!(settings.bodies_bytes_max < settings.batch_body_bytes_max);
    let server = start_with(settings, BusLimits::default()).await;
    let addr = server.addr();
    let mut socket = TcpStream::connect(addr).await.unwrap();
    let head =
        format!("POST /topics/t/events HTTP/1.1\r\nhost: {addr}\r\ntransfer-encoding: chunked\r\n\r\n");
    socket.write_all((head + "d\r\n{\"payload\":1}\r\n0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let bytes = tokio::time::timeout(PATIENCE, socket.read(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..bytes]);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The body's share came back whole: the next body may have all of it, too.
    let events = json!([{"payload": "x".repeat(800 << 10)}]).to_string();
    assert_eq!(http(addr, "POST", "/topics/t/events", &events).await.status, 200);
    server.stop().await.unwrap();
}

const UPGRADE: [(&str, &str); 4] = [
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// Returns status and text of the response to a request that names `host`, as a browser under DNS rebinding would send
/// it.
async fn as_host(addr: SocketAddr, path: &str, host: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    let mut head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    socket.write_all((head + "\r\n").as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let bytes = tokio::time::timeout(PATIENCE, socket.read(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..bytes]).into_owned();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_this_server_is_refused_at_both_doors() {
    let allow_origins = vec!["https://broker.example".to_owned()];
    let settings = ServerSettings { allow_origins, ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    let addr = server.addr();
    let port = addr.port();
    for (path, headers, fine) in
        [("/topics", &[][..], 200), ("/", &UPGRADE[..], 101), ("/ws", &UPGRADE[..], 101)]
    {
        for host in ["evil.example".to_owned(), format!("evil.example:{port}"), "10.0.0.1".to_owned()] {
            let (status, answer) = as_host(addr, path, &host, headers).await;
            assert_eq!(status, 403, "{path} {host}");
            assert!(answer.contains("--allow-origin") && answer.contains("forbidden"), "{answer}");
        }
        for host in
            [addr.to_string(), format!("localhost:{port}"), "[::1]".to_owned(), "broker.example".to_owned()]
        {
            assert_eq!(as_host(addr, path, &host, headers).await.0, fine, "{path} {host}");
        }
    }
    server.stop().await.unwrap();

    let open = ServerSettings { insecure: true, ..ServerSettings::default() };
    let server = start_with(open, BusLimits::default()).await;
    assert_eq!(as_host(server.addr(), "/topics", "any.example", &[]).await.0, 200);
    server.stop().await.unwrap();

    // With tokens the name of the host does not matter: a page without a token is refused under any name.
    let token = TokenSettings {
        proof: Proof::Token(TokenDigest::of("secret")),
        agent: Actor::new("a").unwrap(),
        roles: Vec::new(),
        scopes: vec![Scope::Subscribe],
        namespaces: NamespaceRule::All,
        rate: None,
        expires: None,
    };
    let settings = ServerSettings { tokens: vec![token], ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    let bearer = [("authorization", "Bearer secret")];
    assert_eq!(as_host(server.addr(), "/topics", "any.example", &bearer).await.0, 200);
    assert_eq!(as_host(server.addr(), "/topics", "any.example", &[]).await.0, 401);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_too_large_in_pieces_gets_its_error_too() {
    let server = start().await;
    let mut client = Client::connect(server.addr()).await;
    let piece = |opcode, is_final| {
        let header = FrameHeader { is_final, opcode: OpCode::Data(opcode), ..FrameHeader::default() };
        Message::Frame(Frame::from_payload(header, "x".repeat(600 << 10).into()))
    };
    client.socket.send(piece(Data::Text, false)).await.unwrap();
    client.socket.send(piece(Data::Continue, false)).await.unwrap();
    client.socket.send(piece(Data::Continue, true)).await.unwrap();
    assert_eq!(client.recv().await["code"], "too_large");
    assert_eq!(client.close_code().await, 1009);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversize_sender_that_never_stops_does_not_hold_up_a_stop() {
    // A stop would wait for an oversize sender as long as this grace.
    let settings = ServerSettings { grace_ms: 3_600_000, ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    let (mut answers, mut socket) = TcpStream::connect(server.addr()).await.unwrap().into_split();
    let mut head = "GET / HTTP/1.1\r\nhost: localhost\r\n".to_owned();
    for (name, value) in UPGRADE {
        head += &format!("{name}: {value}\r\n");
    }
    socket.write_all((head + "\r\n").as_bytes()).await.unwrap();
    let sender = tokio::spawn(async move {
        // The header of a text frame that announces 1 TiB.
        let mut frame = vec![0x81, 0xff];
        frame.extend_from_slice(&(1_u64 << 40).to_be_bytes());
        frame.extend_from_slice(&[0; 4]);
        let mut write = socket.write_all(&frame).await;
        while write.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            write = socket.write_all(&[b'x'; 1000]).await;
        }
    });
    let (mut told, mut scratch) = (Vec::new(), [0; 1024]);
    while !String::from_utf8_lossy(&told).contains("too_large") {
        let bytes = answers.read(&mut scratch).await.unwrap();
        assert!(bytes > 0, "it ended with {:?}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&scratch[..bytes]);
    }
    server.stop().await.unwrap();
    tokio::time::timeout(PATIENCE, sender).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goodbye_is_answered() {
    let server = start().await;
    let mut client = Client::connect(server.addr()).await;
    client.socket.close(None).await.unwrap();
    let last = tokio::time::timeout(PATIENCE, client.socket.next()).await.unwrap();
    assert!(matches!(last, Some(Ok(Message::Close(_)))), "{last:?}");
    let plain = http_with(server.addr(), "GET", "/ws", &[], b"").await;
    assert_eq!((plain.status, plain.code().as_str()), (426, "bad_frame"));
    server.stop().await.unwrap();
}
