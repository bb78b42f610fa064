//! Groups: which member gets an event, what an ack completes, what happens without an ack.

mod desk;

use desk::{Desk, event, group, subscription, topic};
use millrace_bus::*;
use millrace_model::{AckMode, DeliverAt, Offset, Partition, Timestamp, TopicConfig, TopicPatch};

/// Topic `t` with `n` events, group `g` at the start, connection 1 subscribed with the given window.
fn reading(n: u64, window: u32) -> Desk {
    let mut desk = Desk::new();
    desk.open(1);
    for i in 1..=n {
        desk.publish("t", &i.to_string());
    }
    join(&mut desk, 1, window, AckMode::Cumulative);
    desk
}

fn join(desk: &mut Desk, conn: u64, window: u32, ack_mode: AckMode) {
    let from = Some(From::Earliest);
    let subscribe =
        Subscribe { from, max_inflight: Some(window), ack_mode: Some(ack_mode), ..subscription("t", "g") };
    desk.request(conn, Request::Subscribe(subscribe));
}

#[test]
fn nothing_is_answered_or_delivered_before_its_commit() {
    let mut desk = Desk::new();
    desk.open(1);
    join(&mut desk, 1, 8, AckMode::Cumulative);
    desk.expect(&["subscribed 0/1"]);
    desk.hold = true;
    desk.publish("t", "1");
    desk.expect(&[]);
    desk.release();
    desk.expect(&["published 0/1", "1<- g t/0/1 1"]);
}

#[test]
fn the_window_bounds_what_is_in_flight_and_an_ack_makes_room() {
    let mut desk = reading(5, 2);
    desk.out();
    assert_eq!(desk.committed("t", "g", 0), 0);
    desk.ack(1, "t", "g", 1);
    desk.expect(&["1<- g t/0/3 3"]);
    desk.ack(1, "t", "g", 3);
    desk.expect(&["1<- g t/0/4 4", "1<- g t/0/5 5"]);
    assert_eq!(desk.committed("t", "g", 0), 3);
}

#[test]
fn a_new_group_starts_at_the_tail_and_says_so_durably() {
    let mut desk = Desk::new();
    desk.open(1);
    desk.publish("t", "1");
    desk.request(1, Request::Subscribe(subscription("t", "g")));
    desk.expect(&["published 0/1", "subscribed 0/2"]);
    desk.restart();
    desk.open(1);
    desk.request(1, Request::Subscribe(Subscribe { from: Some(From::Earliest), ..subscription("t", "g") }));
    desk.expect(&["subscribed 0/2"]);
}

#[test]
fn members_compete_and_an_ack_never_completes_what_another_member_holds() {
    let mut desk = reading(0, 1);
    desk.open(2);
    join(&mut desk, 2, 1, AckMode::Cumulative);
    desk.out();
    desk.publish("t", "1");
    desk.publish("t", "2");
    desk.expect(&["published 0/1", "1<- g t/0/1 1", "published 0/2", "2<- g t/0/2 2"]);
    desk.ack(2, "t", "g", 2);
    assert_eq!(desk.committed("t", "g", 0), 0);
    desk.ack(1, "t", "g", 1);
    assert_eq!(desk.committed("t", "g", 0), 2);
}

#[test]
fn acks_ahead_of_the_commit_survive_a_restart() {
    let mut desk = Desk::new();
    desk.open(1);
    for i in 1..=4 {
        desk.publish("t", &i.to_string());
    }
    join(&mut desk, 1, 8, AckMode::Individual);
    desk.ack(1, "t", "g", 2);
    desk.ack(1, "t", "g", 4);
    desk.out();
    desk.restart();
    desk.open(1);
    join(&mut desk, 1, 8, AckMode::Individual);
    desk.expect(&["subscribed 0/1", "1<- g t/0/1 1", "1<- g t/0/3 3"]);
}

#[test]
fn a_confirmed_ack_is_answered_when_it_is_durable() {
    let mut desk = reading(1, 1);
    desk.out();
    desk.hold = true;
    desk.ack_in(1, "t", "g", 0, 1, true);
    desk.expect(&[]);
    desk.release();
    desk.expect(&["acked"]);
    desk.ack_in(1, "t", "g", 0, 1, true);
    desk.expect(&["acked"]);
}

