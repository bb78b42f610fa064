//! Rate limits per connection and per token, over both protocols.

use serde_json::{Value, json};

use crate::access::{TOKENS, open};
use crate::server::Server;
use crate::socket::Socket;

/// Returns how many of `count` publishes were accepted; the others must be `rate_limited`.
fn taken(socket: &mut Socket, count: usize) -> usize {
    for rid in 0..count {
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1, "rid": rid}));
    }
    (0..count).filter(|_| is_taken(&socket.next())).count()
}

fn is_taken(frame: &Value) -> bool {
    if frame["type"] == "ERROR" {
        assert_eq!((&frame["code"], &frame["topic"]), (&json!("rate_limited"), &json!("t")), "{frame}");
        assert!(frame["rid"].is_number(), "{frame}");
    }
    frame["type"] == "PUBLISHED"
}

#[test]
fn a_connection_that_asks_too_much_is_told_and_stays_open() {
    let server = Server::with(&["--connection-rate", "1", "--connection-burst", "10"]);
    let mut socket = server.socket();
    // The upgrade itself was the first request.
    let count = taken(&mut socket, 50);
    assert!((9..=12).contains(&count), "{count}");
    socket.send(&json!({"type": "PING"}));
    socket.expect("PONG");
    let count = taken(&mut server.socket(), 50);
    assert!((9..=12).contains(&count), "another connection has its own: {count}");
}

#[test]
fn a_batch_costs_as_much_as_its_events_and_acks_cost_nothing() {
    let server = Server::with(&["--connection-rate", "1", "--connection-burst", "10"]);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    let events: Vec<_> = (0..6).map(|n| json!({"payload": n})).collect();
    socket.send(&json!({"type": "PUBLISH_BATCH", "topic": "t", "events": events, "rid": 1}));
    let mut offsets = Vec::new();
    while offsets.len() < 6 {
        let frame = socket.next();
        offsets.extend((frame["type"] == "MESSAGE").then(|| frame["offset"].as_u64().expect("an offset")));
    }
    socket.send(&json!({"type": "PUBLISH_BATCH", "topic": "t", "events": events, "rid": 2}));
    socket.refused("rate_limited");
    for offset in offsets.iter().cycle().take(100) {
        socket.ack("t", "g", *offset);
    }
}

#[test]
fn all_connections_of_a_token_share_its_rate() {
    let server = Server::with_config(TOKENS, &["--token-rate", "1", "--token-burst", "20"]);
    let (mut first, mut second) = (open(&server, "alice-secret"), open(&server, "alice-secret"));
    let count = taken(&mut first, 30) + taken(&mut second, 30);
    assert!((15..=24).contains(&count), "{count}");
    let response = server.send(
        "POST",
        "/topics/t/events",
        &[("authorization", "Bearer alice-secret".to_owned())],
        json!({"payload": 1}).to_string().into_bytes(),
    );
    assert_eq!(response.status().as_u16(), 429);
    assert!(response.headers()["retry-after"].to_str().expect("text").parse::<u64>().expect("seconds") >= 1);
    assert!(taken(&mut open(&server, "eve-secret"), 10) == 10, "another token has its own");
    assert!(server.log().contains("rate_limited"), "written down");
    assert_eq!(server.get("/healthz").0, 200, "probes are never refused");
}

#[test]
fn a_token_may_have_a_rate_of_its_own() {
    let config = "[[auth.tokens]]\ntoken = 'slow-secret'\nagent = 'slow'\nrate = 1\nburst = 3\n";
    let server = Server::with_config(config, &[]);
    let mut socket = open(&server, "slow-secret");
    let count = taken(&mut socket, 20);
    assert!((2..=5).contains(&count), "{count}");
    let (status, problem) = server.request_as(
        "slow-secret",
        "POST",
        "/topics/t/events",
        &json!([{"payload": 1}, {"payload": 2}]),
    );
    assert_eq!((status, &problem["code"]), (429, &json!("rate_limited")));
}

#[test]
fn guessing_tokens_is_limited_too() {
    let server = Server::with_config(TOKENS, &["--connection-rate", "1", "--connection-burst", "5"]);
    let mut socket = server.socket();
    for _ in 0..20 {
        socket.send(&json!({"type": "AUTH", "token": "guess"}));
    }
    let codes: Vec<_> = (0..20).map(|_| socket.expect("ERROR")["code"].clone()).collect();
    assert!(codes.iter().filter(|code| **code == "unauthorized").count() <= 8, "{codes:?}");
    assert!(codes.contains(&json!("rate_limited")));
}

#[test]
fn pub_says_how_to_stay_below_the_rate() {
    let server = Server::with(&["--connection-rate", "1", "--connection-burst", "5"]);
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["pub", "t", "1", "--count", "50", "--url", &server.ws_url()])
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("rate_limited") && stderr.contains("--rate N"), "{stderr}");
}

