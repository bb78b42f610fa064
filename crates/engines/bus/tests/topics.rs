//! Topics: publishing, partitions, delays, duplicates, retention, filters, deletion.

mod harness;

use std::collections::BTreeMap;
use std::sync::Arc;

use harness::{Harness, event, keyed, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

fn earliest(name: &str) -> Request {
    Request::Subscribe(Subscribe { from: Some(From::Earliest), ..subscription(name, "g") })
}

fn create(harness: &mut Harness, name: &str, config: TopicConfig) {
    harness.call(Request::CreateTopic { topic: topic(name), settings: config.into(), only_new: false });
}

#[test]
fn keys_choose_the_partition_and_keyless_events_take_turns() {
    let mut harness = Harness::new();
    create(&mut harness, "t", TopicConfig { partitions: 4, ..TopicConfig::default() });
    for _ in 0..2 {
        harness.publish_event("t", keyed("duck-1", "1"));
    }
    for _ in 0..4 {
        harness.publish("t", "2");
    }
    harness.expect(&[
        "topic t created=true",
        "published 3/1",
        "published 3/2",
        "published 1/1",
        "published 2/1",
        "published 3/3",
        "published 0/1",
    ]);
}

#[test]
fn a_group_reads_every_partition_within_one_window() {
    let mut harness = Harness::new();
    harness.open(1);
    create(&mut harness, "t", TopicConfig { partitions: 3, ..TopicConfig::default() });
    for i in 0..6 {
        harness.publish("t", &i.to_string());
    }
    harness.out();
    let from = Some(From::Earliest);
    harness
        .request(1, Request::Subscribe(Subscribe { from, max_inflight: Some(4), ..subscription("t", "g") }));
    let first = harness.out();
    assert_eq!(first.len(), 1 + 4, "{first:?}");
    for partition in 0..3 {
        for offset in 1..=2 {
            harness.ack_in(1, "t", "g", partition, offset, false);
        }
    }
    assert_eq!((0..3).map(|p| harness.committed("t", "g", p)).sum::<u64>(), 6);
}

#[test]
fn partitions_grow_and_groups_read_the_new_ones_from_their_first_event() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.publish("t", "1");
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    let patch = TopicPatch { partitions: Some(2), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    harness.out();
    harness.publish("t", "2");
    harness.publish("t", "3");
    harness.expect(&["published 1/1", "1<- g t/1/1 2", "published 0/2", "1<- g t/0/2 3"]);
    let patch = TopicPatch { partitions: Some(1), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    harness.expect(&["refused bad_frame: partitions may only grow: the topic has 2, 1 were asked for"]);
}

#[test]
fn the_same_id_is_stored_once_and_answered_like_the_first() {
    let mut harness = Harness::new();
    let with_id = || NewEvent { id: Some(EventId::parse("order-7").expect("an id")), ..event("1") };
    harness.publish_event("t", with_id());
    harness.publish("t", "2");
    harness.publish_event("t", with_id());
    harness.expect(&["published 0/1", "published 0/2", "published 0/1"]);
}

#[test]
fn a_batch_is_one_commit_with_one_answer() {
    let mut harness = Harness::new();
    let events = vec![event("1"), event("2"), event("3")];
    harness.call(Request::PublishBatch(PublishBatch { topic: topic("t"), events }));
    harness.expect(&["published 0/1 0/2 0/3"]);
    assert_eq!(harness.commits, 1);
    harness.call(Request::PublishBatch(PublishBatch { topic: topic("t"), events: Vec::new() }));
    harness.expect(&["refused bad_frame: the batch holds no events: give at least one"]);
}

fn delayed(harness: &mut Harness, ms: u64, id: Option<&str>, payload: &str) {
    let event = NewEvent { id: id.map(|id| EventId::parse(id).expect("an id")), ..event(payload) };
    harness.call(Request::Publish(Publish {
        topic: topic("t"),
        event,
        deliver_at: Some(DeliverAt::AfterMs(ms)),
    }));
}

#[test]
fn a_delayed_event_gets_its_offset_when_it_is_due_and_never_holds_up_a_group() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.request(1, earliest("t"));
    delayed(&mut harness, 5_000, None, "\"late\"");
    delayed(&mut harness, 2_000, None, "\"soon\"");
    harness.publish("t", "\"now\"");
    harness.expect(&[
        "subscribed 0/1",
        "delayed to 1005001",
        "delayed to 1002001",
        "published 0/1",
        "1<- g t/0/1 \"now\"",
    ]);
    harness.pass(2_001);
    harness.expect(&[]);
    harness.pass(1);
    harness.expect(&["1<- g t/0/2 \"soon\""]);
    harness.restart();
    harness.open(1);
    harness.request(1, earliest("t"));
    harness.out();
    harness.pass(3_002);
    harness.expect(&["1<- g t/0/3 \"late\""]);
    assert!(harness.tables().keys().all(|(space, _)| *space != Space::Due && *space != Space::DueIds));
}

#[test]
fn a_delayed_event_that_is_sent_again_is_stored_once() {
    let mut harness = Harness::new();
    delayed(&mut harness, 5_000, Some("x"), "1");
    harness.pass(1_000);
    delayed(&mut harness, 5_000, Some("x"), "1");
    harness.expect(&["delayed to 1005001", "delayed to 1005001"]);
    harness.pass(10_000);
    assert_eq!(harness.log("t").len(), 1);
}

#[test]
fn what_a_filter_turns_away_counts_as_done() {
    let mut harness = Harness::new();
    harness.open(1);
    let filter = Filter { key: Some("a".to_owned()), header: None };
    harness.request(1, Request::Subscribe(Subscribe { filter: filter.clone(), ..subscription("t", "g") }));
    for key in ["b", "a", "b"] {
        harness.publish_event("t", keyed(key, "1"));
    }
    harness.ack(1, "t", "g", 2);
    harness.pass(1_000);
    assert_eq!(harness.committed("t", "g", 0), 3);
    harness.out();
    harness.open(2);
    harness.request(2, earliest("t"));
    harness.expect(&[
        "refused filter_conflict: group g on topic t has the filter key \"a\": all its members must give the same one",
    ]);
    harness.restart();
    harness.open(1);
    harness.request(1, Request::Subscribe(Subscribe { filter, ..subscription("t", "g") }));
    harness.publish_event("t", keyed("b", "1"));
    harness.expect(&["subscribed 0/4", "published 0/4"]);
}

#[test]
fn a_header_filter_looks_at_the_events_headers() {
    let mut harness = Harness::new();
    harness.open(1);
    let filter = Filter { key: None, header: Some(("ct".to_owned(), "json".to_owned())) };
    harness.request(1, Request::Subscribe(Subscribe { filter, ..subscription("t", "g") }));
    let headers = Headers::from_map(&BTreeMap::from([("ct".to_owned(), "json".to_owned())]));
    let body = EventBody { headers: Some(headers), ..EventBody::of(JsonText::parse("2").expect("JSON")) };
    harness.publish("t", "1");
    harness.publish_event("t", NewEvent { id: None, body: Arc::new(body) });
    harness.expect(&["subscribed 0/1", "published 0/1", "published 0/2", "1<- g t/0/2 2"]);
}

#[test]
fn retention_removes_what_is_too_old_and_groups_resume_at_the_start() {
    let mut harness = Harness::new();
    harness.open(1);
    create(&mut harness, "t", TopicConfig { retention_ms: Some(40_000), ..TopicConfig::default() });
    harness.request(1, earliest("t"));
    harness.request(1, Request::Unsubscribe { topic: topic("t"), group: harness::group("g") });
    harness.publish("t", "1");
    harness.pass(50_000);
    harness.publish("t", "2");
    harness.pass(30_000);
    harness.out();
    harness.request(1, earliest("t"));
    harness.expect(&["subscribed 0/1", "1<- g t/0/2 2"]);
    harness.ack(1, "t", "g", 2);
    assert_eq!(harness.committed("t", "g", 0), 2);
}

#[test]
fn a_deleted_topic_takes_its_groups_along_and_its_members_are_told() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.request(1, earliest("t"));
    harness.publish("t", "1");
    harness.out();
    harness.call(Request::DeleteTopic { topic: topic("t") });
    harness.expect(&["1! topic t was deleted", "deleted t"]);
    assert!(harness.tables().is_empty(), "{:?}", harness.tables());
    harness.ack(1, "t", "g", 1);
    harness.publish("t", "2");
    harness.expect(&[
        "refused bad_group: this connection is not a member of group g on topic t: subscribe first",
        "published 0/1",
    ]);
}

