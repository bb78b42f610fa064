//! Commits of others to the same store reach the groups of this engine.

mod harness;

use harness::{Harness, event, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

/// Commits as another process would: the engine is not told.
fn neighbour(harness: &mut Harness, ops: Vec<Op>) {
    let batch = Batch { nonce: 7, now: harness.now.wall, ops, ..Batch::default() };
    assert!(matches!(harness.commit(batch), Outcome::Done(_)));
}

fn append(name: &str, payload: &str) -> Op {
    let stream = topic(name).stream(Partition(0));
    Op::Append(Append { stream, event: event(payload), dedupe_window_ms: 0 })
}

fn row_of(name: &str, incarnation: u64) -> Op {
    let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
    Op::Put {
        space: Space::Topics,
        key: keys::topic(&topic(name)),
        value: TopicRow { config, incarnation, ..TopicRow::default() }.encode(),
    }
}

fn report(harness: &mut Harness, name: &str, next: u64) {
    let bounds =
        LogBounds { stream: topic(name).stream(Partition(0)), start: Offset::FIRST, next: Offset(next) };
    harness.input(Input::ForeignCommits { bounds: vec![bounds], delayed: None });
}

/// Delays an event for a duration as another process would, and creates the topic if it is missing. Returns when it is
/// due, in elapsed time.
fn delayed(harness: &mut Harness, name: &str, incarnation: u64, payload: &str, for_ms: u64) -> Timestamp {
    let (stream, at) = (topic(name).stream(Partition(0)), harness.now.wall + for_ms);
    let id = EventId::mint(harness.now.wall, for_ms, 0);
    let row = DueRow::of(&stream, id.clone(), &event(payload).body, Durability::Fsync, 0);
    let key = keys::due_after(at, for_ms, 0);
    let delay = Delay { topic: topic(name), id, dedupe_window_ms: 0, due: at, key, row: Box::new(row) };
    let row = match row_of(name, incarnation) {
        Op::Put { space, key, value } => Op::PutNew { space, key, value },
        op => op,
    };
    neighbour(harness, vec![row, Op::Delay(delay)]);
    at
}

fn report_due(harness: &mut Harness, at: Timestamp) {
    let delayed = ForeignDelays { first_due: vec![(DueBy::Elapsed, at)], elapsed: None };
    harness.input(Input::ForeignCommits { bounds: Vec::new(), delayed: Some(delayed) });
}

fn stored(harness: &Harness, name: &str) -> Vec<String> {
    harness.log(name).iter().map(|event| event.body.payload.as_str().to_owned()).collect()
}

fn waiting(harness: &Harness) -> usize {
    harness.tables().keys().filter(|(space, _)| matches!(space, Space::Due | Space::DueIds)).count()
}

fn earliest(name: &str) -> Request {
    Request::Subscribe(Subscribe { from: Some(From::Earliest), ..subscription(name, "g") })
}

#[test]
fn a_waiting_member_gets_what_another_process_appended() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.request(1, earliest("t"));
    harness.publish("t", "1");
    harness.out();
    neighbour(&mut harness, vec![append("t", "2"), append("t", "3")]);
    harness.expect(&[]);
    report(&mut harness, "t", 4);
    harness.expect(&["1<- g t/0/2 2", "1<- g t/0/3 3"]);
    report(&mut harness, "t", 4);
    harness.expect(&[]);
}

#[test]
fn own_events_behind_those_of_others_show_the_gap() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.request(1, earliest("t"));
    harness.out();
    neighbour(&mut harness, vec![append("t", "1")]);
    harness.publish("t", "2");
    harness.expect(&["published 0/2", "1<- g t/0/1 1", "1<- g t/0/2 2"]);
}

#[test]
fn a_topic_made_elsewhere_is_known_once_it_is_reported() {
    let mut harness = Harness::new();
    harness.open(1);
    neighbour(&mut harness, vec![row_of("made", 9), append("made", "1")]);
    harness.call(Request::DescribeTopic { topic: topic("made") });
    assert!(harness.out()[0].starts_with("refused"));
    report(&mut harness, "made", 2);
    harness.request(1, earliest("made"));
    harness.expect(&["subscribed 0/1", "1<- g made/0/1 1"]);
}

#[test]
fn a_report_about_a_topic_that_is_being_made_anew_is_not_believed() {
    let mut harness = Harness::new();
    harness.open(1);
    for n in 1..=3 {
        harness.publish("t", &n.to_string());
    }
    harness.hold = true;
    harness.call(Request::DeleteTopic { topic: topic("t") });
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    // The reporter had read the store before the topic was dropped.
    report(&mut harness, "t", 4);
    harness.release();
    harness.out();
    harness.publish("t", "1");
    harness.expect(&["published 0/1", "1<- g t/0/1 1"]);
}

#[test]
fn what_was_held_back_is_looked_up_when_the_topic_is_settled() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.hold = true;
    harness.request(1, earliest("t"));
    report(&mut harness, "t", 2);
    harness.release();
    harness.out();
    neighbour(&mut harness, vec![append("t", "1")]);
    harness.hold = true;
    harness.call(Request::PatchTopic { topic: topic("t"), patch: TopicPatch::default().into() });
    report(&mut harness, "t", 2);
    harness.expect(&[]);
    harness.release();
    let out = harness.out();
    assert_eq!(out.last().map(String::as_str), Some("1<- g t/0/1 1"), "{out:?}");
}