#[test]
fn a_batch_above_the_burst_passes_once_the_bucket_is_full_and_is_waited_off() {
    let config = "[[auth.tokens]]\ntoken = 'slow-secret'\nagent = 'slow'\nrate = 10\nburst = 10\n";
    let batch: Vec<_> = (0..15).map(|n| json!({"payload": n})).collect();
    let by_connection = Server::with(&["--connection-rate", "10", "--connection-burst", "10"]);
    let by_token = Server::with_config(config, &[]);
    for server in [&by_connection, &by_token] {
        let send = || server.request_as("slow-secret", "POST", "/topics/t/events", &json!(batch));
        let (status, answer) = send();
        assert_eq!((status, answer["offsets"].as_array().map(Vec::len)), (200, Some(15)), "{answer}");
    }
    // The token is in debt now, for WebSockets too, and the answer says for how long.
    let (status, problem) = by_token.request_as("slow-secret", "POST", "/topics/t/events", &json!(batch));
    assert_eq!((status, &problem["code"]), (429, &json!("rate_limited")), "{problem}");
    let detail = problem["detail"].as_str().expect("a detail");
    let wait = detail.split_whitespace().rev().nth(1).and_then(|ms| ms.parse::<u64>().ok());
    assert!(wait.is_some_and(|ms| ms > 500), "{detail}");
    // A client that waits as long as it was told succeeds, however often.
    for _ in 0..2 {
        let mut waited = 0;
        while by_token.request_as("slow-secret", "POST", "/topics/t/events", &json!(batch)).0 != 200 {
            waited += 1;
            assert!(waited < 20, "it never passes");
            std::thread::sleep(std::time::Duration::from_millis(1500));
        }
    }
    let mut socket = by_connection.socket();
    socket.send(&json!({"type": "PUBLISH_BATCH", "topic": "t", "events": batch}));
    socket.refused("rate_limited");
}

/// Publishes events that a consumer refuses once each, so that they become dead letters.
fn make_dead_letters(server: &Server, token: &str, count: usize) {
    let (status, _) =
        server.request_as("root-secret", "POST", "/topics", &json!({"topic": "t", "maxAttempts": 1}));
    assert_eq!(status, 201);
    let mut socket = open(server, token);
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}, "max_inflight": 1000}));
    let events: Vec<_> = (0..count).map(|n| json!({"payload": n})).collect();
    socket.send(&json!({"type": "PUBLISH_BATCH", "topic": "t", "events": events}));
    let mut refused = 0;
    while refused < count {
        let frame = socket.next();
        if frame["type"] == "MESSAGE" {
            socket.send_nack("t", "g", frame["offset"].as_u64().expect("an offset"), &json!({}));
            refused += 1;
        }
    }
    crate::server::eventually("all are dead letters", || {
        let path = "/dead-letters?topic=t&limit=10000";
        let page = server.request_as("root-secret", "GET", path, &json!(null)).1;
        page["events"].as_array().is_some_and(|letters| letters.len() == count)
    });
}

#[test]
fn a_replay_costs_what_publishing_costs_and_says_where_to_go_on() {
    let config = format!(
        "{TOKENS}[[auth.tokens]]\ntoken = 'slow-secret'\nagent = 'slow'\nrate = 1\nburst = 600\nnamespaces = ['default']\n"
    );
    let server = Server::with_config(&config, &[]);
    make_dead_letters(&server, "alice-secret", 1200);
    let replay = |body: &Value| server.request_as("slow-secret", "POST", "/dead-letters/t/replay", body);
    // A commit replays 500 letters: the rate covers the first 500, but not the second.
    let (status, problem) = replay(&json!({"limit": 10_000}));
    assert_eq!((status, &problem["code"]), (429, &json!("rate_limited")), "{problem}");
    assert_eq!(
        (&problem["replayed"], &problem["duplicates"], &problem["next"]),
        (&json!(500), &json!(0), &json!(501))
    );
    assert!(problem["detail"].as_str().expect("a text").contains("go on at offset 501"), "{problem}");
    let stored = |server: &Server| {
        let offsets = server.request_as("root-secret", "GET", "/topics/t/offsets", &json!(null)).1;
        offsets["partitions"][0]["next"].as_u64().expect("an offset") - 1
    };
    assert_eq!(stored(&server), 1200 + 500, "what was not paid for was not published");
    // Repeating the request at once replays nothing.
    let (status, problem) = replay(&json!({"limit": 10_000, "offset": 501}));
    assert_eq!((status, &problem["replayed"], &problem["next"]), (429, &json!(0), &json!(501)), "{problem}");
    // Another token continues at that offset: each letter is replayed once.
    let rest = json!({"limit": 10_000, "offset": 501});
    let (status, answer) = server.request_as("alice-secret", "POST", "/dead-letters/t/replay", &rest);
    assert_eq!(
        (status, &answer["replayed"], &answer["duplicates"]),
        (200, &json!(700), &json!(0)),
        "{answer}"
    );
    assert_eq!(stored(&server), 1200 + 1200);
    assert!(server.log().contains("rate_limited"), "written down");
}
