//! Compaction by key: which events stay, which are removed and when, and that nobody trips over the holes.

mod harness;

use harness::{Harness, event, keyed, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

const HOUR_MS: u64 = 3_600_000;

fn compacted() -> Harness {
    let mut harness = Harness::new();
    harness.open(1);
    let config = TopicConfig { compact: true, ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    harness
}

fn publish(harness: &mut Harness, events: &[(&str, &str)]) {
    for (key, payload) in events {
        let new = if key.is_empty() { event(payload) } else { keyed(key, payload) };
        harness.publish_event("t", new);
    }
}

/// Returns what a new group receives.
fn seen(harness: &mut Harness, group: &str) -> Vec<String> {
    harness.out();
    let from = Some(From::Earliest);
    let subscribe = Subscribe { from, max_inflight: Some(4000), ..subscription("t", group) };
    harness.request(1, Request::Subscribe(subscribe));
    let lines = harness.out();
    lines.iter().filter_map(|line| line.split_once("t/0/")).map(|(_, event)| event.to_owned()).collect()
}

#[test]
fn of_each_key_the_newest_stays_and_what_has_no_key_stays() {
    let mut harness = compacted();
    publish(
        &mut harness,
        &[("a", "1"), ("b", "2"), ("", "3"), ("a", "4"), ("", "5"), ("a", "6"), ("c", "7")],
    );
    harness.pass(60_000);
    assert_eq!(seen(&mut harness, "g"), ["2 2", "3 3", "5 5", "6 6", "7 7"]);
    // The group is done with the holes as well.
    harness.ack(1, "t", "g", 7);
    assert_eq!(harness.committed("t", "g", 0), 7);
    publish(&mut harness, &[("b", "8"), ("c", "9"), ("d", "10")]);
    harness.pass(60_000);
    assert_eq!(seen(&mut harness, "h"), ["3 3", "5 5", "6 6", "8 8", "9 9", "10 10"]);
}

#[test]
fn a_topic_that_did_not_ask_for_it_keeps_everything() {
    let mut harness = Harness::new();
    harness.open(1);
    publish(&mut harness, &[("a", "1"), ("a", "2")]);
    harness.pass(HOUR_MS);
    assert_eq!(seen(&mut harness, "g"), ["1 1", "2 2"]);
    let patch = TopicPatch { compact: Some(true), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    harness.pass(60_000);
    assert_eq!(seen(&mut harness, "h"), ["2 2"]);
}

#[test]
fn a_tombstone_goes_after_its_time_and_never_before_what_it_buries() {
    let mut harness = compacted();
    publish(&mut harness, &[("a", "1"), ("b", "2"), ("a", "null"), ("", "null")]);
    harness.pass(23 * HOUR_MS);
    assert_eq!(seen(&mut harness, "g"), ["2 2", "3 null", "4 null"]);
    harness.pass(2 * HOUR_MS);
    assert_eq!(seen(&mut harness, "h"), ["2 2", "4 null"]);
    // A tombstone that was superseded is removed like any other event.
    publish(&mut harness, &[("b", "null"), ("b", "6")]);
    harness.pass(60_000);
    assert_eq!(seen(&mut harness, "i"), ["4 null", "6 6"]);
}

#[test]
fn a_pass_survives_a_restart_and_many_pages() {
    let mut harness = compacted();
    for n in 0..2000 {
        publish(&mut harness, &[(&format!("k{}", n % 7), &n.to_string())]);
    }
    harness.restart();
    harness.open(1);
    harness.pass(60_000);
    assert_eq!(harness.removed, 1993);
    // The row of the time that ages are counted from is written once more after the last commit.
    harness.pass(HOUR_MS);
    let commits = harness.commits;
    harness.pass(HOUR_MS);
    assert_eq!(harness.commits, commits, "nothing new, nothing to do");
    assert_eq!(seen(&mut harness, "g").len(), 7);
}

/// A publisher's commit waits for at most one small removal, and then compaction leaves the disk alone for a while.
#[test]
fn while_somebody_publishes_it_rests_between_small_commits() {
    let mut harness = compacted();
    for n in 0..1000 {
        publish(&mut harness, &[("k", &n.to_string())]);
    }
    harness.hold = true;
    harness.pass(30_000);
    let mut removed = harness.removed;
    assert_eq!(removed, 0);
    for _ in 0..5 {
        harness.hold = true;
        harness.publish_event("other", event("1"));
        harness.release();
        let step = harness.removed - removed;
        assert!((1..=64).contains(&step), "{step} at once");
        removed = harness.removed;
        harness.pass(3);
        assert_eq!(harness.removed, removed, "it rests");
        harness.hold = true;
        harness.pass(1);
    }
    harness.release();
    assert_eq!(harness.removed, 999, "nobody publishes any more");
}

#[test]
fn events_in_hand_and_topics_that_vanish_are_no_trouble() {
    let mut harness = compacted();
    publish(&mut harness, &[("a", "1"), ("a", "2"), ("a", "3")]);
    harness.out();
    assert_eq!(seen(&mut harness, "g"), ["1 1", "2 2", "3 3"]);
    harness.pass(29_000);
    harness.out();
    harness.pass(2_000);
    // The leases expired meanwhile: remaining events are delivered again, removed events count as done or come from
    // memory.
    harness.ack(1, "t", "g", 3);
    assert_eq!(harness.committed("t", "g", 0), 3);
    publish(&mut harness, &[("a", "4"), ("a", "5")]);
    harness.hold = true;
    harness.pass(40_000);
    harness.call(Request::DeleteTopic { topic: topic("t") });
    harness.release();
    harness.pass(60_000);
    publish(&mut harness, &[("a", "1"), ("a", "2")]);
    harness.pass(60_000);
    assert_eq!(seen(&mut harness, "g").len(), 2, "the new topic has its own settings");
}

#[test]
fn a_size_limit_and_compaction_exclude_one_another() {
    let config = TopicConfig { compact: true, retention_bytes: Some(9), ..TopicConfig::default() };
    assert_eq!(config.resolved(), Err(ConfigError::CompactBySize));
}
