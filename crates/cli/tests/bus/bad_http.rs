//! Bad input through HTTP: one problem document each, and nothing stored.

use std::io::{Read, Write};
use std::net::TcpStream;

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
