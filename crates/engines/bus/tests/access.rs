//! Access lists of topics: who is let in, who is turned away, who has to leave.

mod harness;

use std::sync::Arc;

use harness::{Harness, event, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

/// Returns a principal with the scope to publish: one that may publish to a topic is told why it may not read it.
fn by(agent: &str) -> Requester {
    let roles = vec![Actor::new("publish").expect("a name")];
    Requester::Agent(Arc::new(Principal {
        agent: Actor::new(agent).expect("a name"),
        roles,
        namespaces: None,
    }))
}

fn reader(agent: &str) -> Requester {
    Requester::Agent(Arc::new(Principal {
        agent: Actor::new(agent).expect("a name"),
        roles: Vec::new(),
        namespaces: None,
    }))
}

fn list(entries: &[&str]) -> Option<AccessList> {
    Some(AccessList::new(entries.iter().copied()).expect("names"))
}

fn create(harness: &mut Harness, name: &str, publish: Option<AccessList>, subscribe: Option<AccessList>) {
    let config = TopicConfig { publish_acl: publish, subscribe_acl: subscribe, ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic(name), settings: config.into(), only_new: false });
}

const NO_PUBLISH: &str =
    "refused forbidden: agent eve may not publish to topic t: its access list does not let it";
const NO_READ: &str = "refused forbidden: agent eve may not read topic t: its access list does not let it";

#[test]
fn every_way_to_publish_asks_the_publish_list() {
    let mut harness = Harness::new();
    create(&mut harness, "t", list(&["alice"]), None);
    harness.out();
    harness.by = by("eve");
    harness.publish("t", "1");
    let batch = PublishBatch { topic: topic("t"), events: vec![event("1")] };
    harness.call(Request::PublishBatch(batch));
    let later = Some(DeliverAt::AfterMs(1000));
    harness.call(Request::Publish(Publish { topic: topic("t"), event: event("1"), deliver_at: later }));
    assert!(harness.out().iter().all(|line| line.contains(NO_PUBLISH)));
    assert!(harness.logs().values().all(Vec::is_empty), "nothing was stored");
    harness.by = by("alice");
    harness.publish("t", "1");
    harness.expect(&["published 0/1"]);
}

#[test]
fn every_way_to_read_asks_the_subscribe_list() {
    let mut harness = Harness::new();
    harness.open(1);
    create(&mut harness, "t", None, list(&["*", "!eve"]));
    harness.out();
    harness.by = by("eve");
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    harness.call(Request::DescribeTopic { topic: topic("t") });
    harness.call(Request::Offsets { topic: topic("t") });
    harness.call(Request::SeekGroup {
        topic: topic("t"),
        group: harness::group("g"),
        partition: None,
        from: From::Earliest,
    });
    let out = harness.out();
    assert!(out.len() == 4 && out.iter().all(|line| line.contains(NO_READ)), "{out:?}");
}

#[test]
fn whoever_may_not_even_publish_is_told_that_there_is_no_such_topic() {
    let mut harness = Harness::new();
    create(&mut harness, "t", None, list(&["alice"]));
    harness.out();
    let mut told = |by: Requester, name: &str| {
        harness.by = by;
        harness.call(Request::Offsets { topic: topic(name) });
        harness.out().remove(0).replace(&format!("topic {name}:"), "topic NAME:")
    };
    let absent = told(reader("eve"), "absent");
    assert!(absent.starts_with("refused bad_topic: there is no topic NAME"), "{absent}");
    assert_eq!(told(reader("eve"), "t"), absent);
    assert_eq!(told(by("eve"), "t.DLQ"), absent, "what is not there is not there");
}

#[test]
fn a_member_whom_a_new_list_turns_away_leaves_at_once() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.by = by("eve");
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    harness.by = Requester::Trusted;
    let patch = TopicPatch { subscribe_acl: Some(list(&["alice"])), ..TopicPatch::default() };
    harness.out();
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    let out = harness.out();
    assert!(out.iter().any(|line| line.contains("agent eve may not read topic t")), "{out:?}");
    harness.publish("t", "1");
    harness.expect(&["published 0/1"]);
}

#[test]
fn dead_letters_are_as_private_as_their_topic_even_after_its_deletion() {
    let mut harness = Harness::new();
    harness.open(1);
    create(&mut harness, "t", None, list(&["alice"]));
    create(&mut harness, "t.DLQ", None, None);
    let read = Request::DescribeTopic { topic: topic("t.DLQ") };
    for deleted in [false, true] {
        harness.by = Requester::Trusted;
        if deleted {
            harness.call(Request::DeleteTopic { topic: topic("t") });
            harness.restart();
        }
        harness.out();
        harness.by = by("eve");
        harness.call(read.clone());
        let out = harness.out();
        assert!(out[0].contains("agent eve may not read topic t.DLQ"), "{out:?}");
        harness.by = by("alice");
        harness.call(read.clone());
        assert!(!harness.out()[0].contains("may not"));
    }
}

#[test]
fn a_list_that_changes_while_a_group_is_placed_still_counts() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.hold = true;
    harness.by = by("eve");
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    harness.by = Requester::Trusted;
    let patch = TopicPatch { subscribe_acl: Some(list(&["alice"])), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    harness.hold = false;
    harness.release();
    let out = harness.out();
    assert!(out.iter().any(|line| line.contains(NO_READ)), "{out:?}");
    assert!(!out.iter().any(|line| line.contains("subscribed")), "{out:?}");
}

