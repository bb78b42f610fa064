//! Groups that an operator holds back: nothing goes out to them, everything goes on for the others, and the pause
//! outlasts a restart.

mod harness;

use harness::{Harness, group, subscription, topic};
use millrace_bus::*;
use millrace_model::{Offset, Partition};

fn join(harness: &mut Harness, conn: u64, group: &str) {
    harness.open(conn);
    let subscribe =
        Subscribe { from: Some(From::Earliest), max_inflight: Some(2), ..subscription("t", group) };
    harness.request(conn, Request::Subscribe(subscribe));
}

fn pause(harness: &mut Harness, name: &str, paused: bool) {
    harness.call(Request::PauseGroup { topic: topic("t"), group: group(name), paused });
}

#[test]
fn only_the_paused_group_gets_nothing() {
    let mut harness = Harness::new();
    join(&mut harness, 1, "g");
    join(&mut harness, 2, "h");
    harness.expect(&["subscribed 0/1", "subscribed 0/1"]);
    pause(&mut harness, "g", true);
    harness.expect(&["paused t g true"]);
    harness.publish("t", "1");
    harness.expect(&["published 0/1", "2<- h t/0/1 1"]);
    pause(&mut harness, "g", false);
    harness.expect(&["1<- g t/0/1 1", "paused t g false"]);
}

#[test]
fn leases_end_as_usual_and_nothing_is_sent_again_before_the_end_of_the_pause() {
    let mut harness = Harness::new();
    join(&mut harness, 1, "g");
    harness.publish("t", "1");
    harness.publish("t", "2");
    harness.expect(&["subscribed 0/1", "published 0/1", "1<- g t/0/1 1", "published 0/2", "1<- g t/0/2 2"]);
    pause(&mut harness, "g", true);
    harness.ack(1, "t", "g", 1);
    harness.pass(60_000);
    harness.expect(&["paused t g true"]);
    assert_eq!(harness.committed("t", "g", 0), 1);
    pause(&mut harness, "g", false);
    let sent = harness.out();
    assert!(sent.iter().any(|line| line.starts_with("1<- g t/0/2")), "{sent:?}");
}

#[test]
fn the_pause_outlasts_a_restart_and_a_change_of_the_filter() {
    let mut harness = Harness::new();
    join(&mut harness, 1, "g");
    pause(&mut harness, "g", true);
    harness.publish("t", "1");
    harness.restart();
    harness.out();
    join(&mut harness, 2, "g");
    harness.expect(&["subscribed 0/1"]);
    pause(&mut harness, "g", false);
    harness.expect(&["paused t g false", "2<- g t/0/1 1"]);
}

#[test]
fn a_group_that_is_not_there_cannot_be_paused() {
    let mut harness = Harness::new();
    harness.publish("t", "1");
    harness.out();
    pause(&mut harness, "g", true);
    let told = harness.out();
    assert!(told.len() == 1 && told[0].contains("bad_group"), "{told:?}");
}

fn inspect(harness: &mut Harness, open_max: usize) -> GroupInspection {
    harness.reply(Request::InspectGroup { topic: topic("t"), group: group("g"), open_max }, |reply| {
        match reply {
            Reply::GroupInspected(inspection) => Some(*inspection),
            _ => None,
        }
    })
}

#[test]
fn an_inspection_shows_members_and_what_they_hold() {
    let mut harness = Harness::new();
    join(&mut harness, 7, "g");
    for payload in ["1", "2", "3"] {
        harness.publish("t", payload);
    }
    harness.nack(7, "t", "g", 1, Some(5_000));
    harness.pass(1_000);
    harness.out();
    let seen = inspect(&mut harness, 10);
    assert_eq!((seen.members.len(), seen.members[0].conn, seen.members[0].window), (1, ConnId(7), 2));
    assert_eq!(seen.members[0].inflight, 2);
    assert_eq!(seen.members[0].oldest_ms, Some(1_000));
    let offsets: Vec<u64> = seen.open.iter().map(|open| open.offset.0).collect();
    assert_eq!(offsets, [1, 2, 3]);
    assert!(
        matches!(seen.open[0].state, OpenEventState::Later { left_ms } if left_ms > 3_000 && left_ms <= 5_000)
    );
    assert!(matches!(seen.open[1].state, OpenEventState::Leased { conn: ConnId(7), .. }));
    assert!(!seen.more && !seen.detail.paused);
    let cut = inspect(&mut harness, 2);
    assert!(cut.more && cut.open.len() == 2);
}

#[test]
fn an_event_stands_differently_with_each_group() {
    let mut harness = Harness::new();
    join(&mut harness, 1, "done");
    join(&mut harness, 2, "g");
    join(&mut harness, 3, "later");
    pause(&mut harness, "later", true);
    harness.publish("t", "1");
    harness.ack(1, "t", "done", 1);
    harness.out();
    let request = Request::EventStandings { topic: topic("t"), partition: Partition(0), offset: Offset(1) };
    let standings = harness.reply(request, |reply| match reply {
        Reply::EventStandings(standings) => Some(standings),
        _ => None,
    });
    let states: Vec<(&str, StandingState)> =
        standings.iter().map(|one| (one.group.as_str(), one.state)).collect();
    let expected = [
        ("done", StandingState::Done),
        ("g", StandingState::InFlight(ConnId(2))),
        ("later", StandingState::Waiting),
    ];
    assert_eq!(states, expected);
}
