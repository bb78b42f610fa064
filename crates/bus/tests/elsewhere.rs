//! What others commit to the same store reaches the groups of this engine.

mod desk;

use desk::{Desk, event, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

/// Another process commits: the engine hears nothing of it.
fn neighbour(desk: &mut Desk, ops: Vec<Op>) {
    let batch = Batch { nonce: 7, now: desk.now.wall, ops, ..Batch::default() };
    assert!(matches!(desk.commit(batch), Outcome::Done(_)));
}

fn append(name: &str, payload: &str) -> Op {
    let stream = topic(name).stream(Partition(0));
    Op::Append(Append { stream, event: event(payload), dedupe_window_ms: 0, made: None })
}

fn row(name: &str, made: u64) -> Op {
    let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
    Op::Put {
        space: Space::Topics,
        key: keys::topic(&topic(name)),
        value: TopicRow { config, made }.encode(),
    }
}

fn report(desk: &mut Desk, name: &str, next: u64) {
    let reach = Reach { stream: topic(name).stream(Partition(0)), start: Offset::FIRST, next: Offset(next) };
    desk.input(Input::Elsewhere { reaches: vec![reach] });
}

fn earliest(name: &str) -> Request {
    Request::Subscribe(Subscribe { from: Some(From::Earliest), ..subscription(name, "g") })
}

#[test]
fn a_waiting_member_gets_what_another_process_appended() {
    let mut desk = Desk::new();
    desk.open(1);
    desk.request(1, earliest("t"));
    desk.publish("t", "1");
    desk.out();
    neighbour(&mut desk, vec![append("t", "2"), append("t", "3")]);
    desk.expect(&[]);
    report(&mut desk, "t", 4);
    desk.expect(&["1<- g t/0/2 2", "1<- g t/0/3 3"]);
    report(&mut desk, "t", 4);
    desk.expect(&[]);
}

#[test]
fn own_events_behind_those_of_others_show_the_gap() {
    let mut desk = Desk::new();
    desk.open(1);
    desk.request(1, earliest("t"));
    desk.out();
    neighbour(&mut desk, vec![append("t", "1")]);
    desk.publish("t", "2");
    desk.expect(&["published 0/2", "1<- g t/0/1 1", "1<- g t/0/2 2"]);
}

#[test]
fn a_topic_made_elsewhere_is_known_once_it_is_reported() {
    let mut desk = Desk::new();
    desk.open(1);
    neighbour(&mut desk, vec![row("made", 9), append("made", "1")]);
    desk.call(Request::DescribeTopic { topic: topic("made") });
    assert!(desk.out()[0].starts_with("refused"));
    report(&mut desk, "made", 2);
    desk.request(1, earliest("made"));
    desk.expect(&["subscribed 0/1", "1<- g made/0/1 1"]);
}

#[test]
fn a_report_about_a_topic_that_is_being_made_anew_is_not_believed() {
    let mut desk = Desk::new();
    desk.open(1);
    for n in 1..=3 {
        desk.publish("t", &n.to_string());
    }
    desk.hold = true;
    desk.call(Request::DeleteTopic { topic: topic("t") });
    desk.request(1, Request::Subscribe(subscription("t", "g")));
    // The writer had looked around before the topic was dropped.
    report(&mut desk, "t", 4);
    desk.release();
    desk.out();
    desk.publish("t", "1");
    desk.expect(&["published 0/1", "1<- g t/0/1 1"]);
}

#[test]
fn what_was_held_back_is_looked_up_when_the_topic_is_settled() {
    let mut desk = Desk::new();
    desk.open(1);
    desk.hold = true;
    desk.request(1, earliest("t"));
    report(&mut desk, "t", 2);
    desk.release();
    desk.out();
    neighbour(&mut desk, vec![append("t", "1")]);
    desk.hold = true;
    desk.call(Request::PatchTopic { topic: topic("t"), patch: TopicPatch::default() });
    report(&mut desk, "t", 2);
    desk.expect(&[]);
    desk.release();
    let out = desk.out();
    assert_eq!(out.last().map(String::as_str), Some("1<- g t/0/1 1"), "{out:?}");
}