#[test]
fn many_acks_share_one_commit() {
    let mut desk = reading(100, 100);
    desk.hold = true;
    let before = desk.commits;
    for offset in 1..=100 {
        desk.ack(1, "t", "g", offset);
    }
    desk.release();
    assert_eq!(desk.commits - before, 2);
    assert_eq!(desk.committed("t", "g", 0), 100);
}

#[test]
fn an_ack_of_something_never_delivered_has_no_effect() {
    let mut desk = reading(1, 1);
    desk.out();
    desk.ack(1, "t", "g", 7);
    desk.open(2);
    desk.ack(2, "t", "g", 1);
    desk.expect(&[
        "refused unknown_offset: offset 7 of partition 0 is not in flight for group g: it was never delivered to this group",
        "refused bad_group: this connection is not a member of group g on topic t: subscribe first",
    ]);
    assert_eq!(desk.committed("t", "g", 0), 0);
}

#[test]
fn a_lease_that_runs_out_goes_to_another_member() {
    let mut desk = reading(1, 1);
    desk.open(2);
    join(&mut desk, 2, 1, AckMode::Cumulative);
    desk.out();
    desk.pass(29_999);
    desk.expect(&[]);
    desk.pass(1);
    desk.expect(&["2<- g t/0/1 1 attempt 2"]);
    desk.ack(1, "t", "g", 1);
    assert_eq!(desk.committed("t", "g", 0), 1);
}

#[test]
fn what_a_lost_connection_held_is_free_at_once_and_only_the_lowest_was_an_attempt() {
    let mut desk = reading(3, 3);
    desk.open(2);
    join(&mut desk, 2, 3, AckMode::Cumulative);
    desk.out();
    desk.input(Input::Close { conn: ConnId(1) });
    desk.expect(&["2<- g t/0/1 1 attempt 2", "2<- g t/0/2 2", "2<- g t/0/3 3"]);
}

#[test]
fn what_a_connection_held_that_the_server_closes_has_had_no_attempt() {
    let mut desk = reading(3, 3);
    desk.open(2);
    join(&mut desk, 2, 3, AckMode::Cumulative);
    desk.out();
    desk.input(Input::Evict { conn: ConnId(1) });
    desk.expect(&["2<- g t/0/1 1", "2<- g t/0/2 2", "2<- g t/0/3 3"]);
}

#[test]
fn of_each_partition_the_lowest_event_of_a_lost_connection_was_an_attempt() {
    let mut desk = Desk::new();
    let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
    desk.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    for n in 1..=4 {
        desk.publish("t", &n.to_string());
    }
    desk.open(1);
    join(&mut desk, 1, 4, AckMode::Individual);
    desk.input(Input::Close { conn: ConnId(1) });
    desk.open(2);
    desk.out();
    join(&mut desk, 2, 4, AckMode::Individual);
    let again = desk.out();
    assert_eq!(again.iter().filter(|line| line.ends_with("attempt 2")).count(), 2, "{again:?}");
    assert_eq!(again.iter().filter(|line| line.starts_with("2<-")).count(), 4, "{again:?}");
}

#[test]
fn an_event_that_kills_its_consumer_takes_no_neighbours_with_it() {
    let mut desk = reading(32, 32);
    for life in 2..=6 {
        desk.input(Input::Close { conn: ConnId(life - 1) });
        desk.open(life);
        join(&mut desk, life, 32, AckMode::Cumulative);
    }
    let letters = &desk.logs[&topic("t.DLQ").stream(Partition(0))];
    assert_eq!(letters.iter().map(|letter| letter.body.payload.as_str()).collect::<Vec<_>>(), ["1"]);
    desk.out();
    desk.ack(6, "t", "g", 32);
    assert_eq!(desk.committed("t", "g", 0), 32);
}

#[test]
fn who_unsubscribes_has_tried_nothing() {
    let mut desk = reading(2, 2);
    for _ in 0..6 {
        desk.request(1, Request::Unsubscribe { topic: topic("t"), group: group("g") });
        join(&mut desk, 1, 2, AckMode::Cumulative);
    }
    let out = desk.out();
    assert_eq!(out[out.len() - 2..], ["1<- g t/0/1 1", "1<- g t/0/2 2"], "{out:?}");
}

