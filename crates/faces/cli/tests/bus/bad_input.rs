//! Bad input over the WebSocket: each gets one clear error; the connection stays open and no data is harmed.

use std::io::Write;

use serde_json::{Value, json};
use tungstenite::protocol::frame::coding::CloseCode;

use crate::server::Server;

const MIB: usize = 1 << 20;

/// Returns rows of a frame, the error code of its answer, and a word that the message must contain.
fn table() -> Vec<(String, &'static str, &'static str)> {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let publish = |rest: &str| format!("{{\"type\":\"PUBLISH\",\"topic\":\"t\",\"payload\":1{rest}}}");
    let subscribe = |rest: &str| format!("{{\"type\":\"SUBSCRIBE\",\"topic\":\"t\",\"group\":\"h\"{rest}}}");
    let ack = |rest: &str| format!("{{\"type\":\"ACK\",\"topic\":\"t\",\"group\":\"g\"{rest}}}");
    let rows: Vec<(String, &'static str, &'static str)> = vec![
        // Broken JSON.
        (String::new(), "bad_json", ""),
        ("{".into(), "bad_json", ""),
        ("nonsense".into(), "bad_json", ""),
        ("{\"type\":\"PUBLISH\",}".into(), "bad_json", ""),
        ("{\"type\":\"PING\"} {\"type\":\"PING\"}".into(), "bad_json", ""),
        ("{\"type\":\"PUBLISH\",\"topic\":\"t\",\"payload\":\"a\u{1}b\"}".into(), "bad_json", ""),
        (nested(10_000), "bad_json", "128"),
        (publish(&format!(",\"headers\":{}", nested(200))), "bad_json", "128"),
        (
            format!("{{\"type\":\"PUBLISH\",\"topic\":\"t\",\"payload\":{}}}", nested(10_000)),
            "bad_json",
            "128",
        ),
        // Not a frame.
        ("[]".into(), "bad_frame", "object"),
        ("7".into(), "bad_frame", "object"),
        ("null".into(), "bad_frame", "object"),
        ("{}".into(), "bad_frame", "type"),
        ("{\"type\":7}".into(), "bad_frame", "type"),
        ("{\"type\":\"SHOUT\"}".into(), "unknown_type", "SHOUT"),
        ("{\"type\":\"publish\",\"topic\":\"t\",\"payload\":1}".into(), "unknown_type", "publish"),
        ("{\"type\":\"MESSAGE\",\"topic\":\"t\"}".into(), "unknown_type", "MESSAGE"),
        // Missing and wrong fields.
        ("{\"type\":\"PUBLISH\",\"topic\":\"t\"}".into(), "bad_frame", "payload"),
        ("{\"type\":\"PUBLISH\",\"payload\":1}".into(), "bad_frame", "topic"),
        ("{\"type\":\"PUBLISH\",\"topic\":7,\"payload\":1}".into(), "bad_frame", "topic"),
        (publish(",\"key\":7"), "bad_frame", "key"),
        (publish(",\"key\":\"\\ud800\""), "bad_frame", "key"),
        (publish(",\"headers\":{\"a\":1}"), "bad_frame", "headers"),
        (publish(",\"headers\":[\"a\"]"), "bad_frame", "headers"),
        (publish(",\"headers\":{\"a\":{\"b\":\"c\"}}"), "bad_frame", "headers"),
        (publish(",\"headers\":{\"a\":\"\\ud800\"}"), "bad_frame", "headers"),
        (publish(",\"headers\":{\"\\udfff\":\"a\"}"), "bad_frame", "headers"),
        (publish(",\"id\":\"\""), "bad_frame", "id"),
        // A field whose name is no valid text, and names that occur twice: the last value counts.
        (publish(",\"\\ud800\":1"), "bad_frame", "name"),
        (publish(",\"topic\":\"..\""), "bad_topic", "dot"),
        (publish(",\"headers\":{\"a\":\"b\"},\"headers\":7"), "bad_frame", "headers"),
        (publish(",\"headers\":{\"a\":\"b\",\"a\":7}"), "bad_frame", "headers"),
        (publish(",\"type\":\"SHOUT\""), "unknown_type", "SHOUT"),
        (publish(",\"id\":\"a\\u0000\""), "bad_frame", "id"),
        (publish(&format!(",\"id\":\"{}\"", "x".repeat(256))), "bad_frame", "id"),
        (publish(",\"priority\":\"high\""), "bad_frame", "priority"),
        (publish(",\"priority\":1.5"), "bad_frame", "priority"),
        (publish(",\"delay_ms\":-1"), "bad_frame", "delay_ms"),
        (publish(",\"delay_ms\":1e400"), "bad_frame", "delay_ms"),
        (publish(",\"delay_ms\":99999999999999999999"), "bad_frame", "delay_ms"),
        (publish(",\"delay_ms\":99999999999999"), "bad_frame", "delay"),
        (publish(",\"delay_ms\":1,\"deliver_at\":1"), "bad_frame", "deliver_at"),
        (publish(",\"rid\":{}"), "bad_frame", "rid"),
        ("{\"type\":\"PUBLISH_BATCH\",\"topic\":\"t\",\"events\":[]}".into(), "bad_frame", "event"),
        ("{\"type\":\"PUBLISH_BATCH\",\"topic\":\"t\",\"events\":{}}".into(), "bad_frame", "events"),
        (
            "{\"type\":\"PUBLISH_BATCH\",\"topic\":\"t\",\"events\":[{\"key\":\"k\"}]}".into(),
            "bad_frame",
            "payload",
        ),
        // Names.
        ("{\"type\":\"PUBLISH\",\"topic\":\"\",\"payload\":1}".into(), "bad_topic", "empty"),
        ("{\"type\":\"PUBLISH\",\"topic\":\"..\",\"payload\":1}".into(), "bad_topic", "dot"),
        ("{\"type\":\"PUBLISH\",\"topic\":\"a/../b\",\"payload\":1}".into(), "bad_topic", "/"),
        ("{\"type\":\"PUBLISH\",\"topic\":\"a\\u0007\",\"payload\":1}".into(), "bad_topic", "allowed"),
        ("{\"type\":\"PUBLISH\",\"topic\":\"\\ud800\",\"payload\":1}".into(), "bad_frame", "topic"),
        (
            format!("{{\"type\":\"PUBLISH\",\"topic\":\"{}\",\"payload\":1}}", "t".repeat(252)),
            "bad_topic",
            "251",
        ),
        ("{\"type\":\"SUBSCRIBE\",\"topic\":\"t\",\"group\":\"a b\"}".into(), "bad_group", "allowed"),
        ("{\"type\":\"SUBSCRIBE\",\"topic\":\"t\",\"group\":\"\"}".into(), "bad_group", "empty"),
        ("{\"type\":\"SUBSCRIBE\",\"topic\":\"t\"}".into(), "bad_frame", "group"),
        ("{\"type\":\"SUBSCRIBE\",\"topic\":\"t\",\"group\":\"\\ud800\"}".into(), "bad_frame", "group"),
        ("{\"type\":\"SUBSCRIBE\",\"topic\":\"t\",\"group\":\"a\\udc00b\"}".into(), "bad_frame", "group"),
        // Subscriptions.
        (subscribe(",\"max_inflight\":0"), "bad_frame", "max_inflight"),
        (subscribe(",\"max_inflight\":-3"), "bad_frame", "max_inflight"),
        (subscribe(",\"max_inflight\":1000000"), "bad_frame", "max_inflight"),
        (subscribe(",\"from\":\"latest\""), "bad_frame", "from"),
        (subscribe(",\"from\":{\"kind\":\"yesterday\"}"), "bad_frame", "kind"),
        (subscribe(",\"from\":{\"kind\":\"offset\"}"), "bad_frame", "value"),
        (subscribe(",\"from\":{\"kind\":\"offset\",\"value\":1.5}"), "bad_frame", "value"),
        (subscribe(",\"from\":{\"kind\":\"offset\",\"value\":-1}"), "bad_frame", "value"),
        (subscribe(",\"ack_mode\":\"never\""), "bad_frame", "ack_mode"),
        (subscribe(",\"filter\":{\"header\":[\"a\"]}"), "bad_frame", "header"),
        (subscribe(",\"filter\":{\"key\":1}"), "bad_frame", "key"),
        ("{\"type\":\"UNSUBSCRIBE\",\"topic\":\"t\",\"group\":\"h\"}".into(), "bad_group", "member"),
        // Acks. Group g exists and this connection is a member of it; group h belongs to another connection.
        (ack(",\"partition\":0,\"offset\":9"), "unknown_offset", "9"),
        (ack(",\"partition\":9,\"offset\":1"), "unknown_offset", "partition"),
        (ack(",\"partition\":0,\"offset\":9007199254740991"), "unknown_offset", ""),
        (ack(",\"partition\":0,\"offset\":9007199254740992"), "bad_frame", "offset"),
        (ack(",\"partition\":0,\"offset\":18446744073709551616"), "bad_frame", "offset"),
        (ack(",\"partition\":0,\"offset\":-1"), "bad_frame", "offset"),
        (ack(",\"partition\":0,\"offset\":1.0"), "bad_frame", "offset"),
        (ack(",\"partition\":-1,\"offset\":1"), "bad_frame", "partition"),
        (ack(",\"partition\":0"), "bad_frame", "offset"),
        (
            "{\"type\":\"ACK\",\"topic\":\"t\",\"group\":\"stranger\",\"partition\":0,\"offset\":1}".into(),
            "bad_group",
            "member",
        ),
        (
            "{\"type\":\"NACK\",\"topic\":\"t\",\"group\":\"g\",\"partition\":0,\"offset\":1,\"reason\":7}"
                .into(),
            "bad_frame",
            "reason",
        ),
        ("{\"type\":\"FLOW\",\"credits\":-5}".into(), "bad_frame", "credits"),
        ("{\"type\":\"FLOW\"}".into(), "bad_frame", "credits"),
        ("{\"type\":\"AUTH\",\"token\":5}".into(), "bad_frame", "token"),
    ];
    rows
}

