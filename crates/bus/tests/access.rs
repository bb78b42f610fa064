//! Access lists of topics: who is let in, who is turned away, who has to leave.

mod desk;

use std::sync::Arc;

use desk::{Desk, event, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

/// With the scope to publish: whoever may publish to a topic is told why they may not read it.
fn by(agent: &str) -> By {
    let roles = vec![Actor::new("publish").expect("a name")];
    Some(Arc::new(Principal { agent: Actor::new(agent).expect("a name"), roles }))
}

fn reader(agent: &str) -> By {
    Some(Arc::new(Principal { agent: Actor::new(agent).expect("a name"), roles: Vec::new() }))
}

fn list(entries: &[&str]) -> Option<AccessList> {
    Some(AccessList::new(entries.iter().copied()).expect("names"))
}

fn create(desk: &mut Desk, name: &str, publish: Option<AccessList>, subscribe: Option<AccessList>) {
    let config = TopicConfig { publish_acl: publish, subscribe_acl: subscribe, ..TopicConfig::default() };
    desk.call(Request::CreateTopic { topic: topic(name), config });
}

const NO_PUBLISH: &str =
    "refused forbidden: agent eve may not publish to topic t: its access list does not let it";
const NO_READ: &str = "refused forbidden: agent eve may not read topic t: its access list does not let it";

#[test]
fn every_way_to_publish_asks_the_publish_list() {
    let mut desk = Desk::new();
    create(&mut desk, "t", list(&["alice"]), None);
    desk.out();
    desk.by = by("eve");
    desk.publish("t", "1");
    let batch = PublishBatch { topic: topic("t"), events: vec![event("1")] };
    desk.call(Request::PublishBatch(batch));
    let later = Some(DeliverAt::AfterMs(1000));
    desk.call(Request::Publish(Publish { topic: topic("t"), event: event("1"), deliver_at: later }));
    assert!(desk.out().iter().all(|line| line.contains(NO_PUBLISH)));
    assert!(desk.logs.values().all(Vec::is_empty), "nothing was stored");
    desk.by = by("alice");
    desk.publish("t", "1");
    desk.expect(&["published 0/1"]);
}

#[test]
fn every_way_to_read_asks_the_subscribe_list() {
    let mut desk = Desk::new();
    desk.open(1);
    create(&mut desk, "t", None, list(&["*", "!eve"]));
    desk.out();
    desk.by = by("eve");
    desk.request(1, Request::Subscribe(subscription("t", "g")));
    desk.call(Request::DescribeTopic { topic: topic("t") });
    desk.call(Request::Offsets { topic: topic("t") });
    desk.call(Request::SeekGroup {
        topic: topic("t"),
        group: desk::group("g"),
        partition: None,
        from: From::Earliest,
    });
    let out = desk.out();
    assert!(out.len() == 4 && out.iter().all(|line| line.contains(NO_READ)), "{out:?}");
}

#[test]
fn whoever_may_not_even_publish_is_told_that_there_is_no_such_topic() {
    let mut desk = Desk::new();
    create(&mut desk, "t", None, list(&["alice"]));
    desk.out();
    let mut told = |by: By, name: &str| {
        desk.by = by;
        desk.call(Request::Offsets { topic: topic(name) });
        desk.out().remove(0).replace(&format!("topic {name}:"), "topic NAME:")
    };
    let absent = told(reader("eve"), "absent");
    assert!(absent.starts_with("refused bad_topic: there is no topic NAME"), "{absent}");
    assert_eq!(told(reader("eve"), "t"), absent);
    assert_eq!(told(by("eve"), "t.DLQ"), absent, "what is not there is not there");
}

#[test]
fn a_member_whom_a_new_list_turns_away_leaves_at_once() {
    let mut desk = Desk::new();
    desk.open(1);
    desk.by = by("eve");
    desk.request(1, Request::Subscribe(subscription("t", "g")));
    desk.by = None;
    let patch = TopicPatch { subscribe_acl: Some(list(&["alice"])), ..TopicPatch::default() };
    desk.out();
    desk.call(Request::PatchTopic { topic: topic("t"), patch });
    let out = desk.out();
    assert!(out.iter().any(|line| line.contains("agent eve may not read topic t")), "{out:?}");
    desk.publish("t", "1");
    desk.expect(&["published 0/1"]);
}

#[test]
fn dead_letters_are_as_private_as_their_topic_even_after_its_deletion() {
    let mut desk = Desk::new();
    desk.open(1);
    create(&mut desk, "t", None, list(&["alice"]));
    create(&mut desk, "t.DLQ", None, None);
    let read = Request::DescribeTopic { topic: topic("t.DLQ") };
    for deleted in [false, true] {
        desk.by = None;
        if deleted {
            desk.call(Request::DeleteTopic { topic: topic("t") });
            desk.restart();
        }
        desk.out();
        desk.by = by("eve");
        desk.call(read.clone());
        let out = desk.out();
        assert!(out[0].contains("agent eve may not read topic t.DLQ"), "{out:?}");
        desk.by = by("alice");
        desk.call(read.clone());
        assert!(!desk.out()[0].contains("may not"));
    }
}

#[test]
fn a_list_that_changes_while_a_group_is_placed_still_counts() {
    let mut desk = Desk::new();
    desk.open(1);
    desk.hold = true;
    desk.by = by("eve");
    desk.request(1, Request::Subscribe(subscription("t", "g")));
    desk.by = None;
    let patch = TopicPatch { subscribe_acl: Some(list(&["alice"])), ..TopicPatch::default() };
    desk.call(Request::PatchTopic { topic: topic("t"), patch });
    desk.hold = false;
    desk.release();
    let out = desk.out();
    assert!(out.iter().any(|line| line.contains(NO_READ)), "{out:?}");
    assert!(!out.iter().any(|line| line.contains("subscribed")), "{out:?}");
}