#[test]
fn a_lease_that_had_run_out_when_its_connection_was_lost_was_an_attempt() {
    let mut desk = reading(2, 2);
    desk.open(2);
    join(&mut desk, 2, 2, AckMode::Cumulative);
    desk.out();
    // The engine is told of the lost connection before it is told that time has passed.
    desk.now.mono = desk.now.mono + 30_000;
    desk.input(Input::Close { conn: ConnId(1) });
    desk.expect(&["2<- g t/0/1 1 attempt 2", "2<- g t/0/2 2 attempt 2"]);
}

#[test]
fn an_ack_completes_no_redelivery_that_came_after_its_event() {
    let mut desk = reading(2, 2);
    desk.out();
    desk.nack(1, "t", "g", 1, None);
    desk.expect(&["1<- g t/0/1 1 attempt 2"]);
    desk.ack(1, "t", "g", 2);
    assert_eq!(desk.committed("t", "g", 0), 0, "1 came again after 2, so the ack of 2 says nothing about it");
    desk.ack(1, "t", "g", 2);
    assert_eq!(desk.committed("t", "g", 0), 0, "nor does a second one");
    for attempt in 3..=5 {
        desk.nack(1, "t", "g", 1, None);
        desk.expect(&[&format!("1<- g t/0/1 1 attempt {attempt}")]);
    }
    desk.nack(1, "t", "g", 1, None);
    assert_eq!(desk.committed("t", "g", 0), 2);
    assert_eq!(desk.logs[&topic("t.DLQ").stream(Partition(0))].len(), 1);
}

#[test]
fn an_ack_in_flight_while_its_event_times_out_completes_nothing_that_was_refused_meanwhile() {
    let mut desk = reading(2, 2);
    desk.pass(29_000);
    desk.nack(1, "t", "g", 1, None);
    desk.pass(2_000);
    assert_eq!(desk.out().last().map(String::as_str), Some("1<- g t/0/2 2 attempt 2"));
    desk.ack(1, "t", "g", 2);
    assert_eq!(
        desk.committed("t", "g", 0),
        0,
        "the ack may mean the first delivery of 2, before 1 was refused"
    );
}

/// The first event was not refused: it was delivered again because its lease expired, after the second one had been
/// delivered.
#[test]
fn an_ack_completes_nothing_that_came_again_after_its_event() {
    let mut desk = reading(1, 2);
    desk.pass(20_000);
    desk.publish("t", "2");
    desk.pass(11_000);
    assert_eq!(desk.out().last().map(String::as_str), Some("1<- g t/0/1 1 attempt 2"));
    desk.ack(1, "t", "g", 2);
    assert_eq!(desk.committed("t", "g", 0), 0, "the first event is being worked on");
    desk.ack(1, "t", "g", 1);
    assert_eq!(desk.committed("t", "g", 0), 2);
}

#[test]
fn a_slow_consumer_completes_all_it_was_sent_again_by_one_ack() {
    let mut desk = reading(3, 3);
    desk.pass(31_000);
    desk.out();
    desk.ack(1, "t", "g", 3);
    assert_eq!(desk.committed("t", "g", 0), 3);
}

#[test]
fn a_topic_and_the_server_say_what_an_ack_completes_where_the_client_does_not() {
    let unsaid = |desk: &mut Desk, conn| {
        desk.open(conn);
        let from = Some(From::Earliest);
        desk.request(conn, Request::Subscribe(Subscribe { from, ack_mode: None, ..subscription("t", "g") }));
        desk.out();
    };
    let mut desk = reading(3, 3);
    desk.input(Input::Close { conn: ConnId(1) });
    let patch = TopicPatch { ack_mode: Some(Some(AckMode::Individual)), ..TopicPatch::default() };
    desk.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    unsaid(&mut desk, 2);
    desk.ack(2, "t", "g", 3);
    assert_eq!(desk.committed("t", "g", 0), 0, "the topic says individual");
    let patch = TopicPatch { ack_mode: Some(None), ..TopicPatch::default() };
    desk.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    desk.ack(2, "t", "g", 2);
    assert_eq!(
        desk.committed("t", "g", 0),
        3,
        "the server's own default is cumulative, and a change holds at once"
    );

    let mut desk = Desk::with(BusLimits { ack_mode: AckMode::Individual, ..BusLimits::default() });
    desk.publish("t", "1");
    desk.publish("t", "2");
    unsaid(&mut desk, 1);
    desk.ack(1, "t", "g", 2);
    assert_eq!(desk.committed("t", "g", 0), 0, "the server says individual");
}

