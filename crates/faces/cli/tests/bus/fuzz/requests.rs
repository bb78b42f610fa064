//! Fuzzing HTTP: valid requests with mutated bodies, paths and headers, and heads that are no HTTP.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use super::mutate::{self, pick};
use crate::crash::Dice;
use crate::server::Server;

#[derive(Default)]
pub struct Requests {
    pub sent: u64,
}

struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// Returns a valid request of a random kind.
fn right(dice: &mut Dice) -> Request {
    let topic = pick(dice, &["fuzz.a", "fuzz.b", "fuzz.new", "nowhere"]);
    let (method, path, body) = match dice.below(16) {
        0..3 => {
            ("POST", format!("/topics/{topic}/events"), json!({"payload": {"n": 1}, "key": "k", "id": "i"}))
        }
        3 => (
            "POST",
            format!("/topics/{topic}/events"),
            json!([{"payload": 1}, {"payload": 2, "headers": {"a": "b"}}]),
        ),
        4 => (
            "POST",
            "/topics".to_owned(),
            json!({"topic": topic, "partitions": 1 + dice.below(4), "maxAttempts": 3,
            "retentionMs": 100_000, "retentionBytes": 1_000_000, "durability": "fsync"}),
        ),
        5 => (
            "PATCH",
            format!("/topics/{topic}"),
            json!({"partitions": 1 + dice.below(4), "retentionMs": 5000}),
        ),
        6 => ("DELETE", "/topics/fuzz.new".to_owned(), Value::Null),
        7 => (
            "POST",
            format!("/topics/{topic}/groups/g/seek"),
            json!({"from": {"kind": "offset", "value": 1}}),
        ),
        8 => ("DELETE", format!("/topics/{topic}/groups/h"), Value::Null),
        9 => ("POST", format!("/dead-letters/{topic}/replay"), json!({"offsets": [1, 2], "partition": 0})),
        10 => (
            "POST",
            format!("/topics/{topic}/events"),
            json!({"specversion": "1.0", "type": "a", "source": "b",
            "id": "c", "data": {"d": 1}, "time": "2026-01-01T00:00:00Z"}),
        ),
        11 => (
            "GET",
            format!("/topics/{topic}/events?from={}&limit={}", dice.below(9), dice.below(99)),
            Value::Null,
        ),
        12 => (
            "GET",
            format!("/topics/{topic}/events?ts={}&partition={}", dice.below(9), dice.below(3)),
            Value::Null,
        ),
        13 => ("GET", format!("/topics/{topic}"), Value::Null),
        _ => {
            let path = pick(
                dice,
                &[
                    "/topics",
                    "/topics?limit=2&after=a",
                    "/dead-letters",
                    "/stats",
                    "/metrics",
                    "/openapi.json",
                    "/asyncapi.json",
                    "/",
                    "/ws",
                    "/healthz",
                ],
            );
            ("GET", path.to_owned(), Value::Null)
        }
    };
    let kind = pick(
        dice,
        &[
            "application/json",
            "application/json",
            "application/cloudevents+json",
            "application/cloudevents-batch+json",
            "text/plain",
            "application/json; charset=utf-8",
        ],
    );
    let mut headers = vec![("content-type".to_owned(), kind.as_bytes().to_vec())];
    if dice.one_in(3) {
        let (name, value) = pick(
            dice,
            &[
                ("ce-id", "1"),
                ("ce-specversion", "1.0"),
                ("ce-type", "t"),
                ("ce-source", "s"),
                ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
                ("authorization", "Bearer x"),
                ("accept", "application/cloudevents-batch+json"),
                ("origin", "http://elsewhere"),
                ("upgrade", "websocket"),
                ("expect", "100-continue"),
                ("transfer-encoding", "chunked"),
                ("content-length", "5"),
            ],
        );
        headers.push((name.to_owned(), value.as_bytes().to_vec()));
    }
    let mut body = body;
    for _ in 0..dice.below(3) {
        mutate::value(dice, &mut body);
    }
    Request { method, path, headers, body: body.to_string().into_bytes() }
}

impl Request {
    fn bend(&mut self, dice: &mut Dice) {
        match dice.below(6) {
            0 => mutate::bytes(dice, &mut self.body),
            1 => {
                let mut path = std::mem::take(&mut self.path).into_bytes();
                mutate::bytes(dice, &mut path);
                // Spaces and line ends would make another request; the noise below produces those.
                path.retain(|byte| byte.is_ascii_graphic());
                self.path = String::from_utf8_lossy(&path).into_owned();
            }
            2 => {
                let at = dice.below(self.headers.len() as u64) as usize;
                mutate::bytes(dice, &mut self.headers[at].1);
            }
            3 => self.method = pick(dice, &["PUT", "OPTIONS", "HEAD", "TRACE", "BREW", "get"]),
            4 => self.path.push_str(pick(
                dice,
                &["?limit=", "&namespace=%2f", "/%00", "?from=-1", "%", "//", "?a[]=%ff"],
            )),
            _ => {}
        }
    }

    fn head(&self) -> Vec<u8> {
        let mut head =
            format!("{} {} HTTP/1.1\r\nhost: fuzz\r\nconnection: close\r\n", self.method, self.path)
                .into_bytes();
        let framed =
            self.headers.iter().any(|(name, _)| name == "transfer-encoding" || name == "content-length");
        if !framed {
            head.extend(format!("content-length: {}\r\n", self.body.len()).bytes());
        }
        for (name, value) in &self.headers {
            head.extend(name.bytes().chain(*b": ").chain(value.iter().copied()).chain(*b"\r\n"));
        }
        head.extend(b"\r\n");
        head
    }
}

impl Requests {
    pub fn slice(&mut self, server: &Server, dice: &mut Dice, requests: u64) {
        for _ in 0..requests {
            self.sent += 1;
            let mut request = right(dice);
            if dice.one_in(2) {
                request.bend(dice);
            }
            let mut bytes = request.head();
            bytes.extend(&request.body);
            match dice.below(20) {
                0 => mutate::bytes(dice, &mut bytes),
                1 => bytes = mutate::noise(dice, 400),
                _ => {}
            }
            exchange(server, &bytes);
        }
    }
}

/// Sends the bytes, closes the sending half, and reads what comes back: an answer or the end, but not silence.
fn exchange(server: &Server, bytes: &[u8]) {
    let url = server.http_url();
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    // The server may refuse before it has read everything.
    let sent = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    if sent.is_ok() && read.is_ok() && !answer.is_empty() {
        let status = answer.get(9..12).map(String::from_utf8_lossy).unwrap_or_default();
        // 503 is the answer to overload; an internal error would be a 500.
        assert!(status != "500", "{}\n{}", String::from_utf8_lossy(bytes), String::from_utf8_lossy(&answer));
    }
}
