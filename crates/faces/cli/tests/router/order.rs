//! Messages that one client sends without waiting stay in order, in the log and on the disk.

use serde_json::json;

use crate::client::{Client, serve};

const MANY: usize = 3000;

#[test]
fn publishes_are_stored_in_the_order_they_were_sent() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let mut answered = 0;
    for n in 0..MANY {
        client.send("command", "Bus.Publish", &json!({"topic": "t", "key": "k", "payload": n}));
        // Stay below the limit of unanswered messages, so that neither side waits for the other.
        if n >= 900 {
            assert_eq!(client.next()["kind"], "reply");
            answered += 1;
        }
    }
    while answered < MANY {
        assert_eq!(client.next()["kind"], "reply");
        answered += 1;
    }
    let (status, page) = server.get("/topics/t/events?limit=10000");
    assert_eq!(status, 200);
    let stored: Vec<u64> = page["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["payload"].as_u64())
        .collect();
    assert_eq!(stored.len(), MANY);
    assert!(stored.is_sorted(), "out of order from {:?}", stored.windows(2).find(|pair| pair[0] > pair[1]));
}

#[test]
fn the_last_value_is_the_one_that_survives() {
    let mut server = serve(&[]);
    let mut client = Client::of(&server);
    for n in 0..900 {
        client.send("command", "Memory.Set", &json!({"key": "/n", "value": n}));
    }
    for _ in 0..900 {
        assert_eq!(client.next()["kind"], "reply");
    }
    server.kill_and_restart();
    assert_eq!(Client::of(&server).reply("query", "Memory.Get", &json!({"key": "/n"})), 899);
}