#[test]
fn limits_answer_by_name() {
    let limits = BusLimits {
        topics_max: 1,
        groups_per_topic_max: 1,
        members_per_group_max: 1,
        subscriptions_per_connection_max: 1,
        ..BusLimits::default()
    };
    let mut harness = Harness::with(limits);
    (1..=3).for_each(|conn| harness.open(conn));
    harness.publish("t", "1");
    harness.publish("u", "1");
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    harness.request(2, Request::Subscribe(subscription("t", "g")));
    harness.request(3, Request::Subscribe(subscription("t", "h")));
    harness.request(1, Request::Subscribe(subscription("t", "h")));
    harness.expect(&[
        "published 0/1",
        "refused limit_reached: the limit of 1 topics is reached",
        "subscribed 0/2",
        "refused limit_reached: the limit of 1 members per group is reached",
        "refused limit_reached: the limit of 1 groups per topic is reached",
        "refused limit_reached: the limit of 1 subscriptions per connection is reached",
    ]);
}

#[test]
fn without_automatic_creation_a_topic_must_exist() {
    let mut harness = Harness::with(BusLimits { auto_create: false, ..BusLimits::default() });
    harness.publish("t", "1");
    create(&mut harness, "t", TopicConfig::default());
    harness.publish("t", "1");
    harness.expect(&[
        "refused bad_topic: there is no topic t and topics are not created automatically here: create it first",
        "topic t created=true",
        "published 0/1",
    ]);
}

