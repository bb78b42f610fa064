//! Sticky groups: order per key with many members.

mod harness;

use harness::{Harness, event, group, keyed, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

fn join(harness: &mut Harness, conn: u64, window: u32, sticky: bool) {
    harness.open(conn);
    let (from, max_inflight) = (Some(From::Earliest), Some(window));
    let ack_mode = Some(AckMode::Individual);
    let subscribe = Subscribe { from, max_inflight, ack_mode, sticky, ..subscription("t", "g") };
    harness.request(conn, Request::Subscribe(subscribe));
}

/// Publishes events given as `key:payload`; a text without a colon is an event without a key.
fn publish(harness: &mut Harness, events: &[&str]) {
    for text in events {
        harness.publish_event("t", text.split_once(':').map_or_else(|| event(text), |(k, p)| keyed(k, p)));
    }
}

/// Returns the deliveries as `connection:offset`.
fn deliveries(harness: &mut Harness) -> Vec<String> {
    let out = harness.out();
    let sent = out.iter().filter_map(|line| {
        let (conn, rest) = line.split_once("<- g t/0/")?;
        Some(format!("{conn}:{}", rest.split(' ').next()?))
    });
    sent.collect()
}

#[test]
fn one_event_of_a_key_is_in_flight_and_the_next_goes_to_the_same_member() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 8, true);
    join(&mut harness, 2, 8, true);
    publish(&mut harness, &["a:1", "a:2", "b:3", "a:4", "b:5"]);
    assert_eq!(deliveries(&mut harness), ["1:1", "2:3"]);
    harness.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["1:2"]);
    harness.ack(2, "t", "g", 3);
    assert_eq!(deliveries(&mut harness), ["2:5"]);
    harness.ack(1, "t", "g", 2);
    assert_eq!(deliveries(&mut harness), ["1:4"]);
    assert_eq!(harness.committed("t", "g", 0), 3);
}

#[test]
fn a_refused_event_holds_up_its_key_and_no_other() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 8, true);
    join(&mut harness, 2, 8, true);
    publish(&mut harness, &["a:1", "a:2", "b:3"]);
    harness.out();
    harness.nack(1, "t", "g", 1, Some(5_000));
    harness.ack(2, "t", "g", 3);
    publish(&mut harness, &["b:4"]);
    assert_eq!(deliveries(&mut harness), ["2:4"], "2 waits for 1, which waits for its delay");
    harness.pass(5_001);
    assert_eq!(deliveries(&mut harness), ["1:1"], "to the member of its key, although it refused it");
    harness.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["1:2"]);
}

#[test]
fn the_keys_of_a_lost_member_go_to_the_others_in_their_order() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 8, true);
    join(&mut harness, 2, 8, true);
    publish(&mut harness, &["a:1", "a:2", "b:3"]);
    harness.out();
    harness.input(Input::Close { conn: ConnId(1) });
    assert_eq!(deliveries(&mut harness), ["2:1"]);
    harness.ack(2, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["2:2"]);
    // A member that comes later takes no key away from one that lives.
    join(&mut harness, 3, 8, true);
    harness.ack(2, "t", "g", 2);
    publish(&mut harness, &["a:4", "c:5"]);
    assert_eq!(deliveries(&mut harness), ["2:4", "3:5"]);
}

#[test]
fn events_without_a_key_go_round_and_wait_for_nobody() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 8, true);
    join(&mut harness, 2, 8, true);
    publish(&mut harness, &["1", "2", "3", "4"]);
    assert_eq!(deliveries(&mut harness), ["1:1", "2:2", "1:3", "2:4"]);
}

#[test]
fn a_member_without_room_holds_up_its_keys_only() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 1, true);
    join(&mut harness, 2, 8, true);
    publish(&mut harness, &["a:1", "b:2", "c:3"]);
    assert_eq!(deliveries(&mut harness), ["1:1", "2:2", "2:3"]);
    harness.ack(1, "t", "g", 1);
    publish(&mut harness, &["d:4", "a:5", "b:6"]);
    // Member 1 takes key d. Key a belongs to it as well, so event 5 waits for room there although member 2 has some.
    assert_eq!(deliveries(&mut harness), ["1:4"]);
    harness.ack(2, "t", "g", 2);
    assert_eq!(deliveries(&mut harness), ["2:6"]);
    harness.ack(1, "t", "g", 4);
    assert_eq!(deliveries(&mut harness), ["1:5"]);
}