#[test]
fn every_bad_frame_gets_one_clear_error_and_the_connection_goes_on() {
    let server = Server::start();
    let mut stranger = server.socket();
    stranger.subscribe("t", "stranger", &json!({}));
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    let rows = table();
    for (number, (text, code, word)) in rows.iter().enumerate() {
        socket.send_text(text);
        let shown: String = text.chars().take(120).collect();
        let frames = socket.drained();
        assert_eq!(frames.len(), 1, "{shown}: {frames:?}");
        assert_eq!(frames[0]["type"], "ERROR", "{shown}: {frames:?}");
        assert_eq!(frames[0]["code"], *code, "{shown}: {frames:?}");
        let message = frames[0]["message"].as_str().expect("a message");
        assert!(message.contains(word), "{shown}: {message:?} does not say {word:?}");
        if number % 10 == 0 {
            stranger.expect_nothing();
        }
    }
    // None of the frames was stored, and everything still works.
    assert_eq!(socket.publish("t2", &json!(1)), 1);
    assert_eq!(server.get("/topics/t/offsets").1["partitions"][0]["next"], 1);
}

#[test]
fn an_error_carries_the_rid_of_its_frame() {
    let server = Server::start();
    let mut socket = server.socket();
    for rid in [json!("a"), json!(7)] {
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "rid": rid}));
        assert_eq!(socket.expect("ERROR")["rid"], rid);
        socket.send(
            &json!({"type": "ACK", "topic": "t", "group": "g", "partition": 0, "offset": 1, "rid": rid}),
        );
        let error = socket.expect("ERROR");
        assert_eq!((&error["rid"], &error["topic"], &error["group"]), (&rid, &json!("t"), &json!("g")));
    }
}

