//! SIGKILL at random moments under load: nothing confirmed is lost, no offset is given twice, no commit moves back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::{Message, connect};

use crate::server::Server;

const KILLS: u64 = 30;
const PUBLISHERS: usize = 8;
const TOPIC: &str = "orders";

#[derive(Default)]
struct Seen {
    /// What was confirmed: offset to payload.
    confirmed: BTreeMap<u64, String>,
    /// Offsets that were confirmed for two different payloads.
    twice: Vec<u64>,
    /// What consumers got: offset to payload.
    delivered: BTreeMap<u64, String>,
    /// Offsets whose payload changed between two deliveries.
    changed: Vec<u64>,
    redelivered: u64,
    attempts_max: u64,
}

/// Publishes distinct payloads until told to stop; a broken connection just ends it.
fn publish(url: &str, who: usize, round: u64, stop: &AtomicBool, seen: &Mutex<Seen>) {
    let Ok((mut socket, _)) = connect(url) else { return };
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let payload = format!("{round}-{who}-{n}");
        let frame = json!({"type": "PUBLISH", "topic": TOPIC, "payload": payload});
        if socket.send(Message::text(frame.to_string())).is_err() {
            return;
        }
        let Ok(Message::Text(text)) = socket.read() else { return };
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(answer["type"], "PUBLISHED", "{answer}");
        let offset = answer["offset"].as_u64().expect("an offset");
        let mut seen = seen.lock().expect("no panic");
        if seen.confirmed.insert(offset, payload.clone()).is_some_and(|before| before != payload) {
            seen.twice.push(offset);
        }
    }
}

/// Acks most of what it gets; every seventh offset it leaves lying, so that kills find work in flight.
fn consume(url: &str, stop: &AtomicBool, seen: &Mutex<Seen>) {
    let Ok((mut socket, _)) = connect(url) else { return };
    let subscribe = json!({"type": "SUBSCRIBE", "topic": TOPIC, "group": "g", "ack_mode": "individual",
                           "from": {"kind": "earliest"}, "max_inflight": 64});
    if socket.send(Message::text(subscribe.to_string())).is_err() {
        return;
    }
    while let Ok(message) = socket.read() {
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(&text).expect("JSON");
        if frame["type"] != "MESSAGE" {
            assert_eq!(frame["type"], "OK", "{frame}");
            continue;
        }
        let offset = frame["offset"].as_u64().expect("an offset");
        let payload = frame["envelope"]["payload"].as_str().expect("a payload").to_owned();
        let attempts = frame["envelope"]["attempts"].as_u64().unwrap_or(1);
        let mut seen = seen.lock().expect("no panic");
        seen.redelivered += u64::from(attempts > 1);
        seen.attempts_max = seen.attempts_max.max(attempts);
        if seen.delivered.insert(offset, payload.clone()).is_some_and(|before| before != payload) {
            seen.changed.push(offset);
        }
        drop(seen);
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if !offset.is_multiple_of(7) {
            let ack = json!({"type": "ACK", "topic": TOPIC, "partition": 0, "group": "g", "offset": offset});
            if socket.send(Message::text(ack.to_string())).is_err() {
                return;
            }
        }
    }
}

#[test]
fn thirty_kills_lose_nothing_that_was_confirmed() {
    // Attempts enough that nothing becomes a dead letter only because we kill so often.
    let mut server = Server::with(&["--max-attempts", "100"]);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut committed_before = 0;
    for round in 0..KILLS {
        let stop = Arc::new(AtomicBool::new(false));
        let url = server.ws_url();
        let spawn = |work: fn(&str, usize, u64, &AtomicBool, &Mutex<Seen>), who| {
            let (url, stop, seen) = (url.clone(), stop.clone(), seen.clone());
            thread::spawn(move || work(&url, who, round, &stop, &seen))
        };
        let mut workers: Vec<_> = (0..PUBLISHERS).map(|who| spawn(publish, who)).collect();
        workers.extend((0..2).map(|who| spawn(|url, _, _, stop, seen| consume(url, stop, seen), who)));
        // Random enough: the moment is a function of the round, what happens at it is not.
        thread::sleep(Duration::from_millis(30 + round * 7919 % 120));
        server.kill();
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        server.restart();
        if seen.lock().expect("no panic").delivered.is_empty() {
            continue;
        }
        let committed = server.committed(TOPIC, "g", 0);
        assert!(
            committed >= committed_before,
            "round {round}: the commit moved from {committed_before} to {committed}"
        );
        committed_before = committed;
    }
    let mut seen = seen.lock().expect("no panic");
    assert!(seen.twice.is_empty(), "offsets confirmed twice: {:?}", seen.twice);
    assert!(seen.changed.is_empty(), "offsets that changed their payload: {:?}", seen.changed);
    assert!(seen.redelivered > 0 && seen.attempts_max >= 2, "redeliveries carry attempts");
    let stored = read_all(&server);
    let lost: Vec<_> =
        seen.confirmed.iter().filter(|(offset, payload)| stored.get(offset) != Some(payload)).collect();
    assert!(lost.is_empty(), "confirmed and not stored: {lost:?}");
    assert!(stored.keys().copied().eq(1..=stored.len() as u64), "offsets are dense");
    let distinct: BTreeSet<_> = stored.values().collect();
    assert_eq!(distinct.len(), stored.len(), "nothing is stored twice");
    finish(&server, &mut seen);
    println!(
        "{KILLS} kills: {} confirmed, {} stored, {} redelivered, at most {} attempts",
        seen.confirmed.len(),
        stored.len(),
        seen.redelivered,
        seen.attempts_max
    );
}

fn read_all(server: &Server) -> BTreeMap<u64, String> {
    let mut stored = BTreeMap::new();
    let mut from = 1;
    loop {
        let (_, page) = server.get(&format!("/topics/{TOPIC}/events?from={from}&limit=10000"));
        let events = page["events"].as_array().expect("events");
        if events.is_empty() {
            return stored;
        }
        for event in events {
            let offset = event["offset"].as_u64().expect("an offset");
            stored.insert(offset, event["payload"].as_str().expect("a payload").to_owned());
        }
        from = page["next"].as_u64().expect("next");
    }
}

/// A well-behaved consumer finishes what is left: every stored event was delivered to the group at least once.
fn finish(server: &Server, seen: &mut Seen) {
    let last =
        server.get(&format!("/topics/{TOPIC}/offsets")).1["partitions"][0]["next"].as_u64().expect("next")
            - 1;
    let mut socket = server.socket();
    socket.subscribe(TOPIC, "g", &json!({"max_inflight": 256}));
    let mut unconfirmed = 0;
    while unconfirmed > 0 || server.committed(TOPIC, "g", 0) < last {
        let frame = socket.next();
        if frame["type"] == "OK" {
            unconfirmed -= 1;
            continue;
        }
        let offset = frame["offset"].as_u64().expect("an offset");
        let payload = frame["envelope"]["payload"].as_str().expect("a payload").to_owned();
        seen.delivered.insert(offset, payload);
        socket.send(
            &json!({"type": "ACK", "topic": TOPIC, "partition": 0, "group": "g", "offset": offset, "rid": 1}),
        );
        unconfirmed += 1;
    }
    assert!(seen.delivered.keys().copied().eq(1..=last), "every event reached the group");
}