#[test]
fn a_nack_with_a_delay_waits_also_over_a_restart() {
    let mut desk = reading(1, 1);
    desk.out();
    desk.nack(1, "t", "g", 1, Some(5_000));
    desk.pass(1_000);
    desk.expect(&[]);
    desk.restart();
    desk.open(1);
    join(&mut desk, 1, 1, AckMode::Cumulative);
    desk.pass(4_000);
    desk.expect(&["subscribed 0/1"]);
    // Each clock is read in whole milliseconds, so a delay over a restart may take two more.
    desk.pass(2);
    desk.expect(&["1<- g t/0/1 1 attempt 2"]);
}

#[test]
fn a_nack_after_an_implicit_completion_requeues() {
    let mut desk = reading(3, 3);
    desk.open(2);
    desk.out();
    desk.nack(1, "t", "g", 1, Some(60_000));
    desk.ack(1, "t", "g", 3);
    desk.nack(1, "t", "g", 2, None);
    desk.expect(&["1<- g t/0/2 2 attempt 2"]);
    assert_eq!(desk.committed("t", "g", 0), 0);
    desk.nack(1, "t", "g", 1, None);
    desk.expect(&[
        "refused unknown_offset: offset 1 of partition 0 is not in flight for group g: its delivery has already ended",
    ]);
}

#[test]
fn after_its_last_attempt_an_event_is_a_dead_letter_and_done() {
    let mut desk = reading(1, 1);
    desk.out();
    let commits = desk.commits;
    for _ in 0..4 {
        desk.nack(1, "t", "g", 1, None);
    }
    assert_eq!(desk.out().last().map(String::as_str), Some("1<- g t/0/1 1 attempt 5"));
    desk.nack(1, "t", "g", 1, None);
    assert_eq!(desk.committed("t", "g", 0), 1);
    assert_eq!(desk.commits, commits + 1);
    let letter = desk.logs[&topic("t.DLQ").stream(millrace_model::Partition(0))][0].clone();
    let headers = letter.body.headers.as_ref().expect("headers").to_map();
    let original = desk.logs[&topic("t").stream(millrace_model::Partition(0))][0].id.to_string();
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
    let mut desk = reading(1, 1);
    for _ in 0..4 {
        desk.nack(1, "t", "g", 1, None);
        desk.pass(1_000);
        desk.restart();
        desk.open(1);
        join(&mut desk, 1, 1, AckMode::Cumulative);
    }
    assert_eq!(desk.out().last().map(String::as_str), Some("1<- g t/0/1 1 attempt 5"));
    desk.nack(1, "t", "g", 1, None);
    desk.pass(1_000);
    desk.restart();
    desk.open(1);
    join(&mut desk, 1, 1, AckMode::Cumulative);
    assert_eq!(desk.committed("t", "g", 0), 1);
    assert_eq!(desk.logs[&topic("t.DLQ").stream(millrace_model::Partition(0))].len(), 1);
}

#[test]
fn a_delivery_cut_short_by_a_crash_of_the_server_does_not_count() {
    let mut desk = reading(1, 1);
    for _ in 0..6 {
        desk.pass(1_000);
        desk.restart();
        desk.open(1);
        join(&mut desk, 1, 1, AckMode::Cumulative);
    }
    assert_eq!(desk.out().last().map(String::as_str), Some("1<- g t/0/1 1"));
}

#[test]
fn a_delivery_cut_short_by_the_servers_own_stop_does_not_count() {
    let mut desk = reading(2, 2);
    desk.nack(1, "t", "g", 2, None);
    desk.out();
    desk.input(Input::Stop);
    desk.expect(&["stopped"]);
    desk.restart();
    desk.open(1);
    join(&mut desk, 1, 2, AckMode::Cumulative);
    desk.expect(&["subscribed 0/1", "1<- g t/0/1 1", "1<- g t/0/2 2 attempt 2"]);
}

