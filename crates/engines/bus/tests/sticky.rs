//! Sticky groups: order per key with many members.

mod desk;

use desk::{Desk, event, group, keyed, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

fn join(desk: &mut Desk, conn: u64, window: u32, sticky: bool) {
    desk.open(conn);
    let (from, max_inflight) = (Some(From::Earliest), Some(window));
    let ack_mode = Some(AckMode::Individual);
    let subscribe = Subscribe { from, max_inflight, ack_mode, sticky, ..subscription("t", "g") };
    desk.request(conn, Request::Subscribe(subscribe));
}

/// Publishes events given as `key:payload`; a text without a colon is an event without a key.
fn publish(desk: &mut Desk, events: &[&str]) {
    for text in events {
        desk.publish_event("t", text.split_once(':').map_or_else(|| event(text), |(k, p)| keyed(k, p)));
    }
}

/// Returns the deliveries as `connection:offset`.
fn deliveries(desk: &mut Desk) -> Vec<String> {
    let out = desk.out();
    let sent = out.iter().filter_map(|line| {
        let (conn, rest) = line.split_once("<- g t/0/")?;
        Some(format!("{conn}:{}", rest.split(' ').next()?))
    });
    sent.collect()
}

#[test]
fn one_event_of_a_key_is_in_flight_and_the_next_goes_to_the_same_member() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 8, true);
    join(&mut desk, 2, 8, true);
    publish(&mut desk, &["a:1", "a:2", "b:3", "a:4", "b:5"]);
    assert_eq!(deliveries(&mut desk), ["1:1", "2:3"]);
    desk.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["1:2"]);
    desk.ack(2, "t", "g", 3);
    assert_eq!(deliveries(&mut desk), ["2:5"]);
    desk.ack(1, "t", "g", 2);
    assert_eq!(deliveries(&mut desk), ["1:4"]);
    assert_eq!(desk.committed("t", "g", 0), 3);
}

#[test]
fn a_refused_event_holds_up_its_key_and_no_other() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 8, true);
    join(&mut desk, 2, 8, true);
    publish(&mut desk, &["a:1", "a:2", "b:3"]);
    desk.out();
    desk.nack(1, "t", "g", 1, Some(5_000));
    desk.ack(2, "t", "g", 3);
    publish(&mut desk, &["b:4"]);
    assert_eq!(deliveries(&mut desk), ["2:4"], "2 waits for 1, which waits for its delay");
    desk.pass(5_001);
    assert_eq!(deliveries(&mut desk), ["1:1"], "to the member of its key, although it refused it");
    desk.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["1:2"]);
}

#[test]
fn the_keys_of_a_lost_member_go_to_the_others_in_their_order() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 8, true);
    join(&mut desk, 2, 8, true);
    publish(&mut desk, &["a:1", "a:2", "b:3"]);
    desk.out();
    desk.input(Input::Close { conn: ConnId(1) });
    assert_eq!(deliveries(&mut desk), ["2:1"]);
    desk.ack(2, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["2:2"]);
    // A member that comes later takes no key away from one that lives.
    join(&mut desk, 3, 8, true);
    desk.ack(2, "t", "g", 2);
    publish(&mut desk, &["a:4", "c:5"]);
    assert_eq!(deliveries(&mut desk), ["2:4", "3:5"]);
}

#[test]
fn events_without_a_key_go_round_and_wait_for_nobody() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 8, true);
    join(&mut desk, 2, 8, true);
    publish(&mut desk, &["1", "2", "3", "4"]);
    assert_eq!(deliveries(&mut desk), ["1:1", "2:2", "1:3", "2:4"]);
}

#[test]
fn a_member_without_room_holds_up_its_keys_only() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 1, true);
    join(&mut desk, 2, 8, true);
    publish(&mut desk, &["a:1", "b:2", "c:3"]);
    assert_eq!(deliveries(&mut desk), ["1:1", "2:2", "2:3"]);
    desk.ack(1, "t", "g", 1);
    publish(&mut desk, &["d:4", "a:5", "b:6"]);
    // Member 1 takes key d. Key a belongs to it as well, so event 5 waits for room there although member 2 has some.
    assert_eq!(deliveries(&mut desk), ["1:4"]);
    desk.ack(2, "t", "g", 2);
    assert_eq!(deliveries(&mut desk), ["2:6"]);
    desk.ack(1, "t", "g", 4);
    assert_eq!(deliveries(&mut desk), ["1:5"]);
}

