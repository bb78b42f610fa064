//! The source document's testing recipe: publish, consume with acks, kill and resume, stop acking, find dead letters.

use serde_json::json;

use crate::server::Server;

#[test]
fn the_five_step_recipe() {
    // 1. Run the broker, with a store that survives a restart.
    let mut server = Server::with(&["--max-attempts", "3"]);

    // 2. Publish to test.topic.
    let mut publisher = server.socket();
    for n in 1..=49 {
        assert_eq!(publisher.publish("test.topic", &json!({"n": n})), n);
    }

    // 3. Join group g1 from offset 0 with 10 in flight; acks advance the offsets.
    let join = json!({"from": {"kind": "offset", "value": 0}, "max_inflight": 10});
    let mut subscriber = server.socket();
    subscriber.subscribe("test.topic", "g1", &join);
    for n in 1..=20 {
        assert_eq!(subscriber.message(), n);
        subscriber.ack("test.topic", "g1", n);
        assert_eq!(server.committed("test.topic", "g1", 0), n);
    }

    // 4. Kill and restart: the same SUBSCRIBE resumes from the committed offset.
    server.kill_and_restart();
    let mut subscriber = server.socket();
    let ok = subscriber.subscribe("test.topic", "g1", &join);
    assert_eq!(ok["partitions"][0]["next"], 21);
    for n in 21..=49 {
        assert_eq!(subscriber.message(), n);
        subscriber.ack("test.topic", "g1", n);
    }

    // 5. Stop acking: redeliveries, then the dead-letter topic. The short ack timeout is set only now: before, a busy
    // machine would have turned slow acks into redeliveries.
    let (status, _) = server.send_json("PATCH", "/topics/test.topic", &json!({"ackTimeoutMs": 200}));
    assert_eq!(status, 200);
    assert_eq!(server.socket().publish("test.topic", &json!({"n": 50})), 50);
    let mut attempts = Vec::new();
    let mut letters = server.socket();
    letters.subscribe("test.topic.DLQ", "undertaker", &json!({"from": {"kind": "earliest"}}));
    while attempts.last() != Some(&3) {
        let message = subscriber.expect("MESSAGE");
        assert_eq!(message["offset"], 50);
        attempts.push(message["envelope"]["attempts"].as_u64().unwrap_or(1));
    }
    assert!(attempts.is_sorted(), "{attempts:?}");
    let letter = letters.expect("MESSAGE")["envelope"].clone();
    assert_eq!(letter["payload"], json!({"n": 50}));
    assert_eq!(letter["headers"]["x-dlq-attempts"], "3");
    assert_eq!(server.committed("test.topic", "g1", 0), 50);
}
