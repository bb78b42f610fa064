//! Groups: which member gets an event, what an ack completes, what happens without an ack.

mod harness;

use harness::{Harness, event, group, subscription, topic};
use millrace_bus::*;
use millrace_model::{AckMode, DeliverAt, Offset, Timestamp, TopicConfig, TopicPatch};

/// Topic `t` with `n` events, group `g` at the start, connection 1 subscribed with the given window.
fn reading(n: u64, window: u32) -> Harness {
    let mut harness = Harness::new();
    harness.open(1);
    for i in 1..=n {
        harness.publish("t", &i.to_string());
    }
    join(&mut harness, 1, window, AckMode::Cumulative);
    harness
}

fn join(harness: &mut Harness, conn: u64, window: u32, ack_mode: AckMode) {
    let from = Some(From::Earliest);
    let subscribe =
        Subscribe { from, max_inflight: Some(window), ack_mode: Some(ack_mode), ..subscription("t", "g") };
    harness.request(conn, Request::Subscribe(subscribe));
}

#[test]
fn nothing_is_answered_or_delivered_before_its_commit() {
    let mut harness = Harness::new();
    harness.open(1);
    join(&mut harness, 1, 8, AckMode::Cumulative);
    harness.expect(&["subscribed 0/1"]);
    harness.hold = true;
    harness.publish("t", "1");
    harness.expect(&[]);
    harness.release();
    harness.expect(&["published 0/1", "1<- g t/0/1 1"]);
}

#[test]
fn the_window_bounds_what_is_in_flight_and_an_ack_makes_room() {
    let mut harness = reading(5, 2);
    harness.out();
    assert_eq!(harness.committed("t", "g", 0), 0);
    harness.ack(1, "t", "g", 1);
    harness.expect(&["1<- g t/0/3 3"]);
    harness.ack(1, "t", "g", 3);
    harness.expect(&["1<- g t/0/4 4", "1<- g t/0/5 5"]);
    assert_eq!(harness.committed("t", "g", 0), 3);
}

#[test]
fn a_new_group_starts_at_the_tail_and_says_so_durably() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.publish("t", "1");
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    harness.expect(&["published 0/1", "subscribed 0/2"]);
    harness.restart();
    harness.open(1);
    harness
        .request(1, Request::Subscribe(Subscribe { from: Some(From::Earliest), ..subscription("t", "g") }));
    harness.expect(&["subscribed 0/2"]);
}

#[test]
fn members_compete_and_an_ack_never_completes_what_another_member_holds() {
    let mut harness = reading(0, 1);
    harness.open(2);
    join(&mut harness, 2, 1, AckMode::Cumulative);
    harness.out();
    harness.publish("t", "1");
    harness.publish("t", "2");
    harness.expect(&["published 0/1", "1<- g t/0/1 1", "published 0/2", "2<- g t/0/2 2"]);
    harness.ack(2, "t", "g", 2);
    assert_eq!(harness.committed("t", "g", 0), 0);
    harness.ack(1, "t", "g", 1);
    assert_eq!(harness.committed("t", "g", 0), 2);
}

#[test]
fn acks_ahead_of_the_commit_survive_a_restart() {
    let mut harness = Harness::new();
    harness.open(1);
    for i in 1..=4 {
        harness.publish("t", &i.to_string());
    }
    join(&mut harness, 1, 8, AckMode::Individual);
    harness.ack(1, "t", "g", 2);
    harness.ack(1, "t", "g", 4);
    harness.out();
    harness.restart();
    harness.open(1);
    join(&mut harness, 1, 8, AckMode::Individual);
    harness.expect(&["subscribed 0/1", "1<- g t/0/1 1", "1<- g t/0/3 3"]);
}

#[test]
fn a_confirmed_ack_is_answered_when_it_is_durable() {
    let mut harness = reading(1, 1);
    harness.out();
    harness.hold = true;
    harness.ack_in(1, "t", "g", 0, 1, true);
    harness.expect(&[]);
    harness.release();
    harness.expect(&["acked"]);
    harness.ack_in(1, "t", "g", 0, 1, true);
    harness.expect(&["acked"]);
}