#[test]
fn an_event_that_waits_for_its_key_cannot_be_acked_or_refused() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 8, true);
    publish(&mut harness, &["a:1", "a:2"]);
    harness.out();
    harness.ack(1, "t", "g", 2);
    let out = harness.out();
    assert!(out.iter().any(|line| line.contains("unknown_offset")), "{out:?}");
    harness.nack(1, "t", "g", 2, None);
    let out = harness.out();
    assert!(out.iter().any(|line| line.contains("unknown_offset")), "{out:?}");
    harness.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["1:2"]);
}

#[test]
fn a_dead_letter_frees_its_key() {
    let mut harness = Harness::with(BusLimits { max_attempts: 1, ..BusLimits::default() });
    join(&mut harness, 1, 8, true);
    publish(&mut harness, &["a:1", "a:2"]);
    harness.out();
    harness.nack(1, "t", "g", 1, None);
    assert_eq!(deliveries(&mut harness), ["1:2"]);
    assert_eq!(harness.log("t.DLQ").len(), 1);
}

#[test]
fn a_topic_may_be_sticky_for_all_its_groups_and_stop_being_so() {
    let mut harness = Harness::new();
    let config = TopicConfig { sticky: true, ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    join(&mut harness, 1, 8, false);
    publish(&mut harness, &["a:1", "a:2", "a:3"]);
    assert_eq!(deliveries(&mut harness), ["1:1"]);
    harness.restart();
    join(&mut harness, 1, 8, false);
    assert_eq!(deliveries(&mut harness), ["1:1"], "a restart changes nothing");
    let patch = TopicPatch { sticky: Some(false), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    assert_eq!(deliveries(&mut harness), ["1:2", "1:3"]);
    let patch = TopicPatch { sticky: Some(true), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    publish(&mut harness, &["a:4", "b:5"]);
    assert_eq!(deliveries(&mut harness), ["1:5"], "what was in flight by then counts");
    for offset in [3, 1, 2] {
        assert_eq!(deliveries(&mut harness), [""; 0]);
        harness.ack(1, "t", "g", offset);
    }
    assert_eq!(deliveries(&mut harness), ["1:4"]);
}

#[test]
fn so_many_wait_for_one_key_that_the_partition_waits_too() {
    let mut harness = Harness::with(BusLimits { sticky_waiting_max: 3, ..BusLimits::default() });
    join(&mut harness, 1, 8, true);
    publish(&mut harness, &["a:1", "a:2", "a:3", "a:4", "b:5"]);
    assert_eq!(deliveries(&mut harness), ["1:1"], "three wait for 1, so 5 waits as well");
    harness.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["1:2", "1:5"]);
}

/// Publishes events of key `hot`, then one of key `cold` and one without a key.
fn publish_behind(harness: &mut Harness, hot: u64) {
    (0..hot).for_each(|_| publish(harness, &["hot:1"]));
    publish(harness, &["cold:2", "3"]);
}

#[test]
fn an_unfinished_event_holds_up_its_key_and_nothing_else_however_many_wait_for_it() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 8, true);
    join(&mut harness, 2, 8, true);
    publish_behind(&mut harness, 5_000);
    assert_eq!(deliveries(&mut harness), ["1:1", "2:5001", "1:5002"]);
    // Events whose bodies were dropped from memory are read again, in their order.
    for offset in 1..5_000 {
        harness.ack(1, "t", "g", offset);
        assert_eq!(deliveries(&mut harness), [format!("1:{}", offset + 1)]);
    }
}

/// All events are in the store when the group joins: pages are read until a member has something to do.
#[test]
fn a_backlog_of_one_key_does_not_hide_what_lies_behind_it() {
    let mut harness = Harness::new();
    publish_behind(&mut harness, 3_000);
    join(&mut harness, 1, 8, true);
    assert_eq!(deliveries(&mut harness), ["1:1", "1:3001", "1:3002"]);
}

