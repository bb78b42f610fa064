//! A client with an ordinary token that keeps the server waiting: bodies that do not come, answers that are not read,
//! requests that trickle. While it holds resources, other clients are still answered.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::access::TOKENS;
use crate::crowd::address;
use crate::metrics::value_as;
use crate::server::{Server, eventually};

/// No limit ends anything: every time limit is far beyond the duration of a test.
const PATIENT: [&str; 4] = ["--request-read-ms-max", "3600000", "--response-write-ms-max", "3600000"];

fn server(flags: &[&str]) -> Server {
    Server::with_config(TOKENS, &[&PATIENT[..], flags].concat())
}

/// Sends this part of a request and nothing more.
fn begin(server: &Server, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address(server)).expect("the server accepts");
    stream.write_all(text.as_bytes()).expect("bytes are taken");
    stream
}

/// Sends a request of alice with a body of that length, of which only `sent` is sent.
fn announce(server: &Server, length: usize, sent: &str) -> TcpStream {
    let head = format!(
        "POST /topics/t/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer alice-secret\r\nContent-Length: {length}\r\n\r\n",
        address(server)
    );
    begin(server, &(head + sent))
}

fn publish(server: &Server, token: &str) -> (u16, Value) {
    server.request_as(token, "POST", "/topics/t/events", &json!({"payload": 1}))
}

#[test]
fn bodies_that_are_announced_and_not_sent_hold_nobody_up() {
    let server = server(&[]);
    // The announced bodies are twice what all bodies together may take.
    for sent in ["", "[1,2,3"] {
        let crowd: Vec<_> = (0..11).map(|_| announce(&server, 12 << 20, sent)).collect();
        assert_eq!(publish(&server, "eve-secret").0, 200);
        // Clients with the same token are not delayed either.
        assert_eq!(publish(&server, "alice-secret").0, 200);
        drop(crowd);
    }
}

#[test]
fn requests_that_trickle_stop_neither_others_nor_the_probes() {
    let server = server(&["--http-connections-max", "8"]);
    let mut crowd: Vec<_> = (0..40).map(|_| announce(&server, 1000, "{")).collect();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.get(path).0, 200);
    }
    for stream in &mut crowd[39..] {
        stream.write_all(b" ").expect("bytes are taken");
    }
    assert_eq!(publish(&server, "eve-secret").0, 200);
    // Connections that were closed to make room got an answer, unless the server had not read their request yet.
    let told = crowd[..8].iter_mut().find_map(|stream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok().map(|_| answer).filter(|answer| !answer.is_empty())
    });
    let answer = told.expect("an answer").to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 503 ") && answer.contains("retry-after: "), "{answer}");
    assert!(answer.contains("limit_reached") && answer.contains("connection: close"), "{answer}");
    let evicted =
        || value_as(&server, "watcher-secret", "connections_evicted_total{reason=\"request_body\"}");
    eventually("the evictions are counted", || evicted() >= 1.0);
    drop(crowd);
}

#[test]
fn upgrades_that_trickle_stop_nobody() {
    let server = server(&["--http-connections-max", "8"]);
    let head = format!("GET /ws HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\n", address(&server));
    let crowd: Vec<_> = (0..100).map(|_| begin(&server, &head)).collect();
    crate::access::open(&server, "alice-secret").publish("t", &json!(1));
    assert_eq!(server.get("/healthz").0, 200);
    drop(crowd);
}

#[test]
fn probes_have_an_address_of_their_own() {
    let server = server(&["--http-connections-max", "1", "--probe-listen", "127.0.0.1:0"]);
    let probe = server.ready()["probe"].as_str().expect("an address").to_owned();
    let get = |path: &str, token: &str| {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.get(format!("{probe}{path}")).header("authorization", format!("Bearer {token}"));
        request.call().expect("an answer").status().as_u16()
    };
    let crowd: Vec<_> = (0..20).map(|_| announce(&server, 1000, "{")).collect();
    assert_eq!((get("/healthz", "none"), get("/readyz", "none")), (200, 200));
    // Metrics need their scope here too, and nothing else is served.
    assert_eq!((get("/metrics", "watcher-secret"), get("/metrics", "alice-secret")), (200, 403));
    assert_eq!((get("/topics", "root-secret"), get("/ws", "root-secret")), (404, 404));
    drop(crowd);
}

#[test]
fn the_limit_of_open_files_is_raised_and_too_low_a_one_is_told() {
    let open_files = |server: &Server| {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("Linux");
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit");
        line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let server = Server::with_open_files(128, 512);
    assert_eq!(open_files(&server), ["512", "512"]);
    assert!(server.log().contains("may open 512"), "{}", server.log());
    let server = Server::with_open_files(128, 4096);
    assert_eq!(open_files(&server), ["4096", "4096"]);
    assert!(!server.log().contains("may open"), "{}", server.log());
}

#[test]
fn a_websocket_gives_back_the_place_of_its_upgrade() {
    let server = server(&["--http-connections-max", "64", "--crowd-patience-ms", "0"]);
    let sockets: Vec<_> = (0..200).map(|_| crate::access::open(&server, "alice-secret")).collect();
    assert_eq!(publish(&server, "eve-secret").0, 200);
    assert_eq!(value_as(&server, "watcher-secret", "connections_evicted_total{reason=\"no_request\"}"), 0.0);
    drop(sockets);
}

#[test]
fn readers_of_history_that_do_not_read_hold_nobody_up() {
    let server = server(&["--pages-bytes-max", "33554432", "--http-connections-max", "16"]);
    let events: Vec<_> = (0..10).map(|_| json!({"payload": "x".repeat(800 << 10)})).collect();
    assert_eq!(server.request_as("alice-secret", "POST", "/topics/t/events", &json!(events)).0, 200);
    let ask = format!(
        "GET /topics/t/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer alice-secret\r\n\r\n",
        address(&server)
    );
    let crowd: Vec<_> = (0..40).map(|_| begin(&server, &ask)).collect();
    for token in ["eve-secret", "alice-secret"] {
        let headers = [("authorization", format!("Bearer {token}"))];
        let mut page = server.send("GET", "/topics/t/events", &headers, Vec::new());
        assert_eq!(page.status().as_u16(), 200);
        let text = page.body_mut().with_config().limit(64 << 20).read_to_string().expect("a whole page");
        assert!(text.len() > 3 << 20);
    }
    assert_eq!(publish(&server, "eve-secret").0, 200);
    drop(crowd);
}