#[test]
fn a_seek_moves_a_group_unless_members_hold_events() {
    let mut desk = reading(3, 3);
    desk.out();
    let seek = |from| Request::SeekGroup { topic: topic("t"), group: group("g"), partition: None, from };
    desk.call(seek(From::Earliest));
    desk.expect(&[
        "refused group_busy: members of group g on topic t hold unacknowledged events: try again when they are done",
    ]);
    desk.ack(1, "t", "g", 3);
    desk.call(seek(From::Offset(Offset(2))));
    desk.expect(&["sought 0/2", "1<- g t/0/2 2", "1<- g t/0/3 3"]);
    assert_eq!(desk.committed("t", "g", 0), 1);
}

#[test]
fn a_group_is_forgotten_with_its_rows_once_its_members_have_left() {
    let mut desk = reading(3, 3);
    desk.out();
    let delete = || Request::DeleteGroup { topic: topic("t"), group: group("g") };
    desk.call(delete());
    desk.expect(&[
        "refused group_busy: group g on topic t has members (connections subscribed to it: 1): unsubscribe them first",
    ]);
    desk.ack(1, "t", "g", 1);
    desk.nack(1, "t", "g", 2, Some(1000));
    desk.input(Input::Close { conn: ConnId(1) });
    desk.out();
    desk.call(delete());
    desk.call(delete());
    let lines = desk.out();
    assert!(
        lines[0].starts_with("refused bad_group") || lines[1].starts_with("refused bad_group"),
        "{lines:?}"
    );
    assert!(lines.iter().any(|line| line.starts_with("GroupDeleted")), "{lines:?}");
    desk.restart();
    desk.open(1);
    desk.call(Request::ListGroups { topic: topic("t") });
    assert!(desk.out()[0].contains("groups: []"));
    join(&mut desk, 1, 3, AckMode::Cumulative);
    assert_eq!(desk.out()[..2], ["subscribed 0/1", "1<- g t/0/1 1"]);
}

#[test]
fn a_subscription_from_a_point_in_time_starts_at_the_first_event_not_older() {
    let mut desk = Desk::new();
    desk.open(1);
    for i in 1..=3 {
        desk.publish("t", &i.to_string());
        desk.pass(10);
    }
    desk.out();
    let from = Some(From::Timestamp(Timestamp(1_000_005)));
    desk.request(1, Request::Subscribe(Subscribe { from, ..subscription("t", "g") }));
    desk.expect(&["subscribed 0/2", "1<- g t/0/2 2", "1<- g t/0/3 3"]);
}

#[test]
fn a_reader_that_is_congested_gets_nothing_until_it_drains() {
    let mut desk = reading(0, 8);
    desk.input(Input::Congested { conn: ConnId(1) });
    desk.publish("t", "1");
    desk.expect(&["subscribed 0/1", "published 0/1"]);
    desk.input(Input::Drained { conn: ConnId(1) });
    desk.expect(&["1<- g t/0/1 1"]);
}

#[test]
fn credits_and_window_must_both_allow_a_delivery() {
    let mut desk = reading(0, 2);
    desk.request(1, Request::Flow { credits: 3 });
    for i in 1..=5 {
        desk.publish("t", &i.to_string());
    }
    desk.out();
    desk.ack(1, "t", "g", 2);
    desk.expect(&["1<- g t/0/3 3"]);
    desk.ack(1, "t", "g", 3);
    desk.expect(&[]);
    desk.request(1, Request::Flow { credits: 1 });
    desk.expect(&["flow", "1<- g t/0/4 4"]);
    desk.request(1, Request::Flow { credits: 5 });
    desk.request(1, Request::Flow { credits: 0 });
    desk.ack(1, "t", "g", 4);
    desk.expect(&["flow", "1<- g t/0/5 5", "flow"]);
}