fn group_lists(json: &str) -> Option<GroupAccess> {
    Some(serde_json::from_str(json).expect("lists"))
}

const NO_GROUP: &str = "refused forbidden: agent eve may not use group billing of topic t: the group's access list \
                        does not let it";

#[test]
fn joining_moving_and_deleting_a_group_ask_its_list() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.by = Requester::Trusted;
    harness.request(1, Request::Subscribe(subscription("t", "billing")));
    harness.request(1, Request::Unsubscribe { topic: topic("t"), group: harness::group("billing") });
    let config = TopicConfig { group_acl: group_lists(r#"{"billing":["bob"]}"#), ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    harness.out();
    let (at, name) = (topic("t"), harness::group("billing"));
    let seek = |group: &Group| {
        let (topic, group) = (at.clone(), group.clone());
        Request::SeekGroup { topic, group, partition: None, from: From::Earliest }
    };
    let delete = |group: &Group| Request::DeleteGroup { topic: at.clone(), group: group.clone() };
    let reset = Subscribe { reset: true, from: Some(From::Earliest), ..subscription("t", "billing") };
    harness.by = by("eve");
    harness.request(1, Request::Subscribe(subscription("t", "billing")));
    harness.request(1, Request::Subscribe(reset));
    harness.call(seek(&name));
    harness.call(delete(&name));
    let out = harness.out();
    assert!(out.len() == 4 && out.iter().all(|line| line.contains(NO_GROUP)), "{out:?}");
    // The list of one group restricts neither the other groups nor the topic.
    harness.request(1, Request::Subscribe(subscription("t", "other")));
    harness.call(Request::Offsets { topic: topic("t") });
    let out = harness.out();
    assert!(!out.iter().any(|line| line.contains("refused")), "{out:?}");
    harness.by = by("bob");
    harness.call(seek(&name));
    harness.call(delete(&name));
    let out = harness.out();
    assert!(!out.iter().any(|line| line.contains("refused")), "{out:?}");
}

#[test]
fn an_administrator_deletes_a_group_unless_the_groups_list_says_otherwise() {
    let mut harness = Harness::new();
    harness.open(1);
    for name in ["billing", "other"] {
        harness.request(1, Request::Subscribe(subscription("t", name)));
        harness.request(1, Request::Unsubscribe { topic: topic("t"), group: harness::group(name) });
    }
    let config = TopicConfig {
        subscribe_acl: list(&["bob"]),
        group_acl: group_lists(r#"{"billing":["bob"]}"#),
        ..TopicConfig::default()
    };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    harness.out();
    let roles = vec![Actor::new("admin").expect("a name")];
    harness.by = Requester::Agent(Arc::new(Principal {
        agent: Actor::new("eve").expect("a name"),
        roles,
        namespaces: None,
    }));
    harness.call(Request::DeleteGroup { topic: topic("t"), group: harness::group("billing") });
    let out = harness.out();
    assert!(out[0].contains(NO_GROUP), "{out:?}");
    harness.call(Request::DeleteGroup { topic: topic("t"), group: harness::group("other") });
    let out = harness.out();
    assert!(!out[0].contains("refused"), "the topic's own list does not stop an administrator: {out:?}");
}

#[test]
fn members_whom_a_new_group_list_turns_away_leave_at_once_and_others_stay() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.open(2);
    harness.by = by("eve");
    harness.request(1, Request::Subscribe(subscription("t", "billing")));
    harness.request(1, Request::Subscribe(subscription("t", "other")));
    harness.by = by("bob");
    harness.request(2, Request::Subscribe(subscription("t", "billing")));
    harness.by = Requester::Trusted;
    harness.out();
    let patch: GroupAccessPatch = serde_json::from_str(r#"{"billing":["bob"]}"#).expect("a patch");
    let patch = TopicPatch { group_acl: Some(Some(patch)), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    let out = harness.out();
    let told: Vec<_> = out.iter().filter(|line| line.contains("may not use group billing")).collect();
    assert_eq!(told.len(), 1, "{out:?}");
    harness.publish("t", "1");
    let out = harness.out().join("\n");
    assert_eq!(out.matches("billing").count(), 1, "bob alone has it: {out}");
    assert_eq!(out.matches("other").count(), 1, "eve's other group goes on: {out}");
}

#[test]
fn the_list_for_all_other_groups_holds_for_dead_letters_too_and_after_a_restart() {
    let mut harness = Harness::new();
    let config =
        TopicConfig { group_acl: group_lists(r#"{"*":["bob"],"free":["*"]}"#), ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    create(&mut harness, "t.DLQ", None, None);
    harness.restart();
    harness.open(1);
    harness.by = by("eve");
    for (name, group, may) in [("t", "any", false), ("t", "free", true), ("t.DLQ", "any", false)] {
        harness.out();
        harness.request(1, Request::Subscribe(subscription(name, group)));
        let out = harness.out();
        assert_eq!(out.iter().any(|line| line.contains("subscribed")), may, "{name} {group}: {out:?}");
    }
}