#[test]
fn an_event_that_waits_for_its_key_cannot_be_acked_or_refused() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 8, true);
    publish(&mut desk, &["a:1", "a:2"]);
    desk.out();
    desk.ack(1, "t", "g", 2);
    let out = desk.out();
    assert!(out.iter().any(|line| line.contains("unknown_offset")), "{out:?}");
    desk.nack(1, "t", "g", 2, None);
    let out = desk.out();
    assert!(out.iter().any(|line| line.contains("unknown_offset")), "{out:?}");
    desk.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["1:2"]);
}

#[test]
fn a_dead_letter_frees_its_key() {
    let mut desk = Desk::with(BusLimits { max_attempts: 1, ..BusLimits::default() });
    join(&mut desk, 1, 8, true);
    publish(&mut desk, &["a:1", "a:2"]);
    desk.out();
    desk.nack(1, "t", "g", 1, None);
    assert_eq!(deliveries(&mut desk), ["1:2"]);
    assert_eq!(desk.logs[&topic("t.DLQ").stream(Partition(0))].len(), 1);
}

#[test]
fn a_topic_may_be_sticky_for_all_its_groups_and_stop_being_so() {
    let mut desk = Desk::new();
    let config = TopicConfig { sticky: true, ..TopicConfig::default() };
    desk.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    join(&mut desk, 1, 8, false);
    publish(&mut desk, &["a:1", "a:2", "a:3"]);
    assert_eq!(deliveries(&mut desk), ["1:1"]);
    desk.restart();
    join(&mut desk, 1, 8, false);
    assert_eq!(deliveries(&mut desk), ["1:1"], "a restart changes nothing");
    let patch = TopicPatch { sticky: Some(false), ..TopicPatch::default() };
    desk.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    assert_eq!(deliveries(&mut desk), ["1:2", "1:3"]);
    let patch = TopicPatch { sticky: Some(true), ..TopicPatch::default() };
    desk.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    publish(&mut desk, &["a:4", "b:5"]);
    assert_eq!(deliveries(&mut desk), ["1:5"], "what was in flight by then counts");
    for offset in [3, 1, 2] {
        assert_eq!(deliveries(&mut desk), [""; 0]);
        desk.ack(1, "t", "g", offset);
    }
    assert_eq!(deliveries(&mut desk), ["1:4"]);
}

#[test]
fn so_many_wait_for_one_key_that_the_partition_waits_too() {
    let mut desk = Desk::with(BusLimits { sticky_waiting_max: 3, ..BusLimits::default() });
    join(&mut desk, 1, 8, true);
    publish(&mut desk, &["a:1", "a:2", "a:3", "a:4", "b:5"]);
    assert_eq!(deliveries(&mut desk), ["1:1"], "three wait for 1, so 5 waits as well");
    desk.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["1:2", "1:5"]);
}

/// Publishes events of key `hot`, then one of key `cold` and one without a key.
fn publish_behind(desk: &mut Desk, hot: u64) {
    (0..hot).for_each(|_| publish(desk, &["hot:1"]));
    publish(desk, &["cold:2", "3"]);
}

#[test]
fn an_unfinished_event_holds_up_its_key_and_nothing_else_however_many_wait_for_it() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 8, true);
    join(&mut desk, 2, 8, true);
    publish_behind(&mut desk, 5_000);
    assert_eq!(deliveries(&mut desk), ["1:1", "2:5001", "1:5002"]);
    // Events whose bodies were dropped from memory are read again, in their order.
    for offset in 1..5_000 {
        desk.ack(1, "t", "g", offset);
        assert_eq!(deliveries(&mut desk), [format!("1:{}", offset + 1)]);
    }
}

/// All events are in the store when the group joins: pages are read until a member has something to do.
#[test]
fn a_backlog_of_one_key_does_not_hide_what_lies_behind_it() {
    let mut desk = Desk::new();
    publish_behind(&mut desk, 3_000);
    join(&mut desk, 1, 8, true);
    assert_eq!(deliveries(&mut desk), ["1:1", "1:3001", "1:3002"]);
}

