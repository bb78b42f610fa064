//! Bad input over HTTP: each gets one problem document, and nothing is stored.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::server::Server;

#[test]
fn every_bad_request_gets_a_problem_document() {
    let server = Server::start();
    assert_eq!(server.post("/topics", &json!({"topic": "t"})).0, 201);
    let deep = format!("{{\"payload\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let long_name = format!("/topics/{}/events", "t".repeat(300));
    let huge = format!("{{\"payload\":\"{}\"}}", "x".repeat(1 << 20));
    let rows: &[(&str, &str, &str, u16, &str)] = &[
        ("POST", "/topics/t/events", "", 400, "bad_json"),
        ("POST", "/topics/t/events", "{", 400, "bad_json"),
        ("POST", "/topics/t/events", &deep, 400, "bad_json"),
        ("POST", "/topics/t/events", "7", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{}", 400, "bad_frame"),
        ("POST", "/topics/t/events", "[]", 400, "bad_frame"),
        ("POST", "/topics/t/events", "[{\"payload\":1},{}]", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"headers\":{\"a\":1}}", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"key\":\"\\ud800\"}", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"delay_ms\":-1}", 400, "bad_frame"),
        ("POST", "/topics/t/events", &huge, 413, "too_large"),
        ("POST", "/topics/a..b/events", "{\"payload\":1}", 400, "bad_topic"),
        ("POST", &long_name, "{\"payload\":1}", 400, "bad_topic"),
        ("POST", "/topics/t/events?namespace=a%2Fb", "{\"payload\":1}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"partitions\":-1}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"partitions\":1.5}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"partitions\":99999}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"maxAttempts\":0}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"durability\":\"hope\"}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"publishACL\":[]}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"compact\":1}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"compact\":true,\"retentionBytes\":9}", 400, "bad_frame"),
        ("POST", "/topics", "{}", 400, "bad_frame"),
        ("PATCH", "/topics/t", "[]", 400, "bad_frame"),
        ("PATCH", "/topics/nowhere", "{}", 404, "bad_topic"),
        ("GET", "/topics/nowhere", "", 404, "bad_topic"),
        ("GET", "/topics/nowhere/offsets", "", 404, "bad_topic"),
        ("GET", "/topics/nowhere/events", "", 404, "bad_topic"),
        ("DELETE", "/topics/nowhere", "", 404, "bad_topic"),
        ("GET", "/topics/t/events?limit=-1", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?limit=99999", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?from=abc", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?from=1&ts=1", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?partition=7", "", 404, "unknown_offset"),
        ("POST", "/topics/t/groups/nobody/seek", "{\"from\":{\"kind\":\"earliest\"}}", 404, "bad_group"),
        ("POST", "/topics/t/groups/nobody/seek", "{}", 400, "bad_frame"),
        // Control characters: raw ones are no valid JSON, escaped ones are no valid names.
        ("POST", "/topics/t/events", "{\"payload\":\"a\u{1}b\"}", 400, "bad_json"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"key\":\"a\u{7f}\u{0}\"}", 400, "bad_json"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"id\":\"a\\u0000\"}", 400, "bad_frame"),
        ("POST", "/topics/t%07/events", "{\"payload\":1}", 400, "bad_topic"),
        ("POST", "/topics/t%00/events", "{\"payload\":1}", 400, "bad_topic"),
        ("POST", "/topics", "{\"topic\":\"a\\u001b\"}", 400, "bad_topic"),
        ("POST", "/topics/t/groups/a%0a/seek", "{\"from\":{\"kind\":\"earliest\"}}", 400, "bad_group"),
        ("GET", "/topics/t/events?namespace=a%00", "", 400, "bad_frame"),
        // Numbers beyond every bound.
        ("POST", "/topics/t/events", "{\"payload\":1,\"delay_ms\":1e400}", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"delay_ms\":99999999999999999999}", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"deliver_at\":18446744073709551615}", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"priority\":2147483648}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"partitions\":4294967297}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"retentionBytes\":9007199254740992}", 400, "bad_frame"),
        ("POST", "/topics", "{\"topic\":\"t\",\"retentionMs\":-9e99}", 400, "bad_frame"),
        ("GET", "/topics/t/events?from=18446744073709551616", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?ts=1e9", "", 400, "bad_frame"),
        ("GET", "/topics/t/events?partition=4294967296", "", 400, "bad_frame"),
        // If a name occurs twice, its last value counts.
        ("POST", "/topics", "{\"topic\":\"t\",\"partitions\":2,\"partitions\":-1}", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"key\":\"a\",\"key\":7}", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"headers\":{\"a\":\"b\",\"a\":1}}", 400, "bad_frame"),
        ("POST", "/topics/t/events", "{\"payload\":1,\"headers\":{\"\\ud800\":\"b\"}}", 400, "bad_frame"),
        ("GET", "/nowhere", "", 404, ""),
        ("PUT", "/topics", "", 405, ""),
    ];
    for (method, path, body, status, code) in rows {
        let (found, text) = server.request(method, path, (!body.is_empty()).then(|| (*body).to_owned()));
        let shown: String = format!("{method} {path} {body}").chars().take(150).collect();
        assert_eq!(found, *status, "{shown}: {text}");
        let problem: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{shown}: {text}"));
        assert_eq!(problem["status"], *status, "{shown}: {problem}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{shown}: {problem}");
        if !code.is_empty() {
            assert_eq!(problem["code"], *code, "{shown}: {problem}");
        }
    }
    assert_eq!(server.get("/topics/t/offsets").1["partitions"][0]["next"], 1);
}

#[test]
fn a_body_that_is_not_utf8_is_refused() {
    let server = Server::start();
    for body in [&b"{\"payload\":\"\xc3\x28\"}"[..], b"\xff\xfe{\x00}\x00", b"{\"payload\":\"\xed\xa0\x80\"}"]
    {
        let (status, text) = server.request_bytes("POST", "/topics/t/events", body.to_vec());
        let problem: serde_json::Value = serde_json::from_str(&text).expect("a problem document");
        assert_eq!((status, &problem["code"]), (400, &json!("bad_json")), "{body:?}: {text}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("UTF-8")), "{text}");
    }
    assert!(server.topics().is_empty());
}

#[test]
fn of_a_name_that_stands_twice_the_last_value_counts() {
    let server = Server::start();
    let body = "{\"payload\":1,\"key\":7,\"payload\":2,\"key\":\"k\",\"headers\":{\"a\":\"b\",\"a\":\"c\"}}";
    assert_eq!(server.request("POST", "/topics/t/events", Some(body.to_owned())).0 / 100, 2);
    let event = server.get("/topics/t/events").1["events"][0].clone();
    assert_eq!((&event["payload"], &event["key"]), (&json!(2), &json!("k")), "{event}");
    assert_eq!(event["headers"], json!({"a": "c"}));
}

/// Sends a head, then `more` again and again until the server has answered. Returns the answer.
fn answer_to_slow_body(server: &Server, head: &str, more: &[u8]) -> String {
    let address = server.http_url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_millis(10))).expect("a timeout");
    let head = format!("POST /topics/t/events HTTP/1.1\r\nHost: {address}\r\n{head}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("bytes are taken");
    let mut answer = [0; 4096];
    loop {
        // A write error is fine: the answer may be there already.
        let _ = stream.write_all(more);
        match stream.read(&mut answer) {
            Ok(length) => return String::from_utf8_lossy(&answer[..length]).into_owned(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("no answer: {error}"),
        }
    }
}

#[test]
fn a_body_that_does_not_end_is_not_waited_for() {
    let server = Server::with(&["--request-read-ms-max", "200"]);
    let promised = "Content-Length: 100000";
    let chunked = "Transfer-Encoding: chunked";
    for (head, more) in [(promised, &b""[..]), (promised, b"x"), (chunked, b""), (chunked, b"1\r\nx\r\n")] {
        let answer = answer_to_slow_body(&server, head, more);
        assert!(
            answer.starts_with("HTTP/1.1 408 ") && answer.contains("200 ms"),
            "{head} {more:?}: {answer}"
        );
    }
    // A fast body without end is cut off by size, not by time.
    let server = Server::start();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let answer = answer_to_slow_body(&server, chunked, chunk.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("too_large"), "{answer}");
    assert_eq!(server.socket().publish("t", &json!(1)), 1);
}

#[test]
fn a_page_of_another_origin_is_refused_by_both_doors() {
    let server = Server::with(&["--allow-origin", "https://console.example"]);
    let address = server.http_url().trim_start_matches("http://").to_owned();
    let own = server.http_url();
    for (origin, allowed) in [
        ("https://evil.example", false),
        ("null", false),
        (own.as_str(), true),
        ("https://console.example", true),
    ] {
        for upgrade in [false, true] {
            let mut stream = TcpStream::connect(&address).expect("the server accepts");
            let more = match upgrade {
                true => {
                    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                }
                false => "Connection: close\r\n",
            };
            let path = if upgrade { "/" } else { "/topics" };
            let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nOrigin: {origin}\r\n{more}\r\n");
            stream.write_all(head.as_bytes()).expect("bytes are taken");
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).expect("an answer");
            let status = String::from_utf8_lossy(&answer[9..]).into_owned();
            let expected = match (allowed, upgrade) {
                (false, _) => "403",
                (true, false) => "200",
                (true, true) => "101",
            };
            assert_eq!(status, expected, "{origin} upgrade={upgrade}");
        }
    }
}