#[test]
fn a_long_run_of_filtered_events_does_not_stop_a_group() {
    let mut harness = Harness::with(BusLimits { fetched_max: 2, ..BusLimits::default() });
    harness.open(1);
    let filter = Filter { key: Some("a".to_owned()), header: None };
    harness.request(1, Request::Subscribe(Subscribe { filter, ..subscription("t", "g") }));
    harness.out();
    harness.hold = true;
    for _ in 0..5 {
        harness.publish_event("t", keyed("b", "1"));
    }
    harness.publish_event("t", keyed("a", "2"));
    harness.release();
    assert_eq!(harness.out().last().map(String::as_str), Some("1<- g t/0/6 2"));
}

#[test]
fn delayed_events_of_a_deleted_topic_do_not_reach_its_successor() {
    let mut harness = Harness::new();
    create(&mut harness, "t", TopicConfig { partitions: 2, ..TopicConfig::default() });
    delayed(&mut harness, 5_000, Some("x"), "\"old\"");
    harness.call(Request::DeleteTopic { topic: topic("t") });
    harness.publish("t", "\"first\"");
    delayed(&mut harness, 5_000, Some("x"), "\"new\"");
    harness.pass(10_000);
    let payloads: Vec<_> = harness.payloads();
    assert_eq!(payloads, ["\"first\"", "\"new\""]);
    assert!(harness.tables().keys().all(|(space, _)| *space != Space::Due && *space != Space::DueIds));
}

#[test]
fn a_topic_made_by_a_delayed_duplicate_survives_a_restart() {
    let mut harness = Harness::new();
    delayed(&mut harness, 60_000, Some("x"), "1");
    // Only the topic's own row is removed; the row of the waiting id stays.
    harness.delete_row(Space::Topics, "default/t");
    harness.restart();
    delayed(&mut harness, 60_000, Some("x"), "1");
    harness.publish("t", "2");
    harness.restart();
    harness.call(Request::DescribeTopic { topic: topic("t") });
    assert_eq!(harness.out().last().map(String::as_str), Some("topic t created=false"));
}

#[test]
fn a_change_to_a_topic_that_is_deleted_meanwhile_is_answered() {
    let mut harness = Harness::new();
    create(&mut harness, "t", TopicConfig::default());
    harness.out();
    harness.hold = true;
    harness.call(Request::PatchTopic { topic: topic("t"), patch: TopicPatch::default().into() });
    harness.call(Request::DeleteTopic { topic: topic("t") });
    harness.release();
    harness.expect(&["refused bad_topic: topic t was deleted", "deleted t"]);
}

#[test]
fn making_a_topic_again_without_saying_how_many_partitions_keeps_them() {
    let mut harness = Harness::new();
    create(&mut harness, "t", TopicConfig { partitions: 4, ..TopicConfig::default() });
    create(&mut harness, "t", TopicConfig { max_attempts: Some(2), ..TopicConfig::default() });
    harness.expect(&["topic t created=true", "topic t created=false"]);
    harness.publish_event("t", keyed("duck-1", "1"));
    harness.expect(&["published 3/1"]);
}

#[test]
fn creating_a_topic_that_exists_takes_nothing_away() {
    let mut harness = Harness::new();
    let schema = Some(Arc::new(serde_json::json!({"type": "integer"})));
    let (publish_acl, max_attempts) = (AccessList::try_from(vec!["a".to_owned()]).ok(), Some(3));
    let config = TopicConfig { compact: true, sticky: true, ..TopicConfig::default() };
    let config = TopicConfig { schema, publish_acl, max_attempts, ..config };
    harness.call(Request::CreateTopic {
        topic: topic("t"),
        settings: config.clone().into(),
        only_new: false,
    });
    let settings =
        TopicPatch { partitions: Some(2), retention_ms: Some(Some(5_000)), ..TopicPatch::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: settings.into(), only_new: false });
    let row = &harness.row(Space::Topics, "default/t");
    let expected = TopicConfig { partitions: 2, retention_ms: Some(5_000), ..config };
    assert_eq!(TopicRow::decode("default/t", row).map(|row| row.config).ok(), Some(expected));
    let settings = TopicPatch { sticky: Some(false), ..TopicPatch::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: settings.into(), only_new: false });
    let row = &harness.row(Space::Topics, "default/t");
    assert!(TopicRow::decode("default/t", row).is_ok_and(|row| !row.config.sticky && row.config.compact));
}

#[test]
fn a_topic_that_must_be_new_is_refused_and_left_alone_if_it_exists() {
    let mut harness = Harness::new();
    let create = |partitions| {
        let config = TopicConfig { partitions, ..TopicConfig::default() };
        Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: true }
    };
    harness.call(create(2));
    harness.call(create(3));
    harness.expect(&["topic t created=true", "refused bad_topic: topic t exists already"]);
    let row = &harness.row(Space::Topics, "default/t");
    assert!(TopicRow::decode("default/t", row).is_ok_and(|row| row.config.partitions == 2));
}
