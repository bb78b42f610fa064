//! The WebSocket edge: every frame once, every kind of mistake once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use millrace_bus::BusLimits;
use millrace_server::ServerSettings;
use serde_json::{Value, json};
use support::{Client, PATIENCE, http, http_with, start, start_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

#[tokio::test(flavor = "multi_thread")]
async fn publish_subscribe_deliver_ack() {
    let server = start().await;
    let mut client = Client::connect(server.addr()).await;
    let published =
        client.ask(r#"{"type":"PUBLISH","topic":"t","key":"k","payload":{"n": 1.0},"rid":"a"}"#).await;
    assert_eq!(published["type"], "PUBLISHED");
    assert_eq!(
        (&published["partition"], &published["offset"], &published["rid"]),
        (&json!(0), &json!(1), &json!("a"))
    );
    let ok = client
        .ask(r#"{"type":"SUBSCRIBE","topic":"t","group":"g","from":{"kind":"earliest"},"rid":7}"#)
        .await;
    assert_eq!(ok["type"], "OK", "{ok}");
    assert_eq!((&ok["op"], &ok["rid"]), (&json!("SUBSCRIBE"), &json!(7)));
    assert_eq!(ok["partitions"], json!([{"partition": 0, "next": 1}]));
    let message = client.recv().await;
    assert_eq!(message["type"], "MESSAGE");
    assert_eq!(message["envelope"]["payload"].to_string(), r#"{"n":1.0}"#);
    assert_eq!(message["envelope"]["id"], published["id"]);
    let ok = client.ask(r#"{"type":"ACK","topic":"t","partition":0,"group":"g","offset":1,"rid":8}"#).await;
    assert_eq!((&ok["type"], &ok["op"], &ok["rid"]), (&json!("OK"), &json!("ACK"), &json!(8)));
    let offsets = http(server.addr(), "GET", "/topics/t/offsets", "").await.json();
    let mut group = offsets["partitions"][0]["groups"]["g"].clone();
    assert!(group["updatedTs"].take().as_u64().is_some());
    assert_eq!(group, json!({"committed": 1, "updatedTs": null, "lag": 0, "inflight": 0}));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_frame_is_answered() {
    let server = start().await;
    let mut client = Client::connect_to(&format!("ws://{}/ws?namespace=other", server.addr())).await;
    for (frame, answer) in [
        (r#"{"type":"PING","rid":1}"#, json!({"type": "PONG", "rid": 1})),
        (r#"{"type":"PING"}"#, json!({"type": "PONG"})),
        (r#"{"type":"AUTH","token":"x","rid":"2"}"#, json!({"type": "OK", "op": "AUTH", "rid": "2"})),
        (r#"{"type":"FLOW","credits":5,"rid":3}"#, json!({"type": "OK", "op": "FLOW", "rid": 3})),
    ] {
        assert_eq!(client.ask(frame).await, answer, "{frame}");
    }
    let batch = client
        .ask(r#"{"type":"PUBLISH_BATCH","topic":"b","events":[{"payload":1},{"payload":2}],"rid":4}"#)
        .await;
    assert_eq!((&batch["offsets"], &batch["rid"]), (&json!([[0, 1], [0, 2]]), &json!(4)));
    let ok = client.ask(r#"{"type":"SUBSCRIBE","topic":"b","group":"g"}"#).await;
    assert_eq!(ok["partitions"], json!([{"partition": 0, "next": 3}]));
    let ok = client.ask(r#"{"type":"UNSUBSCRIBE","topic":"b","group":"g","rid":5}"#).await;
    assert_eq!(ok, json!({"type": "OK", "op": "UNSUBSCRIBE", "rid": 5}));
    let here = http(server.addr(), "GET", "/topics/b?namespace=other", "").await;
    let there = http(server.addr(), "GET", "/topics/b", "").await;
    assert_eq!((here.status, there.status), (200, 404));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_frames_get_one_error_each_and_the_connection_stays() {
    let server = start().await;
    let mut client = Client::connect(server.addr()).await;
    let deep =
        format!(r#"{{"type":"PUBLISH","topic":"t","payload":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    for (frame, code) in [
        ("{", "bad_json"),
        ("", "bad_json"),
        (deep.as_str(), "bad_json"),
        ("[]", "bad_frame"),
        (r#"{"type":"NOPE"}"#, "unknown_type"),
        (r#"{"topic":"t"}"#, "bad_frame"),
        (r#"{"type":"PUBLISH","topic":"t"}"#, "bad_frame"),
        (r#"{"type":"PUBLISH","topic":"..","payload":1}"#, "bad_topic"),
        (r#"{"type":"PUBLISH","topic":"t","payload":1,"headers":{"a":1}}"#, "bad_frame"),
        (r#"{"type":"PUBLISH","topic":"t","payload":1,"key":"\ud800"}"#, "bad_frame"),
        (r#"{"type":"SUBSCRIBE","topic":"t","group":""}"#, "bad_group"),
        (r#"{"type":"FLOW","credits":-1}"#, "bad_frame"),
        (r#"{"type":"ACK","topic":"t","partition":0,"group":"g","offset":1.5}"#, "bad_frame"),
        (r#"{"type":"UNSUBSCRIBE","topic":"t","group":"g"}"#, "bad_group"),
    ] {
        let error = client.ask(frame).await;
        assert_eq!((&error["type"], &error["code"]), (&json!("ERROR"), &json!(code)), "{frame:.100} {error}");
    }
    client.socket.send(Message::Binary(vec![1, 2, 3].into())).await.unwrap();
    assert_eq!(client.recv().await["code"], "bad_frame");
    client.ask(r#"{"type":"PUBLISH","topic":"t","payload":1}"#).await;
    let ack = r#"{"type":"ACK","topic":"t","partition":0,"group":"g","offset":1}"#;
    assert_eq!(client.ask(ack).await["code"], "bad_group");
    assert_eq!(client.ask(r#"{"type":"PING"}"#).await["type"], "PONG");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversize_frame_gets_its_error_and_then_the_close() {
    let server = start().await;
    for bytes in [(1 << 20) + 1, 3 << 20, 5 << 20, 50 << 20] {
        let mut client = Client::connect(server.addr()).await;
        client.send(&"x".repeat(bytes)).await;
        assert_eq!(client.recv().await["code"], "too_large", "{bytes}");
        assert_eq!(client.close_code().await, 1009);
    }
    let mut client = Client::connect(server.addr()).await;
    let fits = format!(r#"{{"type":"PUBLISH","topic":"t","payload":"{}"}}"#, "x".repeat((1 << 20) - 60));
    assert_eq!(client.ask(&fits).await["type"], "PUBLISHED");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_not_utf_8_closes_with_1007() {
    let server = start().await;
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    let upgrade = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(upgrade.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    // A masked text frame with the single byte 0xff and a mask of zeroes.
    socket.write_all(&[0x81, 0x81, 0, 0, 0, 0, 0xff]).await.unwrap();
    let mut frame = [0; 4];
    tokio::time::timeout(PATIENCE, socket.read_exact(&mut frame)).await.unwrap().unwrap();
    assert_eq!((frame[0], u16::from_be_bytes([frame[2], frame[3]])), (0x88, 1007));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_is_dropped_and_its_leases_go_to_others() {
    let mut settings = ServerSettings { slow_reader_ms: 300, ..ServerSettings::default() };
    settings.broker.outbox_soft_bytes = 64 << 10;
    let server = start_with(settings, BusLimits::default()).await;
    let mut publisher = Client::connect(server.addr()).await;
    let mut slow = Client::connect(server.addr()).await;
    let subscribe =
        r#"{"type":"SUBSCRIBE","topic":"t","group":"g","from":{"kind":"earliest"},"max_inflight":4096}"#;
    slow.send(subscribe).await;
    // More than the buffers of both sockets can hold.
    let payload = "x".repeat(100_000);
    for _ in 0..300 {
        publisher.ask(&format!(r#"{{"type":"PUBLISH","topic":"t","payload":"{payload}"}}"#)).await;
    }
    let mut other = Client::connect(server.addr()).await;
    other.send(subscribe).await;
    let mut offsets = std::collections::BTreeSet::new();
    while offsets.len() < 300 {
        let frame = other.recv().await;
        if frame["type"] == "MESSAGE" {
            let offset = frame["offset"].as_u64().unwrap();
            offsets.insert(offset);
            let ack = json!({"type": "ACK", "topic": "t", "partition": 0, "group": "g", "offset": offset});
            other.send(&ack.to_string()).await;
        }
    }
    let metrics = http(server.addr(), "GET", "/metrics", "").await.body;
    assert!(metrics.contains("millrace_connections_dropped_slow_total 1\n"), "{metrics}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_peer_is_pinged_and_dropped_but_a_quiet_one_stays() {
    let settings = ServerSettings { ping_ms: 100, pings_missed_max: 2, ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    // This client is never polled, so its library never answers a ping.
    let silent = Client::connect(server.addr()).await;
    let mut quiet = Client::connect(server.addr()).await;
    let listening = async { while let Some(Ok(Message::Ping(_))) = quiet.socket.next().await {} };
    assert!(
        tokio::time::timeout(Duration::from_millis(1000), listening).await.is_err(),
        "the quiet one was dropped"
    );
    assert_eq!(connections(&server).await, 1);
    drop(silent);
    server.stop().await.unwrap();
}

async fn connections(server: &millrace_server::Server) -> Value {
    http(server.addr(), "GET", "/stats", "").await.json()["connections"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_publishes_in_flight_are_all_answered_in_order() {
    let settings = ServerSettings { unanswered_max: 16, ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    let client = Client::connect(server.addr()).await;
    let (mut sink, mut stream) = client.socket.split();
    let sending = tokio::spawn(async move {
        for rid in 0..5000 {
            let frame = format!(r#"{{"type":"PUBLISH","topic":"t","payload":{rid},"rid":{rid}}}"#);
            sink.feed(Message::Text(frame.into())).await.unwrap();
        }
        sink.flush().await.unwrap();
        sink
    });
    for rid in 0..5000u64 {
        let Message::Text(text) = stream.next().await.unwrap().unwrap() else { panic!("no frame") };
        let frame: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&frame["rid"], &frame["offset"]), (&json!(rid), &json!(rid + 1)));
    }
    drop(sending.await.unwrap());
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_bounded_and_strangers_origins_refused() {
    let settings = ServerSettings {
        connections_max: 1,
        allow_origins: vec!["https://app.example".to_owned()],
        ..ServerSettings::default()
    };
    let server = start_with(settings, BusLimits::default()).await;
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let from = |origin| {
        let mut headers = upgrade.to_vec();
        headers.push(("origin", origin));
        headers
    };
    let stranger = http_with(server.addr(), "GET", "/", &from("http://evil.example"), b"").await;
    assert_eq!((stranger.status, stranger.code().as_str()), (403, "forbidden"));
    let _first = Client::connect(server.addr()).await;
    let second = http_with(server.addr(), "GET", "/", &from("https://app.example"), b"").await;
    assert_eq!((second.status, second.code().as_str()), (503, "limit_reached"));
    assert!(second.head.contains("access-control-allow-origin: https://app.example"), "{second:?}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_what_is_in_hand_and_says_goodbye() {
    let server = start().await;
    let addr = server.addr();
    let mut client = Client::connect(addr).await;
    for n in 0..100 {
        client.send(&format!(r#"{{"type":"PUBLISH","topic":"t","payload":{n}}}"#)).await;
    }
    assert_eq!(client.recv().await["type"], "PUBLISHED");
    let stopping = tokio::spawn(server.stop());
    let mut answers = 1;
    loop {
        match client.message().await {
            Message::Text(text) => {
                let frame: Value = serde_json::from_str(&text).unwrap();
                assert!(frame["type"] == "PUBLISHED" || frame["code"] == "shutting_down", "{frame}");
                answers += 1;
            }
            Message::Close(Some(frame)) => break assert_eq!(u16::from(frame.code), 1001),
            other => panic!("{other:?}"),
        }
    }
    assert!(answers <= 100);
    drop(client);
    stopping.await.unwrap().unwrap();
    assert!(TcpStream::connect(addr).await.is_err());
}