#[test]
fn many_acks_share_one_commit() {
    let mut harness = reading(100, 100);
    harness.hold = true;
    let before = harness.commits;
    for offset in 1..=100 {
        harness.ack(1, "t", "g", offset);
    }
    harness.release();
    assert_eq!(harness.commits - before, 2);
    assert_eq!(harness.committed("t", "g", 0), 100);
}

#[test]
fn an_ack_of_something_never_delivered_has_no_effect() {
    let mut harness = reading(1, 1);
    harness.out();
    harness.ack(1, "t", "g", 7);
    harness.open(2);
    harness.ack(2, "t", "g", 1);
    harness.expect(&[
        "refused unknown_offset: offset 7 of partition 0 is not in flight for group g: it was never delivered to this group",
        "refused bad_group: this connection is not a member of group g on topic t: subscribe first",
    ]);
    assert_eq!(harness.committed("t", "g", 0), 0);
}

#[test]
fn a_lease_that_runs_out_goes_to_another_member() {
    let mut harness = reading(1, 1);
    harness.open(2);
    join(&mut harness, 2, 1, AckMode::Cumulative);
    harness.out();
    harness.pass(29_999);
    harness.expect(&[]);
    harness.pass(1);
    harness.expect(&["2<- g t/0/1 1 attempt 2"]);
    harness.ack(1, "t", "g", 1);
    assert_eq!(harness.committed("t", "g", 0), 1);
}

#[test]
fn what_a_lost_connection_held_is_free_at_once_and_only_the_lowest_was_an_attempt() {
    let mut harness = reading(3, 3);
    harness.open(2);
    join(&mut harness, 2, 3, AckMode::Cumulative);
    harness.out();
    harness.input(Input::Close { conn: ConnId(1) });
    harness.expect(&["2<- g t/0/1 1 attempt 2", "2<- g t/0/2 2", "2<- g t/0/3 3"]);
}

#[test]
fn what_a_connection_held_that_the_server_closes_has_had_no_attempt() {
    let mut harness = reading(3, 3);
    harness.open(2);
    join(&mut harness, 2, 3, AckMode::Cumulative);
    harness.out();
    harness.input(Input::Evict { conn: ConnId(1) });
    harness.expect(&["2<- g t/0/1 1", "2<- g t/0/2 2", "2<- g t/0/3 3"]);
}

#[test]
fn of_each_partition_the_lowest_event_of_a_lost_connection_was_an_attempt() {
    let mut harness = Harness::new();
    let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    for n in 1..=4 {
        harness.publish("t", &n.to_string());
    }
    harness.open(1);
    join(&mut harness, 1, 4, AckMode::Individual);
    harness.input(Input::Close { conn: ConnId(1) });
    harness.open(2);
    harness.out();
    join(&mut harness, 2, 4, AckMode::Individual);
    let again = harness.out();
    assert_eq!(again.iter().filter(|line| line.ends_with("attempt 2")).count(), 2, "{again:?}");
    assert_eq!(again.iter().filter(|line| line.starts_with("2<-")).count(), 4, "{again:?}");
}

#[test]
fn an_event_that_kills_its_consumer_takes_no_neighbours_with_it() {
    let mut harness = reading(32, 32);
    for life in 2..=6 {
        harness.input(Input::Close { conn: ConnId(life - 1) });
        harness.open(life);
        join(&mut harness, life, 32, AckMode::Cumulative);
    }
    let letters = &harness.log("t.DLQ");
    assert_eq!(letters.iter().map(|letter| letter.body.payload.as_str()).collect::<Vec<_>>(), ["1"]);
    harness.out();
    harness.ack(6, "t", "g", 32);
    assert_eq!(harness.committed("t", "g", 0), 32);
}

#[test]
fn who_unsubscribes_has_tried_nothing() {
    let mut harness = reading(2, 2);
    for _ in 0..6 {
        harness.request(1, Request::Unsubscribe { topic: topic("t"), group: group("g") });
        join(&mut harness, 1, 2, AckMode::Cumulative);
    }
    let out = harness.out();
    assert_eq!(out[out.len() - 2..], ["1<- g t/0/1 1", "1<- g t/0/2 2"], "{out:?}");
}