#[test]
fn an_event_that_another_process_delayed_reaches_the_groups_when_it_is_due() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.request(1, earliest("t"));
    harness.out();
    let at = delayed(&mut harness, "t", 9, "1", 500);
    assert_eq!(harness.bus.next_deadline(), None, "nobody has told");
    report_due(&mut harness, at);
    harness.pass(499);
    harness.expect(&[]);
    harness.pass(1);
    harness.expect(&["1<- g t/0/1 1"]);
    assert_eq!(waiting(&harness), 0);
}

#[test]
fn a_delayed_event_of_a_topic_that_only_another_process_knows_is_stored() {
    let mut harness = Harness::new();
    harness.open(1);
    let at = delayed(&mut harness, "new", 9, "1", 500);
    report_due(&mut harness, at);
    harness.pass(500);
    assert_eq!((stored(&harness, "new"), waiting(&harness)), (vec!["1".to_owned()], 0));
    report(&mut harness, "new", 2);
    harness.request(1, earliest("new"));
    harness.expect(&["subscribed 0/1", "1<- g new/0/1 1"]);
}

#[test]
fn a_topic_that_two_processes_make_keeps_what_was_delayed_for_it() {
    let mut harness = Harness::new();
    harness.open(1);
    let at = delayed(&mut harness, "new", 9, "1", 500);
    // The bus does not know of the topic and creates it for its subscriber.
    harness.request(1, earliest("new"));
    assert_eq!(harness.incarnation_of(&topic("new")), Some(9));
    report_due(&mut harness, at);
    harness.call(Request::Publish(Publish {
        topic: topic("new"),
        event: event("2"),
        deliver_at: Some(DeliverAt::AfterMs(600)),
    }));
    harness.out();
    harness.call(Request::PatchTopic { topic: topic("new"), patch: TopicPatch::default().into() });
    assert_eq!(harness.incarnation_of(&topic("new")), Some(9));
    harness.out();
    harness.pass(1000);
    harness.expect(&["1<- g new/0/1 1", "1<- g new/0/2 2"]);
}

#[test]
fn a_delayed_event_of_a_deleted_topic_reaches_no_successor() {
    let mut harness = Harness::new();
    harness.open(1);
    let at = delayed(&mut harness, "t", 9, "1", 500);
    report_due(&mut harness, at);
    harness.request(1, earliest("t"));
    harness.call(Request::DeleteTopic { topic: topic("t") });
    // Another session creates the topic again.
    let at = delayed(&mut harness, "t", 10, "2", 501);
    report_due(&mut harness, at);
    harness.pass(1000);
    assert_eq!((stored(&harness, "t"), waiting(&harness)), (vec!["2".to_owned()], 0));
}

#[test]
fn a_move_that_somebody_else_made_first_is_looked_at_again() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.request(1, earliest("t"));
    harness.out();
    for (n, payload) in ["1", "2", "3"].into_iter().enumerate() {
        let at = delayed(&mut harness, "t", 9, payload, 500 + n as u64);
        report_due(&mut harness, at);
    }
    harness.hold = true;
    harness.pass(502);
    assert_eq!(harness.held.len(), 1, "one move of what is due");
    // Another process has moved the first of the delayed events already.
    let ((_, key), value) = harness
        .tables()
        .iter()
        .find(|((space, _), _)| *space == Space::Due)
        .map(|(k, v)| (k.clone(), v.clone()))
        .unwrap();
    let first = DueEvent::read(&key, &value).unwrap();
    let mut ops = first.removal();
    ops.push(Op::Append(first.append()));
    neighbour(&mut harness, ops);
    harness.release();
    harness.pass(10);
    report(&mut harness, "t", 4);
    assert_eq!((stored(&harness, "t").len(), waiting(&harness)), (3, 0));
    harness.expect(&["1<- g t/0/1 1", "1<- g t/0/2 2", "1<- g t/0/3 3"]);
}

#[test]
fn a_burst_of_another_process_may_be_trimmed_before_it_is_heard_of() {
    let mut harness = Harness::new();
    let config = TopicConfig { retention_bytes: Some(3), ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    harness.publish("t", "1");
    harness.out();
    // The store removes all but the newest events of the burst, before the engine has heard of any of them.
    neighbour(&mut harness, (0..20).map(|n| append("t", &format!("{n}"))).collect());
    harness.pass(60_000);
    let start = harness.start("t");
    assert!(start > Offset(10), "{start:?}");
    harness.open(1);
    let from = Some(From::Offset(Offset(2)));
    harness.request(1, Request::Subscribe(Subscribe { from, ..subscription("t", "g") }));
    harness.out();
    report(&mut harness, "t", 22);
    let delivered = harness.out();
    assert!(!delivered.is_empty(), "the rest of the burst is delivered");
    harness.publish("t", "21");
    assert!(!harness.out().is_empty());
}
