//! A compacted topic, seen by clients and after a crash.

use serde_json::{Value, json};

use crate::server::Server;

fn offsets(server: &Server) -> Vec<u64> {
    let (status, page) = server.get("/topics/state/events?limit=1000");
    assert_eq!(status, 200, "{page}");
    let events = page["events"].as_array().expect("events");
    events.iter().map(|event| event["offset"].as_u64().expect("an offset")).collect()
}

#[test]
fn the_newest_event_of_each_key_stays_and_readers_pass_over_the_rest() {
    let flags = ["--compact-interval-ms", "50", "--tombstone-ms", "0", "--maintain-interval-ms", "1"];
    let mut server = Server::with(&flags);
    let (status, topic) = server.post("/topics", &json!({"topic": "state", "compact": true}));
    assert_eq!((status, &topic["compact"]), (201, &json!(true)), "{topic}");
    let mut slow = server.socket();
    slow.subscribe("state", "slow", &json!({"max_inflight": 1, "from": {"kind": "earliest"}}));
    let mut socket = server.socket();
    let publish = |socket: &mut crate::socket::Socket, key: Value, payload: Value| {
        socket.send(&json!({"type": "PUBLISH", "topic": "state", "key": key, "payload": payload}));
        socket.expect("PUBLISHED")["offset"].as_u64().expect("an offset")
    };
    for n in 0..300 {
        publish(&mut socket, json!(format!("k{}", n % 3)), json!(n));
    }
    let keyless = publish(&mut socket, Value::Null, json!("no key"));
    publish(&mut socket, json!("k0"), Value::Null);
    let last = publish(&mut socket, json!("k1"), json!("last"));
    let expected = [300, keyless, last];
    while offsets(&server) != expected {
        std::thread::yield_now();
    }
    // The group's window was full before; the group continues after the holes, and so does its commit.
    let first = slow.message();
    slow.ack("state", "slow", first);
    while server.committed("state", "slow", 0) < last {
        let offset = slow.message();
        slow.ack("state", "slow", offset);
    }
    server.kill_and_restart();
    assert_eq!(offsets(&server), expected);
    server.terminate();
    let doctor = std::process::Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["doctor", "--store", &server.store_url()])
        .output()
        .expect("it runs");
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
}

#[test]
fn a_page_is_of_so_many_events_however_many_offsets_lie_between_them() {
    let flags = ["--compact-interval-ms", "50", "--tombstone-ms", "0", "--maintain-interval-ms", "1"];
    let server = Server::with(&flags);
    assert_eq!(server.post("/topics", &json!({"topic": "state", "compact": true})).0, 201);
    let many = (0..300).map(|n| json!({"key": "often", "payload": n}));
    let events: Vec<_> = std::iter::once(json!({"key": "once", "payload": 0})).chain(many).collect();
    assert_eq!(server.post("/topics/state/events", &json!(events)).0, 200);
    while offsets(&server) != [1, 301] {
        std::thread::yield_now();
    }
    for (query, expected, next) in [
        ("limit=2", &[1, 301][..], 302),
        ("limit=100", &[1, 301], 302),
        ("limit=1&from=2", &[301], 302),
        ("limit=1", &[1], 2),
    ] {
        let (_, page) = server.get(&format!("/topics/state/events?{query}"));
        let found: Vec<_> =
            page["events"].as_array().expect("events").iter().map(|event| &event["offset"]).collect();
        assert_eq!((json!(found), &page["next"]), (json!(expected), &json!(next)), "{query}: {page}");
    }
}