#[test]
fn so_far_beyond_the_commit_every_group_pauses() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 8, true);
    publish_behind(&mut harness, AHEAD_MAX);
    assert_eq!(deliveries(&mut harness), ["1:1"]);
    harness.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["1:2", format!("1:{}", AHEAD_MAX + 1).as_str()]);
}

#[test]
fn a_member_without_room_holds_up_its_keys_only_however_many_it_has() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 500, true);
    for n in 1..=400 {
        publish(&mut harness, &[&format!("k{n}:1")]);
        harness.ack(1, "t", "g", n);
    }
    harness.out();
    // From here on member 1, to which all these keys belong, has room for one event.
    let (from, max_inflight, ack_mode) = (Some(From::Earliest), Some(1), Some(AckMode::Individual));
    let subscribe = Subscribe { from, max_inflight, ack_mode, sticky: true, ..subscription("t", "g") };
    harness.request(1, Request::Subscribe(subscribe));
    join(&mut harness, 2, 8, true);
    (1..=400).for_each(|n| publish(&mut harness, &[&format!("k{n}:2")]));
    publish(&mut harness, &["new:3"]);
    assert_eq!(deliveries(&mut harness), ["1:401", "2:801"]);
    for offset in 401..800 {
        harness.ack(1, "t", "g", offset);
        assert_eq!(deliveries(&mut harness), [format!("1:{}", offset + 1)]);
    }
    harness.input(Input::Close { conn: ConnId(1) });
    assert_eq!(deliveries(&mut harness), ["2:800"]);
}

#[test]
fn beyond_the_bound_over_all_groups_a_partition_waits_for_each_waiting_event() {
    let limits = BusLimits { sticky_waiting_total_max: 2, ..BusLimits::default() };
    let mut harness = Harness::with(limits);
    join(&mut harness, 1, 8, true);
    publish(&mut harness, &["a:1", "a:2", "a:3", "a:4", "b:5"]);
    assert_eq!(deliveries(&mut harness), ["1:1"]);
    for offset in 1..=3 {
        harness.ack(1, "t", "g", offset);
    }
    assert_eq!(deliveries(&mut harness), ["1:2", "1:3", "1:5", "1:4"], "5 waits until two of three are sent");
}

#[test]
fn a_key_leaves_a_member_that_lets_its_event_time_out() {
    let mut harness = Harness::with(BusLimits { max_attempts: 2, ..BusLimits::default() });
    join(&mut harness, 1, 8, true);
    join(&mut harness, 2, 8, true);
    publish(&mut harness, &["a:1", "a:2"]);
    assert_eq!(deliveries(&mut harness), ["1:1"]);
    harness.pass(30_000);
    assert_eq!(deliveries(&mut harness), ["2:1"], "its second attempt is another member's");
    harness.ack(2, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["2:2"], "the key belongs to that one now");
    // Event 2 times out at member 2 and goes to member 1. When it times out there as well, its two attempts are used
    // up: the dead letter frees the key, and event 3 avoids member 1.
    harness.pass(30_000);
    assert_eq!(deliveries(&mut harness), ["1:2"]);
    publish(&mut harness, &["a:3"]);
    harness.pass(30_000);
    assert_eq!(deliveries(&mut harness), ["2:3"]);
    assert_eq!(harness.log("t.DLQ").len(), 1);
}

#[test]
fn a_key_comes_back_to_the_member_that_timed_out_if_nobody_else_has_room() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 8, true);
    join(&mut harness, 2, 1, true);
    publish(&mut harness, &["a:1", "b:2"]);
    assert_eq!(deliveries(&mut harness), ["1:1", "2:2"]);
    harness.pass(29_000);
    harness.ack(2, "t", "g", 2);
    publish(&mut harness, &["b:3"]);
    assert_eq!(deliveries(&mut harness), ["2:3"]);
    harness.pass(1_000);
    assert_eq!(deliveries(&mut harness), ["1:1"]);
}