#[test]
fn delivery_pauses_when_acks_run_too_far_ahead_of_the_commit() {
    let mut desk = Desk::new();
    desk.open(1);
    join(&mut desk, 1, 4, AckMode::Individual);
    for i in 1..=8_200 {
        desk.publish("t", &i.to_string());
        if i > 1 {
            desk.ack(1, "t", "g", i);
        }
    }
    let delivered = desk.out().iter().filter(|line| line.starts_with("1<-")).count();
    assert_eq!(delivered, 8_192);
    desk.ack(1, "t", "g", 1);
    desk.expect(&[
        "1<- g t/0/8193 8193",
        "1<- g t/0/8194 8194",
        "1<- g t/0/8195 8195",
        "1<- g t/0/8196 8196",
    ]);
    assert_eq!(desk.committed("t", "g", 0), 8_192);
}

#[test]
fn a_failed_store_refuses_everybody_who_waits_and_everything_that_writes() {
    let mut desk = reading(1, 1);
    desk.out();
    desk.hold = true;
    desk.publish("t", "2");
    desk.ack_in(1, "t", "g", 0, 1, true);
    desk.input(Input::StorageFailed { reason: "disk full".to_owned() });
    desk.publish("t", "3");
    let refused = "refused storage_failed: the store has failed and nothing is written any more (disk full): the server ends, send again when it is back";
    desk.expect(&[refused, refused, refused]);
}

#[test]
fn without_room_what_adds_is_refused_and_the_rest_goes_on() {
    let mut desk = reading(2, 2);
    desk.out();
    desk.input(Input::NoSpace { reason: Some("9 bytes free".to_owned()) });
    desk.publish("t", "3");
    let later = Publish { topic: topic("t"), event: event("4"), deliver_at: Some(DeliverAt::AfterMs(1000)) };
    desk.call(Request::Publish(later));
    desk.call(Request::PublishBatch(PublishBatch { topic: topic("t"), events: vec![event("5")] }));
    let refused = "refused storage_failed: 9 bytes free: nothing is published until there is room, send again later; acks and reads go on";
    desk.expect(&[refused, refused, refused]);
    desk.ack_in(1, "t", "g", 0, 1, true);
    desk.expect(&["acked"]);
    desk.nack(1, "t", "g", 2, None);
    assert_eq!(desk.out().len(), 1, "it is delivered again");
    desk.input(Input::NoSpace { reason: None });
    desk.publish("t", "3");
    assert_eq!(desk.out()[0], "published 0/3");
}

#[test]
fn a_flush_after_a_restart_keeps_acks_ahead_that_were_read_again_but_not_passed() {
    let mut desk = Desk::new();
    desk.open(1);
    for i in 1..=6 {
        desk.publish("t", &i.to_string());
    }
    join(&mut desk, 1, 8, AckMode::Individual);
    for offset in [2, 6] {
        desk.ack(1, "t", "g", offset);
    }
    desk.restart();
    desk.open(1);
    // A window of one: offset 6 is read again (and known done) long before it could be sent.
    join(&mut desk, 1, 1, AckMode::Individual);
    desk.ack(1, "t", "g", 1);
    desk.restart();
    desk.out();
    desk.open(1);
    join(&mut desk, 1, 8, AckMode::Individual);
    let offsets: Vec<String> = desk.out().iter().filter(|line| line.starts_with("1<-")).cloned().collect();
    assert_eq!(offsets.len(), 3, "{offsets:?}");
}

#[test]
fn an_event_acked_and_refused_in_turn_is_a_dead_letter_in_the_end() {
    let mut desk = reading(3, 3);
    desk.nack(1, "t", "g", 1, Some(3_600_000));
    for _ in 0..5 {
        desk.ack(1, "t", "g", 3);
        desk.nack(1, "t", "g", 2, None);
    }
    assert_eq!(desk.logs[&topic("t.DLQ").stream(millrace_model::Partition(0))].len(), 1);
}

#[test]
fn a_nack_of_what_another_member_acked_or_of_a_dead_letter_changes_nothing() {
    let mut desk = reading(0, 1);
    desk.open(2);
    join(&mut desk, 2, 2, AckMode::Cumulative);
    for i in 1..=2 {
        desk.publish("t", &i.to_string());
    }
    desk.ack(2, "t", "g", 2);
    desk.out();
    desk.nack(1, "t", "g", 2, None);
    desk.expect(&[
        "refused unknown_offset: offset 2 of partition 0 is not in flight for group g: it is already done",
    ]);
}
