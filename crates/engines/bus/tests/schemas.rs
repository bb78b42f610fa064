//! Schemas of topics: published events must match the schema in force, and a new schema must match the events that are
//! there.

mod harness;

use std::sync::Arc;

use harness::{Harness, event, keyed, topic};
use millrace_bus::*;
use millrace_model::*;
use serde_json::{Value, json};

fn config(schema: Value) -> TopicConfig {
    TopicConfig { schema: Some(Arc::new(schema)), ..TopicConfig::default() }
}

fn patch(harness: &mut Harness, schema: Option<Value>, force_schema: bool) -> Vec<String> {
    let schema = Some(schema.map(Arc::new));
    let patch = TopicPatch { schema, force_schema, ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    harness.out()
}

fn with_numbers() -> Harness {
    let mut harness = Harness::new();
    harness.call(Request::CreateTopic {
        topic: topic("t"),
        settings: config(json!({"type": "integer"})).into(),
        only_new: false,
    });
    harness.out();
    harness
}

fn strings() -> Option<Value> {
    Some(json!({"type": "string"}))
}

fn versions(harness: &Harness) -> Vec<(u32, bool)> {
    let tables = harness.tables();
    let rows = tables.iter().filter(|((space, key), _)| *space == Space::Kv && key.starts_with("schema/"));
    let rows = rows.map(|((_, key), value)| TopicSchemaRow::decode(key, value).expect("a version"));
    rows.map(|row| (row.version, row.forced)).collect()
}

fn stored(harness: &Harness) -> Vec<String> {
    harness.payloads()
}

#[track_caller]
fn one(mut out: Vec<String>, expected: &str) {
    let found = out.pop().unwrap_or_default();
    assert!(out.is_empty() && found.contains(expected), "{expected:?} is not all of {out:?} {found:?}");
}

#[test]
fn what_does_not_match_is_refused_and_not_stored() {
    let mut harness = with_numbers();
    harness.publish("t", "1");
    one(harness.out(), "published");
    harness.publish("t", r#""x""#);
    one(
        harness.out(),
        r#"does not match version 1 of the schema of topic t: at the top: "x" is not of type"#,
    );
    let deliver_at = Some(DeliverAt::AfterMs(50));
    harness.call(Request::Publish(Publish { topic: topic("t"), event: event("null"), deliver_at }));
    one(harness.out(), "schema_mismatch");
    let events = vec![event("2"), event("3"), event("null"), event("[]")];
    harness.call(Request::PublishBatch(PublishBatch { topic: topic("t"), events }));
    one(harness.out(), "the payload of events[2] does not match");
    harness.publish("other", r#""x""#);
    one(harness.out(), "published");
    assert_eq!(stored(&harness), [r#""x""#, "1"]);
}

fn with_id(id: &str, payload: &str) -> NewEvent {
    NewEvent { id: Some(EventId::parse(id).expect("an id")), ..event(payload) }
}

fn delayed(event: NewEvent) -> Request {
    let deliver_at = Some(DeliverAt::AfterMs(50));
    Request::Publish(Publish { topic: topic("t"), event, deliver_at })
}

#[test]
fn a_delayed_event_is_checked_when_it_is_accepted_and_not_again() {
    let mut harness = with_numbers();
    harness.call(delayed(event("1")));
    one(harness.out(), "delayed");
    one(patch(&mut harness, strings(), true), "topic ");
    harness.pass(100);
    assert_eq!(stored(&harness), ["1"]);
}

#[test]
fn a_change_that_a_delayed_event_does_not_match_is_refused_unless_forced() {
    let mut harness = with_numbers();
    // A delayed event of another topic, which stands before the others in the table.
    harness.call(Request::Publish(Publish {
        topic: topic("other"),
        event: event(r#""x""#),
        deliver_at: Some(DeliverAt::AfterMs(10)),
    }));
    (1..=100).for_each(|n| harness.call(delayed(event(&n.to_string()))));
    harness.out();
    one(
        patch(&mut harness, Some(json!({"maximum": 99})), false),
        "does not fit a delayed event that waits for its time: at the top: value is greater",
    );
    one(patch(&mut harness, Some(json!({"maximum": 100})), false), "schema 2 and 100 delayed");
    harness.restart();
    one(patch(&mut harness, strings(), false), "does not fit a delayed event");
    harness.pass(100);
    harness.out();
    one(patch(&mut harness, strings(), false), "does not fit the event at partition 0, offset ");
}

/// The event is accepted but not yet in the table when the comparison begins; then one is accepted while the comparison
/// goes on.
#[test]
fn a_delayed_event_that_is_under_way_breaks_a_change_too() {
    let mut harness = with_numbers();
    harness.hold = true;
    harness.call(delayed(event("1")));
    one(patch(&mut harness, strings(), false), "does not fit an event that is being published");
    harness.release();
    let mut harness = with_numbers();
    harness.publish("t", "2");
    harness.hold_checks = true;
    let patched = Some(json!({"minimum": 2}));
    assert_eq!(patch(&mut harness, patched, false).len(), 1, "only the publish is answered");
    harness.call(delayed(event("1")));
    one(harness.out(), "delayed");
    harness.release_checks();
    one(harness.out(), "does not fit an event that is being published");
}

#[test]
fn what_was_stored_under_an_older_schema_is_answered_like_the_first() {
    let mut harness = with_numbers();
    harness.publish_event("t", with_id("a", "1"));
    let first = harness.out();
    one(first.clone(), "published");
    harness.call(delayed(with_id("late", "2")));
    one(harness.out(), "delayed");
    one(patch(&mut harness, strings(), true), "topic ");
    harness.publish_event("t", with_id("a", "1"));
    assert_eq!(harness.out(), first);
    // The same holds when a duplicate is delayed, comes in a batch, or its first event still waits.
    harness.call(delayed(with_id("a", "1")));
    assert_eq!(harness.out(), first);
    harness.publish_event("t", with_id("late", "2"));
    one(harness.out(), "delayed");
    let batch = |events| Request::PublishBatch(PublishBatch { topic: topic("t"), events });
    harness.call(batch(vec![event(r#""new""#), with_id("a", "1"), with_id("late", "2")]));
    one(harness.out(), "published");
    assert_eq!(stored(&harness), ["1", r#""new""#]);
    // A new event is refused, and the whole batch with it.
    harness.publish_event("t", with_id("b", "3"));
    one(harness.out(), "does not match version 2");
    harness.call(batch(vec![event(r#""x""#), with_id("a", "1"), with_id("b", "3")]));
    one(harness.out(), "the payload of events[2] does not match version 2");
    harness.call(batch(vec![with_id("a", "1"), event("3")]));
    one(harness.out(), "the payload of events[1] does not match version 2");
    harness.call(delayed(with_id("c", "4")));
    one(harness.out(), "does not match version 2");
    harness.pass(100);
    assert_eq!(stored(&harness), ["1", r#""new""#, "2"]);
}

/// The first event is accepted but not durable yet when its duplicate comes.
#[test]
fn a_duplicate_of_an_event_under_way_is_answered_after_it() {
    let mut harness = with_numbers();
    harness.hold = true;
    harness.publish_event("t", with_id("a", "1"));
    patch(&mut harness, strings(), true);
    harness.publish_event("t", with_id("a", "1"));
    assert_eq!(harness.out(), [""; 0]);
    harness.release();
    let out = harness.out();
    assert_eq!(out.iter().filter(|line| line.contains("published")).count(), 2, "{out:?}");
}

#[test]
fn the_work_of_a_batch_has_a_bound() {
    let mut harness = Harness::with(BusLimits { schema_batch_work_max: 60, ..BusLimits::default() });
    let settings = config(json!({"type": "integer"})).into();
    harness.call(Request::CreateTopic { topic: topic("t"), settings, only_new: false });
    harness.out();
    let batch = |events| Request::PublishBatch(PublishBatch { topic: topic("t"), events });
    harness.call(batch(vec![event("1"); 3]));
    one(harness.out(), "published");
    harness.call(batch(vec![event("1"); 100]));
    one(
        harness.out(),
        "the 100 bytes of payloads are too much to be checked at once against the schema of topic t",
    );
    assert_eq!(stored(&harness).len(), 3);
}

#[test]
fn a_verdict_counts_only_for_the_schema_in_force() {
    let mut harness = with_numbers();
    let numbers = harness.schemas[&topic("t")].clone();
    let verdict = |schema: &TopicSchema, payload| {
        let result = schema.check_all(&[event(payload)]);
        Box::new(SchemaVerdict { stamp: schema.stamp, result })
    };
    // The engine believes the verdict: this one is false.
    harness.checked = Some(verdict(&numbers, "1"));
    harness.publish("t", r#""believed""#);
    one(harness.out(), "published");
    one(patch(&mut harness, strings(), true), "topic ");
    // The schema has changed since this verdict: the new schema counts.
    harness.checked = Some(verdict(&numbers, "1"));
    harness.publish("t", "1");
    one(harness.out(), "does not match version 2");
    harness.checked = Some(verdict(&numbers, r#""x""#));
    harness.publish("t", r#""x""#);
    one(harness.out(), "published");
    let strings = harness.schemas[&topic("t")].clone();
    harness.checked = Some(verdict(&strings, "1"));
    harness.publish("t", "1");
    one(harness.out(), "does not match version 2");
}

#[test]
fn a_change_that_retained_events_do_not_match_is_refused_unless_forced() {
    let mut harness = with_numbers();
    for n in 1..=200 {
        harness.publish("t", &n.to_string());
    }
    harness.out();
    one(
        patch(&mut harness, Some(json!({"maximum": 150})), false),
        "partition 0, offset 151: at the top: value is greater",
    );
    one(patch(&mut harness, Some(json!({"maximum": 200})), false), "topic ");
    harness.publish("t", "201");
    one(harness.out(), "does not match version 2");
    one(patch(&mut harness, Some(json!({"maximum": 5})), true), "topic ");
    assert_eq!(versions(&harness), [(1, false), (2, false), (3, true)]);
    assert_eq!(stored(&harness).len(), 200, "events are not rewritten");
    // Setting the same schema again is no change.
    one(patch(&mut harness, Some(json!({"maximum": 5})), false), "topic ");
    assert_eq!(versions(&harness).len(), 3);
    one(patch(&mut harness, None, false), "topic ");
    harness.publish("t", r#""anything""#);
    one(harness.out(), "published");
}

#[test]
fn the_answer_says_which_events_were_compared() {
    let mut harness = Harness::with(BusLimits { schema_check_events_max: 60, ..BusLimits::default() });
    let partitions = TopicConfig { partitions: 2, ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: partitions.into(), only_new: false });
    for _ in 0..60 {
        harness.publish("t", "1");
    }
    harness.out();
    let shown = patch(&mut harness, Some(json!({"type": "integer"})), false);
    assert_eq!(shown, ["topic t created=false schema 1 checked 0/1-30 checked 1/1-30"]);
}

#[test]
fn a_change_that_was_not_compared_with_all_events_must_be_forced() {
    let by_events = BusLimits { schema_check_events_max: 20, ..BusLimits::default() };
    let by_bytes = BusLimits { schema_check_bytes_max: 10, ..BusLimits::default() };
    for (limits, below) in [(by_events, 181), (by_bytes, 137)] {
        let mut harness = Harness::with(limits);
        for n in 0..200 {
            // The oldest events are beyond the bound.
            harness.publish("t", if n < 4 { r#""old""# } else { "1" });
        }
        harness.out();
        let why = format!("events below offset {below} of partition 0 were not compared");
        one(patch(&mut harness, Some(json!({"type": "integer"})), false), &why);
        assert_eq!(versions(&harness), []);
        // An event that was compared and does not match is named first.
        let breaks = format!("offset {below}: at the top");
        one(patch(&mut harness, Some(json!({"type": "string"})), false), &breaks);
        one(patch(&mut harness, Some(json!({"type": "integer"})), true), "topic t created=false schema 1");
    }
}

#[test]
fn a_change_that_was_not_compared_with_all_delayed_events_must_be_forced() {
    let limits = BusLimits { schema_check_delayed_rows_max: 64, ..BusLimits::default() };
    let mut harness = Harness::with(limits);
    for n in 0..65 {
        let deliver_at = Some(DeliverAt::AfterMs(1_000 + n));
        harness.call(Request::Publish(Publish { topic: topic("t"), event: event("1"), deliver_at }));
    }
    harness.out();
    one(
        patch(&mut harness, Some(json!({"type": "integer"})), false),
        "some delayed events that wait for their time",
    );
    one(patch(&mut harness, Some(json!({"type": "integer"})), true), "topic t created=false schema 1");
}

/// The event is accepted under the old schema while the new one is compared with the retained events.
#[test]
fn no_event_slips_in_while_a_change_is_checked() {
    let mut harness = with_numbers();
    harness.publish("t", "1");
    harness.hold_checks = true;
    harness.out();
    assert!(patch(&mut harness, Some(json!({"maximum": 9})), false).is_empty());
    harness.publish("t", "10");
    one(harness.out(), "published");
    harness.release_checks();
    one(
        harness.out(),
        "an event that is being published: at the top: value is greater than the maximum of 9",
    );
    harness.publish("t", "11");
    one(harness.out(), "published");
    assert_eq!(versions(&harness), [(1, false)]);
}

/// The event was accepted before, but is not in the store yet, so nobody who reads the store can see it.
#[test]
fn an_event_on_its_way_to_the_store_counts() {
    let mut harness = with_numbers();
    harness.hold = true;
    harness.publish("t", "10");
    one(patch(&mut harness, Some(json!({"maximum": 9})), false), "an event that is being published");
    harness.release();
    one(harness.out(), "published");
    // A delayed event that became due is on its way as well.
    let mut harness = with_numbers();
    let deliver_at = Some(DeliverAt::AfterMs(50));
    harness.call(Request::Publish(Publish { topic: topic("t"), event: event("10"), deliver_at }));
    harness.out();
    harness.hold = true;
    harness.pass(100);
    one(patch(&mut harness, Some(json!({"maximum": 9})), false), "an event that is being published");
}

#[test]
fn an_event_that_becomes_due_while_a_change_is_checked_counts() {
    let mut harness = with_numbers();
    harness.publish("t", "1");
    let deliver_at = Some(DeliverAt::AfterMs(50));
    harness.call(Request::Publish(Publish { topic: topic("t"), event: event("10"), deliver_at }));
    harness.out();
    harness.hold_checks = true;
    patch(&mut harness, Some(json!({"maximum": 9})), false);
    harness.pass(100);
    harness.release_checks();
    one(harness.out(), "an event that is being published");
}

#[test]
fn other_changes_may_come_while_one_is_checked() {
    let mut harness = with_numbers();
    harness.publish("t", "1");
    harness.out();
    harness.hold_checks = true;
    patch(&mut harness, Some(json!({"maximum": 9})), false);
    one(patch(&mut harness, Some(json!({"maximum": 8})), false), "another change of the schema");
    let retention = TopicPatch { retention_ms: Some(Some(5000)), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: retention.into() });
    one(harness.out(), "topic ");
    harness.release_checks();
    one(harness.out(), "topic t created=false schema 2 checked 0/1-1");
    let row = &harness.row(Space::Topics, "default/t");
    let config = TopicRow::decode("t", row).unwrap().config;
    assert_eq!((config.retention_ms, config.schema.as_deref()), (Some(5000), Some(&json!({"maximum": 9}))));
    assert_eq!(versions(&harness), [(1, false), (2, false)]);
    // The topic is deleted while its events are compared.
    harness.hold_checks = true;
    patch(&mut harness, Some(json!({"maximum": 7})), false);
    harness.call(Request::DeleteTopic { topic: topic("t") });
    one(harness.out(), "deleted t");
    harness.release_checks();
    one(harness.out(), "topic t was deleted");
}

#[test]
fn a_restart_keeps_schema_and_versions_and_a_successor_starts_anew() {
    let mut harness = Harness::with(BusLimits { schema_versions_max: 3, ..BusLimits::default() });
    harness.call(Request::CreateTopic {
        topic: topic("t"),
        settings: config(json!({"maximum": 100})).into(),
        only_new: false,
    });
    for n in 1..6 {
        patch(&mut harness, Some(json!({"maximum": 100 + n})), false);
    }
    harness.out();
    assert_eq!(versions(&harness), [(4, false), (5, false), (6, false)]);
    harness.restart();
    harness.publish("t", "106");
    one(harness.out(), "does not match version 6");
    harness.publish("t", "105");
    one(harness.out(), "published");
    // The schema is removed and set again: version numbers go on.
    patch(&mut harness, None, false);
    harness.restart();
    harness.publish("t", "107");
    one(harness.out(), "published");
    patch(&mut harness, Some(json!({"maximum": 200})), false);
    assert_eq!(versions(&harness), [(5, false), (6, false), (7, false)]);
    harness.call(Request::DeleteTopic { topic: topic("t") });
    harness.out();
    assert_eq!(versions(&harness), []);
    assert!(harness.schemas.is_empty());
    harness.publish("t", "\"free\"");
    one(harness.out(), "published");
    harness.call(Request::CreateTopic {
        topic: topic("t"),
        settings: config(json!({"type": "string"})).into(),
        only_new: false,
    });
    harness.out();
    assert_eq!(versions(&harness), [(1, false)]);
}

#[test]
fn what_the_server_writes_is_not_checked_and_cannot_have_a_schema() {
    let mut harness = with_numbers();
    for name in ["t.DLQ", "system.metrics"] {
        harness.call(Request::CreateTopic {
            topic: topic(name),
            settings: config(json!(true)).into(),
            only_new: false,
        });
        one(harness.out(), "cannot have a schema");
    }
    let mut tombstones = config(json!({"type": "integer"}));
    tombstones.compact = true;
    harness.call(Request::CreateTopic { topic: topic("c"), settings: tombstones.into(), only_new: false });
    harness.publish_event("c", keyed("k", "null"));
    one(harness.out().into_iter().skip(1).collect(), "published");
}

#[test]
fn schemas_are_bounded() {
    let mut harness = Harness::with(BusLimits {
        schema_bytes_max: 100,
        schemas_bytes_total_max: 150,
        ..BusLimits::default()
    });
    let long = json!({"description": "x".repeat(80)});
    harness.call(Request::CreateTopic {
        topic: topic("a"),
        settings: config(json!({"description": "x".repeat(90)})).into(),
        only_new: false,
    });
    one(harness.out(), "the number of bytes of schema is 108: at most 100 is allowed");
    harness.call(Request::CreateTopic {
        topic: topic("a"),
        settings: config(long.clone()).into(),
        only_new: false,
    });
    one(harness.out(), "topic ");
    harness.call(Request::CreateTopic {
        topic: topic("b"),
        settings: config(long.clone()).into(),
        only_new: false,
    });
    one(harness.out(), "the limit of 150 bytes of schemas is reached");
    harness.call(Request::DeleteTopic { topic: topic("a") });
    harness.out();
    harness.call(Request::CreateTopic { topic: topic("b"), settings: config(long).into(), only_new: false });
    one(harness.out(), "topic ");
    harness.call(Request::CreateTopic {
        topic: topic("c"),
        settings: config(json!({"type": 5})).into(),
        only_new: false,
    });
    one(harness.out(), "schema is refused at /type");
}