#[test]
fn so_far_beyond_the_commit_every_group_pauses() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 8, true);
    publish_behind(&mut desk, AHEAD_MAX);
    assert_eq!(deliveries(&mut desk), ["1:1"]);
    desk.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["1:2", format!("1:{}", AHEAD_MAX + 1).as_str()]);
}

#[test]
fn a_member_without_room_holds_up_its_keys_only_however_many_it_has() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 500, true);
    for n in 1..=400 {
        publish(&mut desk, &[&format!("k{n}:1")]);
        desk.ack(1, "t", "g", n);
    }
    desk.out();
    // From here on member 1, to which all these keys belong, has room for one event.
    let (from, max_inflight, ack_mode) = (Some(From::Earliest), Some(1), Some(AckMode::Individual));
    let subscribe = Subscribe { from, max_inflight, ack_mode, sticky: true, ..subscription("t", "g") };
    desk.request(1, Request::Subscribe(subscribe));
    join(&mut desk, 2, 8, true);
    (1..=400).for_each(|n| publish(&mut desk, &[&format!("k{n}:2")]));
    publish(&mut desk, &["new:3"]);
    assert_eq!(deliveries(&mut desk), ["1:401", "2:801"]);
    for offset in 401..800 {
        desk.ack(1, "t", "g", offset);
        assert_eq!(deliveries(&mut desk), [format!("1:{}", offset + 1)]);
    }
    desk.input(Input::Close { conn: ConnId(1) });
    assert_eq!(deliveries(&mut desk), ["2:800"]);
}

#[test]
fn beyond_the_bound_over_all_groups_a_partition_waits_for_each_waiting_event() {
    let limits = BusLimits { sticky_waiting_total_max: 2, ..BusLimits::default() };
    let mut desk = Desk::with(limits);
    join(&mut desk, 1, 8, true);
    publish(&mut desk, &["a:1", "a:2", "a:3", "a:4", "b:5"]);
    assert_eq!(deliveries(&mut desk), ["1:1"]);
    for offset in 1..=3 {
        desk.ack(1, "t", "g", offset);
    }
    assert_eq!(deliveries(&mut desk), ["1:2", "1:3", "1:5", "1:4"], "5 waits until two of three are sent");
}

#[test]
fn a_key_leaves_a_member_that_lets_its_event_time_out() {
    let mut desk = Desk::with(BusLimits { max_attempts: 2, ..BusLimits::default() });
    join(&mut desk, 1, 8, true);
    join(&mut desk, 2, 8, true);
    publish(&mut desk, &["a:1", "a:2"]);
    assert_eq!(deliveries(&mut desk), ["1:1"]);
    desk.pass(30_000);
    assert_eq!(deliveries(&mut desk), ["2:1"], "its second attempt is another member's");
    desk.ack(2, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["2:2"], "the key belongs to that one now");
    // Event 2 times out at member 2 and goes to member 1. When it times out there as well, its two attempts are used
    // up: the dead letter frees the key, and event 3 avoids member 1.
    desk.pass(30_000);
    assert_eq!(deliveries(&mut desk), ["1:2"]);
    publish(&mut desk, &["a:3"]);
    desk.pass(30_000);
    assert_eq!(deliveries(&mut desk), ["2:3"]);
    assert_eq!(desk.logs[&topic("t.DLQ").stream(Partition(0))].len(), 1);
}

#[test]
fn a_key_comes_back_to_the_member_that_timed_out_if_nobody_else_has_room() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 8, true);
    join(&mut desk, 2, 1, true);
    publish(&mut desk, &["a:1", "b:2"]);
    assert_eq!(deliveries(&mut desk), ["1:1", "2:2"]);
    desk.pass(29_000);
    desk.ack(2, "t", "g", 2);
    publish(&mut desk, &["b:3"]);
    assert_eq!(deliveries(&mut desk), ["2:3"]);
    desk.pass(1_000);
    assert_eq!(deliveries(&mut desk), ["1:1"]);
}

