//! Records what the server confirmed and delivered, and checks the invariants.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{FRAGILE, MAX_ATTEMPTS, ORDERS, group_of};

/// Topic, partition, offset.
pub type Place = (&'static str, u64, u64);

#[derive(Default)]
pub struct Ledger {
    /// Payloads by the place that a PUBLISHED frame named.
    pub confirmed: BTreeMap<Place, String>,
    /// Payloads of confirmed delayed events, with the time when they are due.
    pub delayed: BTreeMap<String, u64>,
    /// Frames with ids that were sent and not answered, by publisher.
    pub unanswered: BTreeMap<usize, Value>,
    pub resent: u64,
    /// Payloads by the place they were delivered from.
    delivered: BTreeMap<Place, String>,
    pub redelivered: u64,
    pub attempts_max: u64,
    acks_sent: BTreeSet<Place>,
    /// Acks that were answered OK: these events must never be delivered again.
    acks_confirmed: BTreeSet<Place>,
    /// Places of events whose dead letter was seen: these must never be delivered again either.
    pub letters: BTreeSet<Place>,
    /// The highest `committed` that the server has shown, per topic and partition.
    shown: BTreeMap<(&'static str, u64), u64>,
}

impl Ledger {
    pub fn published(&mut self, frame: &Value, answer: &Value) {
        assert_eq!(answer["type"], "PUBLISHED", "{answer} to {frame}");
        let topic = if frame["topic"] == ORDERS { ORDERS } else { FRAGILE };
        if let Some(due) = answer["due"].as_u64() {
            self.delayed.insert(payload_of(frame), due);
            return;
        }
        match frame["events"].as_array() {
            None => self.confirm(topic, &answer["partition"], &answer["offset"], &payload_of(frame)),
            Some(events) => {
                let offsets = answer["offsets"].as_array().expect("offsets");
                assert_eq!(events.len(), offsets.len(), "{answer}");
                for (event, at) in events.iter().zip(offsets) {
                    self.confirm(topic, &at[0], &at[1], &payload_of(event));
                }
            }
        }
    }

    fn confirm(&mut self, topic: &'static str, partition: &Value, offset: &Value, payload: &str) {
        let place = (topic, number(partition), number(offset));
        let before = self.confirmed.insert(place, payload.to_owned());
        assert!(before.is_none_or(|before| before == payload), "{place:?} was confirmed for two events");
    }

    /// Records a delivery. Returns whether it is the first delivery of this event that was seen.
    pub fn delivered(&mut self, topic: &'static str, frame: &Value, round: u64) -> bool {
        let place = (topic, number(&frame["partition"]), number(&frame["offset"]));
        let attempts = frame["envelope"]["attempts"].as_u64().unwrap_or(1);
        assert!(!self.acks_confirmed.contains(&place), "{place:?} was acked, confirmed and delivered again");
        assert!(!self.letters.contains(&place), "{place:?} has its dead letter and was delivered again");
        // Nothing times out here and orders are never refused: a round delivers an order at most once.
        let attempts_max = if topic == ORDERS { round + 1 } else { MAX_ATTEMPTS };
        assert!(attempts <= attempts_max, "{place:?} says {attempts} attempts in round {round}");
        self.redelivered += u64::from(attempts > 1);
        self.attempts_max = self.attempts_max.max(attempts);
        let payload = payload_of(&frame["envelope"]);
        match self.delivered.insert(place, payload.clone()) {
            None => true,
            Some(before) => {
                assert_eq!(before, payload, "{place:?} changed between two deliveries");
                false
            }
        }
    }

    pub fn ack_sent(&mut self, place: Place) {
        self.acks_sent.insert(place);
    }

    pub fn ack_confirmed(&mut self, place: Place) {
        self.acks_confirmed.insert(place);
    }

    /// Records every `committed` that the server shows, and checks that it never falls.
    pub fn committed(&mut self, topic: &'static str, offsets: &Value) {
        for row in offsets["partitions"].as_array().expect("partitions") {
            let partition = number(&row["partition"]);
            let committed = number(&row["groups"][group_of(topic)]["committed"]);
            let before = self.shown.insert((topic, partition), committed).unwrap_or(0);
            assert!(committed >= before, "{topic}/{partition}: the commit fell from {before} to {committed}");
        }
    }

    /// Checks, when nothing is in flight, that the commit covers every confirmed ack below the first gap, and no event
    /// that is not done.
    pub fn check_commits(&self) {
        for ((topic, partition), committed) in &self.shown {
            let place = |offset| (*topic, *partition, offset);
            let passed = (1..=*committed).find(|offset| !self.may_be_done(place(*offset)));
            assert_eq!(passed, None, "{topic}/{partition}: {committed} is committed, this is not done");
            let next = committed + 1;
            assert!(
                !self.acks_confirmed.contains(&place(next)),
                "{topic}/{partition}: {next} was acked and confirmed, {committed} is committed"
            );
        }
    }

    fn may_be_done(&self, place: Place) -> bool {
        self.acks_sent.contains(&place) || self.letters.contains(&place)
    }

    pub fn commits_total(&self) -> u64 {
        self.shown.values().sum()
    }
}

pub fn payload_of(event: &Value) -> String {
    event["payload"].as_str().unwrap_or_else(|| panic!("a payload in {event}")).to_owned()
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number, not {value}"))
}