#[test]
fn good_but_unusual_frames_are_taken() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.subscribe("elsewhere", "g", &json!({"from": null, "filter": null, "unknown": [1]}));
    for (given, kept) in [
        ("null", "null"),
        ("1e400", "1e400"),
        ("12345678901234567890.10", "12345678901234567890.10"),
        ("{\"b\":1,  \"a\":2}", "{\"b\":1,  \"a\":2}"),
        ("\"\\ud800\"", "\"\\ud800\""),
        ("[1,\r\n2]", "[1,  2]"),
        ("{\"x\":1,\"x\":2}", "{\"x\":1,\"x\":2}"),
        ("5,\"payload\":6", "6"),
    ] {
        socket
            .send_text(&format!("{{\"type\":\"PUBLISH\",\"topic\":\"t\",\"key\":null,\"payload\":{given}}}"));
        socket.expect("PUBLISHED");
        let (_, text) = server.request("GET", "/topics/t/events?limit=100", None);
        assert!(text.contains(&format!("\"payload\":{kept}")), "{given}: {text}");
    }
}

#[test]
fn answer_29_broken_json_never_ends_the_process_or_the_connection() {
    let server = Server::start();
    let mut socket = server.socket();
    for _ in 0..100 {
        socket.send_text("{\"type\":");
        socket.refused("bad_json");
    }
    assert_eq!(socket.publish("t", &json!(1)), 1);
}

#[test]
fn answer_30_binary_frames_are_refused_and_the_connection_stays() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.send_binary(b"{\"type\":\"PING\"}");
    socket.refused("bad_frame");
    assert_eq!(socket.publish("t", &json!(1)), 1);
}

#[test]
fn answer_30_a_frame_over_the_limit_is_told_and_closes_1009() {
    let server = Server::start();
    let mut socket = server.socket();
    let frame = |bytes: usize| {
        let shell = "{\"type\":\"PUBLISH\",\"topic\":\"t\",\"payload\":\"\"}".len();
        format!("{{\"type\":\"PUBLISH\",\"topic\":\"t\",\"payload\":\"{}\"}}", "x".repeat(bytes - shell))
    };
    socket.send_text(&frame(MIB));
    socket.expect("PUBLISHED");
    socket.send_text(&frame(MIB + 1));
    socket.refused("too_large");
    assert_eq!(socket.next_or_close(), Err(Some(CloseCode::Size)));
    assert_eq!(server.get("/topics/t/offsets").1["partitions"][0]["next"], 2);
}