#[test]
fn keys_beyond_the_bound_are_forgotten_when_nothing_of_them_is_in_flight() {
    let mut desk = Desk::with(BusLimits { sticky_keys_max: 2, ..BusLimits::default() });
    join(&mut desk, 1, 8, true);
    join(&mut desk, 2, 8, true);
    publish(&mut desk, &["a:1", "b:2"]);
    assert_eq!(deliveries(&mut desk), ["1:1", "2:2"]);
    desk.ack(2, "t", "g", 2);
    // Key b is idle and forgotten for key c; key a is not, because an event of it is in flight.
    publish(&mut desk, &["c:3", "b:4", "a:5"]);
    assert_eq!(deliveries(&mut desk), ["1:3", "2:4"]);
    desk.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["1:5"]);
}

#[test]
fn events_too_large_for_memory_keep_their_order() {
    let mut desk = Desk::with(BusLimits { open_event_bytes_max: 0, ..BusLimits::default() });
    join(&mut desk, 1, 8, true);
    join(&mut desk, 2, 8, true);
    publish(&mut desk, &["a:1", "a:2"]);
    assert_eq!(deliveries(&mut desk), ["1:1"]);
    desk.nack(1, "t", "g", 1, None);
    assert_eq!(deliveries(&mut desk), ["1:1"]);
    desk.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["1:2"]);
}

#[test]
fn a_group_that_becomes_sticky_knows_the_keys_of_large_events_in_flight() {
    let mut desk = Desk::with(BusLimits { open_event_bytes_max: 0, ..BusLimits::default() });
    join(&mut desk, 1, 1, false);
    publish(&mut desk, &["a:1", "a:2", "b:3"]);
    assert_eq!(deliveries(&mut desk), ["1:1"]);
    join(&mut desk, 2, 8, true);
    assert_eq!(deliveries(&mut desk), ["2:3"], "2 waits for 1");
    desk.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["1:2"]);
}

#[test]
fn an_event_acked_before_the_group_was_sticky_and_refused_then_keeps_its_place() {
    let mut desk = Desk::new();
    desk.open(1);
    let ack_mode = Some(AckMode::Cumulative);
    let first = Subscribe { from: Some(From::Earliest), ack_mode, ..subscription("t", "g") };
    desk.request(1, Request::Subscribe(first));
    publish(&mut desk, &["z:0", "a:1", "b:2"]);
    assert_eq!(deliveries(&mut desk), ["1:1", "1:2", "1:3"]);
    // Event 1 is refused and waits, so the commit does not pass event 2 when the ack of event 3 completes it.
    desk.nack(1, "t", "g", 1, Some(60_000));
    desk.ack(1, "t", "g", 3);
    join(&mut desk, 2, 8, true);
    desk.nack(1, "t", "g", 2, None);
    publish(&mut desk, &["a:4"]);
    let sent = deliveries(&mut desk);
    assert_eq!(sent.len(), 1, "one of the two events of a is in flight: {sent:?}");
    assert!(sent[0].ends_with(":2"), "and it is the lower one: {sent:?}");
}

#[test]
fn a_filter_set_while_bodies_are_not_in_memory_counts() {
    let limits = BusLimits { sticky_waiting_bodies_max: 0, ..BusLimits::default() };
    let mut desk = Desk::with(limits);
    join(&mut desk, 1, 8, true);
    publish(&mut desk, &["a:1", "a:2", "b:3"]);
    assert_eq!(deliveries(&mut desk), ["1:1", "1:3"]);
    desk.input(Input::Close { conn: ConnId(1) });
    desk.open(2);
    let filter = Filter { key: Some("b".to_owned()), ..Filter::default() };
    let subscribe = Subscribe { sticky: true, filter, ..subscription("t", "g") };
    desk.request(2, Request::Subscribe(subscribe));
    assert_eq!(deliveries(&mut desk), ["2:3"]);
    desk.ack(2, "t", "g", 3);
    assert_eq!(desk.committed("t", "g", 0), 3);
}

#[test]
fn a_seek_begins_every_key_anew() {
    let mut desk = Desk::new();
    join(&mut desk, 1, 8, true);
    publish(&mut desk, &["a:1", "a:2", "b:3"]);
    for offset in [1, 2, 3] {
        desk.ack(1, "t", "g", offset);
    }
    desk.out();
    let (topic, group) = (topic("t"), group("g"));
    desk.call(Request::SeekGroup { topic, group, partition: None, from: From::Earliest });
    assert_eq!(deliveries(&mut desk), ["1:1", "1:3"]);
    desk.ack(1, "t", "g", 1);
    assert_eq!(deliveries(&mut desk), ["1:2"]);
}