#[test]
fn a_lease_that_had_run_out_when_its_connection_was_lost_was_an_attempt() {
    let mut harness = reading(2, 2);
    harness.open(2);
    join(&mut harness, 2, 2, AckMode::Cumulative);
    harness.out();
    // The engine is told of the lost connection before it is told that time has passed.
    harness.now.mono = harness.now.mono + 30_000;
    harness.input(Input::Close { conn: ConnId(1) });
    harness.expect(&["2<- g t/0/1 1 attempt 2", "2<- g t/0/2 2 attempt 2"]);
}

#[test]
fn an_ack_completes_no_redelivery_that_came_after_its_event() {
    let mut harness = reading(2, 2);
    harness.out();
    harness.nack(1, "t", "g", 1, None);
    harness.expect(&["1<- g t/0/1 1 attempt 2"]);
    harness.ack(1, "t", "g", 2);
    assert_eq!(
        harness.committed("t", "g", 0),
        0,
        "1 came again after 2, so the ack of 2 says nothing about it"
    );
    harness.ack(1, "t", "g", 2);
    assert_eq!(harness.committed("t", "g", 0), 0, "nor does a second one");
    for attempt in 3..=5 {
        harness.nack(1, "t", "g", 1, None);
        harness.expect(&[&format!("1<- g t/0/1 1 attempt {attempt}")]);
    }
    harness.nack(1, "t", "g", 1, None);
    assert_eq!(harness.committed("t", "g", 0), 2);
    assert_eq!(harness.log("t.DLQ").len(), 1);
}

#[test]
fn an_ack_in_flight_while_its_event_times_out_completes_nothing_that_was_refused_meanwhile() {
    let mut harness = reading(2, 2);
    harness.pass(29_000);
    harness.nack(1, "t", "g", 1, None);
    harness.pass(2_000);
    assert_eq!(harness.out().last().map(String::as_str), Some("1<- g t/0/2 2 attempt 2"));
    harness.ack(1, "t", "g", 2);
    assert_eq!(
        harness.committed("t", "g", 0),
        0,
        "the ack may mean the first delivery of 2, before 1 was refused"
    );
}

/// The first event was not refused: it was delivered again because its lease expired, after the second one had been
/// delivered.
#[test]
fn an_ack_completes_nothing_that_came_again_after_its_event() {
    let mut harness = reading(1, 2);
    harness.pass(20_000);
    harness.publish("t", "2");
    harness.pass(11_000);
    assert_eq!(harness.out().last().map(String::as_str), Some("1<- g t/0/1 1 attempt 2"));
    harness.ack(1, "t", "g", 2);
    assert_eq!(harness.committed("t", "g", 0), 0, "the first event is being worked on");
    harness.ack(1, "t", "g", 1);
    assert_eq!(harness.committed("t", "g", 0), 2);
}

#[test]
fn a_slow_consumer_completes_all_it_was_sent_again_by_one_ack() {
    let mut harness = reading(3, 3);
    harness.pass(31_000);
    harness.out();
    harness.ack(1, "t", "g", 3);
    assert_eq!(harness.committed("t", "g", 0), 3);
}