#[test]
fn a_frame_of_five_times_the_limit_is_told_and_closes_1009() {
    // More than any socket buffer holds: the server must read what it discards, or its answer is lost.
    let server = Server::start();
    for bytes in [5 * MIB, 20 * MIB] {
        let mut socket = server.socket();
        socket.publish("t", &json!(1));
        socket.send_text(&"x".repeat(bytes));
        let message = socket.refused("too_large");
        assert!(message.contains(&MIB.to_string()), "{message}");
        assert_eq!(socket.next_or_close(), Err(Some(CloseCode::Size)));
    }
    assert_eq!(server.socket().publish("t", &json!(1)), 3);
}

#[test]
fn invalid_utf8_closes_1007() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.publish("t", &json!(1));
    // A masked text frame (mask zero) of two bytes that are no UTF-8.
    socket.stream().write_all(&[0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28]).expect("bytes are taken");
    assert_eq!(socket.next_or_close(), Err(Some(CloseCode::Invalid)));
    assert_eq!(server.socket().publish("t", &json!(2)), 2);
}

#[test]
fn a_reader_that_does_not_read_is_dropped_and_its_leases_go_to_others() {
    let server = Server::with(&["--outbound-bytes-max", "2097152", "--slow-reader-ms", "300"]);
    let mut stuck = server.socket();
    stuck.subscribe("t", "g", &json!({"max_inflight": 1000}));
    let mut publisher = server.socket();
    let payload = json!("x".repeat(256 << 10));
    const EVENTS: u64 = 80;
    for n in 1..=EVENTS {
        assert_eq!(publisher.publish("t", &payload), n);
    }
    let mut other = server.socket();
    other.subscribe("t", "g", &json!({"max_inflight": 4}));
    // `stuck` never reads: in the end, everything it was given is delivered here.
    let mut seen = std::collections::BTreeSet::new();
    while (seen.len() as u64) < EVENTS {
        let offset = other.message();
        seen.insert(offset);
        other.send_ack("t", "g", 0, offset);
    }
    drop(stuck);
}

#[test]
fn a_half_open_socket_is_noticed_and_its_leases_go_to_others() {
    let server = Server::with(&["--ping-ms", "50"]);
    let mut silent = server.socket();
    silent.subscribe("t", "g", &json!({}));
    let mut publisher = server.socket();
    publisher.publish("t", &json!(1));
    assert_eq!(silent.message(), 1);
    // From here on `silent` neither reads nor answers pings, but its socket stays open.
    let mut other = server.socket();
    other.subscribe("t", "g", &json!({}));
    assert_eq!(other.expect("MESSAGE")["envelope"]["attempts"], 2);
    drop(silent);
}

#[test]
fn pings_without_end_that_nobody_reads_do_not_fill_the_memory() {
    let server = Server::start();
    let mut flood = server.socket();
    // Masked pings (mask zero) of the largest size, many in one write.
    let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'x'; 125]].concat();
    let pings = ping.repeat(8_000);
    const BYTES: usize = 128 << 20;
    let mut sent = 0;
    while sent < BYTES && flood.stream().write_all(&pings).is_ok() {
        sent += pings.len();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kib << 10 < BYTES / 2, "{kib} KiB after {sent} bytes of pings");
    assert_eq!(server.socket().publish("t", &json!(1)), 1);
}

#[test]
fn an_error_names_the_topic_and_group_of_its_frame() {
    let server = Server::start();
    let mut socket = server.socket();
    let mut refused = |frame: Value| {
        socket.send(&frame);
        let error = socket.expect("ERROR");
        (error["code"].clone(), error["topic"].clone(), error["group"].clone())
    };
    let named = |code: &str, group: Value| (json!(code), json!("t"), group);
    let subscribe = json!({"type": "SUBSCRIBE", "topic": "t", "group": "g", "max_inflight": 4097});
    assert_eq!(refused(subscribe), named("bad_frame", json!("g")));
    let empty = json!({"type": "PUBLISH_BATCH", "topic": "t", "events": [], "rid": 1});
    assert_eq!(refused(empty), named("bad_frame", Value::Null));
    let late = json!({"type": "PUBLISH", "topic": "t", "payload": 1, "delay_ms": 9_007_199_254_740_991_u64});
    assert_eq!(refused(late), named("bad_frame", Value::Null));
}
