//! Compares the stored log with what was promised.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::ledger::{Ledger, Place, number, payload_of};
use super::{FRAGILE, MAX_ATTEMPTS, TOPICS, group_of};
use crate::server::Server;

/// Returns every event of a topic by partition and offset; none if there is no such topic.
pub fn read(server: &Server, topic: &str) -> BTreeMap<(u64, u64), Value> {
    let (status, offsets) = server.get(&format!("/topics/{topic}/offsets"));
    let mut stored = BTreeMap::new();
    if status == 404 {
        return stored;
    }
    for row in offsets["partitions"].as_array().expect("partitions") {
        let partition = number(&row["partition"]);
        let mut from = 1;
        loop {
            let path = format!("/topics/{topic}/events?partition={partition}&from={from}&limit=10000");
            let (_, page) = server.get(&path);
            let events = page["events"].as_array().expect("events");
            if events.is_empty() {
                break;
            }
            for event in events {
                assert_eq!(number(&event["offset"]), from, "{topic}/{partition}: offsets are dense");
                stored.insert((partition, from), event.clone());
                from += 1;
            }
        }
        assert_eq!(number(&row["next"]), from, "{topic}/{partition}: offsets end where they say");
    }
    stored
}

/// Checks the dead letters: at most one per event, each a true copy, and none that was seen before is missing.
pub fn check_letters(server: &Server, ledger: &mut Ledger) {
    let originals = read(server, FRAGILE);
    let mut letters: BTreeSet<Place> = BTreeSet::new();
    for letter in read(server, &format!("{FRAGILE}.DLQ")).values() {
        let header = |name: &str| letter["headers"][name].as_str().expect("a header").to_owned();
        assert_eq!(header("x-dlq-group"), group_of(FRAGILE));
        assert_eq!(header("x-dlq-attempts"), MAX_ATTEMPTS.to_string(), "{letter}");
        let at = |name: &str| header(name).parse::<u64>().expect("a number");
        let (partition, offset) = (at("x-dlq-partition"), at("x-dlq-offset"));
        let original = originals.get(&(partition, offset)).expect("the original is there");
        assert_eq!(
            (&original["payload"], &original["id"]),
            (&letter["payload"], &Value::from(header("x-dlq-id")))
        );
        assert!(letters.insert((FRAGILE, partition, offset)), "two dead letters of {partition}/{offset}");
    }
    assert!(ledger.letters.is_subset(&letters), "dead letters are gone");
    ledger.letters = letters;
}

/// Checks the log at the end, when every consumer is done. Returns the number of events.
pub fn check_all(server: &Server, ledger: &Ledger) -> usize {
    let mut payloads: BTreeMap<String, (Place, Value)> = BTreeMap::new();
    for topic in TOPICS {
        for ((partition, offset), event) in read(server, topic) {
            let (place, payload) = ((topic, partition, offset), payload_of(&event));
            if payload.starts_with("poison") {
                assert!(
                    ledger.letters.contains(&place),
                    "{place:?} was always refused and has no dead letter"
                );
            }
            if let Some((before, _)) = payloads.insert(payload.clone(), (place, event)) {
                panic!("{payload} is stored twice: {before:?} and {place:?}");
            }
        }
    }
    for (place, payload) in &ledger.confirmed {
        let found = payloads.get(payload).map(|(place, _)| place);
        assert_eq!(found, Some(place), "{payload} was confirmed there");
    }
    for (payload, due) in &ledger.delayed {
        let (_, event) = payloads.get(payload).unwrap_or_else(|| panic!("{payload} waited and never came"));
        assert!(number(&event["ts"]) >= *due, "{payload} came before {due}: {event}");
    }
    let mut batches: BTreeMap<&str, u64> = BTreeMap::new();
    for payload in payloads.keys().filter(|payload| payload.starts_with("batch/")) {
        let (batch, _) = payload.rsplit_once('/').expect("our own payload");
        *batches.entry(batch).or_default() += 1;
    }
    for (batch, found) in batches {
        let size = batch.rsplit_once('/').and_then(|(_, size)| size.parse().ok());
        assert_eq!(Some(found), size, "{batch} is there whole or not at all");
    }
    payloads.len()
}