#[test]
fn a_topic_and_the_server_say_what_an_ack_completes_where_the_client_does_not() {
    let unsaid = |harness: &mut Harness, conn| {
        harness.open(conn);
        let from = Some(From::Earliest);
        harness
            .request(conn, Request::Subscribe(Subscribe { from, ack_mode: None, ..subscription("t", "g") }));
        harness.out();
    };
    let mut harness = reading(3, 3);
    harness.input(Input::Close { conn: ConnId(1) });
    let patch = TopicPatch { ack_mode: Some(Some(AckMode::Individual)), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    unsaid(&mut harness, 2);
    harness.ack(2, "t", "g", 3);
    assert_eq!(harness.committed("t", "g", 0), 0, "the topic says individual");
    let patch = TopicPatch { ack_mode: Some(None), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    harness.ack(2, "t", "g", 2);
    assert_eq!(
        harness.committed("t", "g", 0),
        3,
        "the server's own default is cumulative, and a change holds at once"
    );

    let mut harness = Harness::with(BusLimits { ack_mode: AckMode::Individual, ..BusLimits::default() });
    harness.publish("t", "1");
    harness.publish("t", "2");
    unsaid(&mut harness, 1);
    harness.ack(1, "t", "g", 2);
    assert_eq!(harness.committed("t", "g", 0), 0, "the server says individual");
}

#[test]
fn a_nack_with_a_delay_waits_also_over_a_restart() {
    let mut harness = reading(1, 1);
    harness.out();
    harness.nack(1, "t", "g", 1, Some(5_000));
    harness.pass(1_000);
    harness.expect(&[]);
    harness.restart();
    harness.open(1);
    join(&mut harness, 1, 1, AckMode::Cumulative);
    harness.pass(4_000);
    harness.expect(&["subscribed 0/1"]);
    // Each clock is read in whole milliseconds, so a delay over a restart may take two more.
    harness.pass(2);
    harness.expect(&["1<- g t/0/1 1 attempt 2"]);
}

#[test]
fn a_nack_after_an_implicit_completion_requeues() {
    let mut harness = reading(3, 3);
    harness.open(2);
    harness.out();
    harness.nack(1, "t", "g", 1, Some(60_000));
    harness.ack(1, "t", "g", 3);
    harness.nack(1, "t", "g", 2, None);
    harness.expect(&["1<- g t/0/2 2 attempt 2"]);
    assert_eq!(harness.committed("t", "g", 0), 0);
    harness.nack(1, "t", "g", 1, None);
    harness.expect(&[
        "refused unknown_offset: offset 1 of partition 0 is not in flight for group g: its delivery has already ended",
    ]);
}

#[test]
fn after_its_last_attempt_an_event_is_a_dead_letter_and_done() {
    let mut harness = reading(1, 1);
    harness.out();
    let commits = harness.commits;
    for _ in 0..4 {
        harness.nack(1, "t", "g", 1, None);
    }
    assert_eq!(harness.out().last().map(String::as_str), Some("1<- g t/0/1 1 attempt 5"));
    harness.nack(1, "t", "g", 1, None);
    assert_eq!(harness.committed("t", "g", 0), 1);
    assert_eq!(harness.commits, commits + 1);
    let letter = harness.log("t.DLQ")[0].clone();
    let headers = letter.body.headers.as_ref().expect("headers").to_map();
    let original = harness.log("t")[0].id.to_string();
    for (name, value) in [
        ("x-dlq-topic", "t"),
        ("x-dlq-partition", "0"),
        ("x-dlq-offset", "1"),
        ("x-dlq-group", "g"),
        ("x-dlq-attempts", "5"),
        ("x-dlq-reason", "no"),
        ("x-dlq-id", &original),
        ("x-dlq-ts", "1000000"),
    ] {
        assert_eq!(headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(letter.body.payload.as_str(), "1");
}

#[test]
fn attempts_survive_restarts_and_dead_letters_come_across_them() {
    let mut harness = reading(1, 1);
    for _ in 0..4 {
        harness.nack(1, "t", "g", 1, None);
        harness.pass(1_000);
        harness.restart();
        harness.open(1);
        join(&mut harness, 1, 1, AckMode::Cumulative);
    }
    assert_eq!(harness.out().last().map(String::as_str), Some("1<- g t/0/1 1 attempt 5"));
    harness.nack(1, "t", "g", 1, None);
    harness.pass(1_000);
    harness.restart();
    harness.open(1);
    join(&mut harness, 1, 1, AckMode::Cumulative);
    assert_eq!(harness.committed("t", "g", 0), 1);
    assert_eq!(harness.log("t.DLQ").len(), 1);
}

#[test]
fn a_delivery_cut_short_by_a_crash_of_the_server_does_not_count() {
    let mut harness = reading(1, 1);
    for _ in 0..6 {
        harness.pass(1_000);
        harness.restart();
        harness.open(1);
        join(&mut harness, 1, 1, AckMode::Cumulative);
    }
    assert_eq!(harness.out().last().map(String::as_str), Some("1<- g t/0/1 1"));
}

#[test]
fn a_delivery_cut_short_by_the_servers_own_stop_does_not_count() {
    let mut harness = reading(2, 2);
    harness.nack(1, "t", "g", 2, None);
    harness.out();
    harness.input(Input::Stop);
    harness.expect(&["stopped"]);
    harness.restart();
    harness.open(1);
    join(&mut harness, 1, 2, AckMode::Cumulative);
    harness.expect(&["subscribed 0/1", "1<- g t/0/1 1", "1<- g t/0/2 2 attempt 2"]);
}

#[test]
fn a_seek_moves_a_group_unless_members_hold_events() {
    let mut harness = reading(3, 3);
    harness.out();
    let seek = |from| Request::SeekGroup { topic: topic("t"), group: group("g"), partition: None, from };
    harness.call(seek(From::Earliest));
    harness.expect(&[
        "refused group_busy: members of group g on topic t hold unacknowledged events: try again when they are done",
    ]);
    harness.ack(1, "t", "g", 3);
    harness.call(seek(From::Offset(Offset(2))));
    harness.expect(&["sought 0/2", "1<- g t/0/2 2", "1<- g t/0/3 3"]);
    assert_eq!(harness.committed("t", "g", 0), 1);
}

#[test]
fn a_group_is_forgotten_with_its_rows_once_its_members_have_left() {
    let mut harness = reading(3, 3);
    harness.out();
    let delete = || Request::DeleteGroup { topic: topic("t"), group: group("g") };
    harness.call(delete());
    harness.expect(&[
        "refused group_busy: group g on topic t has members (connections subscribed to it: 1): unsubscribe them first",
    ]);
    harness.ack(1, "t", "g", 1);
    harness.nack(1, "t", "g", 2, Some(1000));
    harness.input(Input::Close { conn: ConnId(1) });
    harness.out();
    harness.call(delete());
    harness.call(delete());
    let lines = harness.out();
    assert!(
        lines[0].starts_with("refused bad_group") || lines[1].starts_with("refused bad_group"),
        "{lines:?}"
    );
    assert!(lines.iter().any(|line| line.starts_with("GroupDeleted")), "{lines:?}");
    harness.restart();
    harness.open(1);
    harness.call(Request::ListGroups { topic: topic("t") });
    assert!(harness.out()[0].contains("groups: []"));
    join(&mut harness, 1, 3, AckMode::Cumulative);
    assert_eq!(harness.out()[..2], ["subscribed 0/1", "1<- g t/0/1 1"]);
}

#[test]
fn a_subscription_from_a_point_in_time_starts_at_the_first_event_not_older() {
    let mut harness = Harness::new();
    harness.open(1);
    for i in 1..=3 {
        harness.publish("t", &i.to_string());
        harness.pass(10);
    }
    harness.out();
    let from = Some(From::Timestamp(Timestamp(1_000_005)));
    harness.request(1, Request::Subscribe(Subscribe { from, ..subscription("t", "g") }));
    harness.expect(&["subscribed 0/2", "1<- g t/0/2 2", "1<- g t/0/3 3"]);
}

#[test]
fn a_reader_that_is_congested_gets_nothing_until_it_drains() {
    let mut harness = reading(0, 8);
    harness.input(Input::Congested { conn: ConnId(1) });
    harness.publish("t", "1");
    harness.expect(&["subscribed 0/1", "published 0/1"]);
    harness.input(Input::Drained { conn: ConnId(1) });
    harness.expect(&["1<- g t/0/1 1"]);
}

#[test]
fn credits_and_window_must_both_allow_a_delivery() {
    let mut harness = reading(0, 2);
    harness.request(1, Request::Flow { credits: 3 });
    for i in 1..=5 {
        harness.publish("t", &i.to_string());
    }
    harness.out();
    harness.ack(1, "t", "g", 2);
    harness.expect(&["1<- g t/0/3 3"]);
    harness.ack(1, "t", "g", 3);
    harness.expect(&[]);
    harness.request(1, Request::Flow { credits: 1 });
    harness.expect(&["flow", "1<- g t/0/4 4"]);
    harness.request(1, Request::Flow { credits: 5 });
    harness.request(1, Request::Flow { credits: 0 });
    harness.ack(1, "t", "g", 4);
    harness.expect(&["flow", "1<- g t/0/5 5", "flow"]);
}

#[test]
fn delivery_pauses_when_acks_run_too_far_ahead_of_the_commit() {
    let mut harness = Harness::new();
    harness.open(1);
    join(&mut harness, 1, 4, AckMode::Individual);
    for i in 1..=8_200 {
        harness.publish("t", &i.to_string());
        if i > 1 {
            harness.ack(1, "t", "g", i);
        }
    }
    let delivered = harness.out().iter().filter(|line| line.starts_with("1<-")).count();
    assert_eq!(delivered, 8_192);
    harness.ack(1, "t", "g", 1);
    harness.expect(&[
        "1<- g t/0/8193 8193",
        "1<- g t/0/8194 8194",
        "1<- g t/0/8195 8195",
        "1<- g t/0/8196 8196",
    ]);
    assert_eq!(harness.committed("t", "g", 0), 8_192);
}

#[test]
fn a_failed_store_refuses_everybody_who_waits_and_everything_that_writes() {
    let mut harness = reading(1, 1);
    harness.out();
    harness.hold = true;
    harness.publish("t", "2");
    harness.ack_in(1, "t", "g", 0, 1, true);
    harness.input(Input::StorageFailed { reason: "disk full".to_owned() });
    harness.publish("t", "3");
    let refused = "refused storage_failed: the store has failed and nothing is written any more (disk full): the server ends, send again when it is back";
    harness.expect(&[refused, refused, refused]);
}

#[test]
fn without_room_what_adds_is_refused_and_the_rest_goes_on() {
    let mut harness = reading(2, 2);
    harness.out();
    harness.input(Input::NoSpace { reason: Some("9 bytes free".to_owned()) });
    harness.publish("t", "3");
    let later = Publish { topic: topic("t"), event: event("4"), deliver_at: Some(DeliverAt::AfterMs(1000)) };
    harness.call(Request::Publish(later));
    harness.call(Request::PublishBatch(PublishBatch { topic: topic("t"), events: vec![event("5")] }));
    let refused = "refused storage_failed: 9 bytes free: nothing is published until there is room, send again later; acks and reads go on";
    harness.expect(&[refused, refused, refused]);
    harness.ack_in(1, "t", "g", 0, 1, true);
    harness.expect(&["acked"]);
    harness.nack(1, "t", "g", 2, None);
    assert_eq!(harness.out().len(), 1, "it is delivered again");
    harness.input(Input::NoSpace { reason: None });
    harness.publish("t", "3");
    assert_eq!(harness.out()[0], "published 0/3");
}

#[test]
fn a_flush_after_a_restart_keeps_acks_ahead_that_were_read_again_but_not_passed() {
    let mut harness = Harness::new();
    harness.open(1);
    for i in 1..=6 {
        harness.publish("t", &i.to_string());
    }
    join(&mut harness, 1, 8, AckMode::Individual);
    for offset in [2, 6] {
        harness.ack(1, "t", "g", offset);
    }
    harness.restart();
    harness.open(1);
    // A window of one: offset 6 is read again (and known done) long before it could be sent.
    join(&mut harness, 1, 1, AckMode::Individual);
    harness.ack(1, "t", "g", 1);
    harness.restart();
    harness.out();
    harness.open(1);
    join(&mut harness, 1, 8, AckMode::Individual);
    let offsets: Vec<String> = harness.out().iter().filter(|line| line.starts_with("1<-")).cloned().collect();
    assert_eq!(offsets.len(), 3, "{offsets:?}");
}

#[test]
fn an_event_acked_and_refused_in_turn_is_a_dead_letter_in_the_end() {
    let mut harness = reading(3, 3);
    harness.nack(1, "t", "g", 1, Some(3_600_000));
    for _ in 0..5 {
        harness.ack(1, "t", "g", 3);
        harness.nack(1, "t", "g", 2, None);
    }
    assert_eq!(harness.log("t.DLQ").len(), 1);
}

#[test]
fn a_nack_of_what_another_member_acked_or_of_a_dead_letter_changes_nothing() {
    let mut harness = reading(0, 1);
    harness.open(2);
    join(&mut harness, 2, 2, AckMode::Cumulative);
    for i in 1..=2 {
        harness.publish("t", &i.to_string());
    }
    harness.ack(2, "t", "g", 2);
    harness.out();
    harness.nack(1, "t", "g", 2, None);
    harness.expect(&[
        "refused unknown_offset: offset 2 of partition 0 is not in flight for group g: it is already done",
    ]);
}