#[test]
fn keys_beyond_the_bound_are_forgotten_when_nothing_of_them_is_in_flight() {
    let mut harness = Harness::with(BusLimits { sticky_keys_max: 2, ..BusLimits::default() });
    join(&mut harness, 1, 8, true);
    join(&mut harness, 2, 8, true);
    publish(&mut harness, &["a:1", "b:2"]);
    assert_eq!(deliveries(&mut harness), ["1:1", "2:2"]);
    harness.ack(2, "t", "g", 2);
    // Key b is idle and forgotten for key c; key a is not, because an event of it is in flight.
    publish(&mut harness, &["c:3", "b:4", "a:5"]);
    assert_eq!(deliveries(&mut harness), ["1:3", "2:4"]);
    harness.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["1:5"]);
}

#[test]
fn events_too_large_for_memory_keep_their_order() {
    let mut harness = Harness::with(BusLimits { open_event_bytes_max: 0, ..BusLimits::default() });
    join(&mut harness, 1, 8, true);
    join(&mut harness, 2, 8, true);
    publish(&mut harness, &["a:1", "a:2"]);
    assert_eq!(deliveries(&mut harness), ["1:1"]);
    harness.nack(1, "t", "g", 1, None);
    assert_eq!(deliveries(&mut harness), ["1:1"]);
    harness.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["1:2"]);
}

#[test]
fn a_group_that_becomes_sticky_knows_the_keys_of_large_events_in_flight() {
    let mut harness = Harness::with(BusLimits { open_event_bytes_max: 0, ..BusLimits::default() });
    join(&mut harness, 1, 1, false);
    publish(&mut harness, &["a:1", "a:2", "b:3"]);
    assert_eq!(deliveries(&mut harness), ["1:1"]);
    join(&mut harness, 2, 8, true);
    assert_eq!(deliveries(&mut harness), ["2:3"], "2 waits for 1");
    harness.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["1:2"]);
}

#[test]
fn an_event_acked_before_the_group_was_sticky_and_refused_then_keeps_its_place() {
    let mut harness = Harness::new();
    harness.open(1);
    let ack_mode = Some(AckMode::Cumulative);
    let first = Subscribe { from: Some(From::Earliest), ack_mode, ..subscription("t", "g") };
    harness.request(1, Request::Subscribe(first));
    publish(&mut harness, &["z:0", "a:1", "b:2"]);
    assert_eq!(deliveries(&mut harness), ["1:1", "1:2", "1:3"]);
    // Event 1 is refused and waits, so the commit does not pass event 2 when the ack of event 3 completes it.
    harness.nack(1, "t", "g", 1, Some(60_000));
    harness.ack(1, "t", "g", 3);
    join(&mut harness, 2, 8, true);
    harness.nack(1, "t", "g", 2, None);
    publish(&mut harness, &["a:4"]);
    let sent = deliveries(&mut harness);
    assert_eq!(sent.len(), 1, "one of the two events of a is in flight: {sent:?}");
    assert!(sent[0].ends_with(":2"), "and it is the lower one: {sent:?}");
}

#[test]
fn a_filter_set_while_bodies_are_not_in_memory_counts() {
    let limits = BusLimits { sticky_waiting_bodies_max: 0, ..BusLimits::default() };
    let mut harness = Harness::with(limits);
    join(&mut harness, 1, 8, true);
    publish(&mut harness, &["a:1", "a:2", "b:3"]);
    assert_eq!(deliveries(&mut harness), ["1:1", "1:3"]);
    harness.input(Input::Close { conn: ConnId(1) });
    harness.open(2);
    let filter = Filter { key: Some("b".to_owned()), ..Filter::default() };
    let subscribe = Subscribe { sticky: true, filter, ..subscription("t", "g") };
    harness.request(2, Request::Subscribe(subscribe));
    assert_eq!(deliveries(&mut harness), ["2:3"]);
    harness.ack(2, "t", "g", 3);
    assert_eq!(harness.committed("t", "g", 0), 3);
}

#[test]
fn a_seek_begins_every_key_anew() {
    let mut harness = Harness::new();
    join(&mut harness, 1, 8, true);
    publish(&mut harness, &["a:1", "a:2", "b:3"]);
    for offset in [1, 2, 3] {
        harness.ack(1, "t", "g", offset);
    }
    harness.out();
    let (topic, group) = (topic("t"), group("g"));
    harness.call(Request::SeekGroup { topic, group, partition: None, from: From::Earliest });
    assert_eq!(deliveries(&mut harness), ["1:1", "1:3"]);
    harness.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut harness), ["1:2"]);
}
