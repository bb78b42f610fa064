//! Schemas of topics: published events must match the schema in force, and a new schema must match the events that are
//! there.

mod desk;

use std::sync::Arc;

use desk::{Desk, event, keyed, topic};
use millrace_bus::*;
use millrace_model::*;
use serde_json::{Value, json};

fn config(schema: Value) -> TopicConfig {
    TopicConfig { schema: Some(Arc::new(schema)), ..TopicConfig::default() }
}

fn patch(desk: &mut Desk, schema: Option<Value>, force_schema: bool) -> Vec<String> {
    let schema = Some(schema.map(Arc::new));
    let patch = TopicPatch { schema, force_schema, ..TopicPatch::default() };
    desk.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    desk.out()
}

fn with_numbers() -> Desk {
    let mut desk = Desk::new();
    desk.call(Request::CreateTopic {
        topic: topic("t"),
        settings: config(json!({"type": "integer"})).into(),
        only_new: false,
    });
    desk.out();
    desk
}

fn strings() -> Option<Value> {
    Some(json!({"type": "string"}))
}

fn versions(desk: &Desk) -> Vec<(u32, bool)> {
    let rows =
        desk.tables.iter().filter(|((space, key), _)| *space == Space::Kv && key.starts_with("schema/"));
    let rows = rows.map(|((_, key), value)| TopicSchemaRow::decode(key, value).expect("a version"));
    rows.map(|row| (row.version, row.forced)).collect()
}

fn stored(desk: &Desk) -> Vec<&str> {
    desk.logs.values().flatten().map(|event| event.body.payload.as_str()).collect()
}

#[track_caller]
fn one(mut out: Vec<String>, expected: &str) {
    let found = out.pop().unwrap_or_default();
    assert!(out.is_empty() && found.contains(expected), "{expected:?} is not all of {out:?} {found:?}");
}

#[test]
fn what_does_not_match_is_refused_and_not_stored() {
    let mut desk = with_numbers();
    desk.publish("t", "1");
    one(desk.out(), "published");
    desk.publish("t", r#""x""#);
    one(desk.out(), r#"does not match version 1 of the schema of topic t: at the top: "x" is not of type"#);
    let deliver_at = Some(DeliverAt::AfterMs(50));
    desk.call(Request::Publish(Publish { topic: topic("t"), event: event("null"), deliver_at }));
    one(desk.out(), "schema_mismatch");
    let events = vec![event("2"), event("3"), event("null"), event("[]")];
    desk.call(Request::PublishBatch(PublishBatch { topic: topic("t"), events }));
    one(desk.out(), "the payload of events[2] does not match");
    desk.publish("other", r#""x""#);
    one(desk.out(), "published");
    assert_eq!(stored(&desk), [r#""x""#, "1"]);
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
    let mut desk = with_numbers();
    desk.call(delayed(event("1")));
    one(desk.out(), "delayed");
    one(patch(&mut desk, strings(), true), "topic ");
    desk.pass(100);
    assert_eq!(stored(&desk), ["1"]);
}

#[test]
fn a_change_that_a_delayed_event_does_not_match_is_refused_unless_forced() {
    let mut desk = with_numbers();
    // A delayed event of another topic, which stands before the others in the table.
    desk.call(Request::Publish(Publish {
        topic: topic("other"),
        event: event(r#""x""#),
        deliver_at: Some(DeliverAt::AfterMs(10)),
    }));
    (1..=100).for_each(|n| desk.call(delayed(event(&n.to_string()))));
    desk.out();
    one(
        patch(&mut desk, Some(json!({"maximum": 99})), false),
        "does not fit a delayed event that waits for its time: at the top: value is greater",
    );
    one(patch(&mut desk, Some(json!({"maximum": 100})), false), "schema 2 and 100 delayed");
    desk.restart();
    one(patch(&mut desk, strings(), false), "does not fit a delayed event");
    desk.pass(100);
    desk.out();
    one(patch(&mut desk, strings(), false), "does not fit the event at partition 0, offset ");
}

/// The event is accepted but not yet in the table when the comparison begins; then one is accepted while the comparison
/// goes on.
#[test]
fn a_delayed_event_that_is_under_way_breaks_a_change_too() {
    let mut desk = with_numbers();
    desk.hold = true;
    desk.call(delayed(event("1")));
    one(patch(&mut desk, strings(), false), "does not fit an event that is being published");
    desk.release();
    let mut desk = with_numbers();
    desk.publish("t", "2");
    desk.hold_checks = true;
    let patched = Some(json!({"minimum": 2}));
    assert_eq!(patch(&mut desk, patched, false).len(), 1, "only the publish is answered");
    desk.call(delayed(event("1")));
    one(desk.out(), "delayed");
    desk.release_checks();
    one(desk.out(), "does not fit an event that is being published");
}

#[test]
fn what_was_stored_under_an_older_schema_is_answered_like_the_first() {
    let mut desk = with_numbers();
    desk.publish_event("t", with_id("a", "1"));
    let first = desk.out();
    one(first.clone(), "published");
    desk.call(delayed(with_id("late", "2")));
    one(desk.out(), "delayed");
    one(patch(&mut desk, strings(), true), "topic ");
    desk.publish_event("t", with_id("a", "1"));
    assert_eq!(desk.out(), first);
    // The same holds when a duplicate is delayed, comes in a batch, or its first event still waits.
    desk.call(delayed(with_id("a", "1")));
    assert_eq!(desk.out(), first);
    desk.publish_event("t", with_id("late", "2"));
    one(desk.out(), "delayed");
    let batch = |events| Request::PublishBatch(PublishBatch { topic: topic("t"), events });
    desk.call(batch(vec![event(r#""new""#), with_id("a", "1"), with_id("late", "2")]));
    one(desk.out(), "published");
    assert_eq!(stored(&desk), ["1", r#""new""#]);
    // A new event is refused, and the whole batch with it.
    desk.publish_event("t", with_id("b", "3"));
    one(desk.out(), "does not match version 2");
    desk.call(batch(vec![event(r#""x""#), with_id("a", "1"), with_id("b", "3")]));
    one(desk.out(), "the payload of events[2] does not match version 2");
    desk.call(batch(vec![with_id("a", "1"), event("3")]));
    one(desk.out(), "the payload of events[1] does not match version 2");
    desk.call(delayed(with_id("c", "4")));
    one(desk.out(), "does not match version 2");
    desk.pass(100);
    assert_eq!(stored(&desk), ["1", r#""new""#, "2"]);
}

/// The first event is accepted but not durable yet when its duplicate comes.
#[test]
fn a_duplicate_of_an_event_under_way_is_answered_after_it() {
    let mut desk = with_numbers();
    desk.hold = true;
    desk.publish_event("t", with_id("a", "1"));
    patch(&mut desk, strings(), true);
    desk.publish_event("t", with_id("a", "1"));
    assert_eq!(desk.out(), [""; 0]);
    desk.release();
    let out = desk.out();
    assert_eq!(out.iter().filter(|line| line.contains("published")).count(), 2, "{out:?}");
}

#[test]
fn the_work_of_a_batch_has_a_bound() {
    let mut desk = Desk::with(BusLimits { schema_batch_work_max: 60, ..BusLimits::default() });
    let settings = config(json!({"type": "integer"})).into();
    desk.call(Request::CreateTopic { topic: topic("t"), settings, only_new: false });
    desk.out();
    let batch = |events| Request::PublishBatch(PublishBatch { topic: topic("t"), events });
    desk.call(batch(vec![event("1"); 3]));
    one(desk.out(), "published");
    desk.call(batch(vec![event("1"); 100]));
    one(
        desk.out(),
        "the 100 bytes of payloads are too much to be checked at once against the schema of topic t",
    );
    assert_eq!(stored(&desk).len(), 3);
}

#[test]
fn a_verdict_counts_only_for_the_schema_in_force() {
    let mut desk = with_numbers();
    let numbers = desk.schemas[&topic("t")].clone();
    let verdict = |schema: &TopicSchema, payload| {
        let result = schema.check_all(&[event(payload)]);
        Box::new(SchemaVerdict { stamp: schema.stamp, result })
    };
    // The engine believes the verdict: this one is false.
    desk.checked = Some(verdict(&numbers, "1"));
    desk.publish("t", r#""believed""#);
    one(desk.out(), "published");
    one(patch(&mut desk, strings(), true), "topic ");
    // The schema has changed since this verdict: the new schema counts.
    desk.checked = Some(verdict(&numbers, "1"));
    desk.publish("t", "1");
    one(desk.out(), "does not match version 2");
    desk.checked = Some(verdict(&numbers, r#""x""#));
    desk.publish("t", r#""x""#);
    one(desk.out(), "published");
    let strings = desk.schemas[&topic("t")].clone();
    desk.checked = Some(verdict(&strings, "1"));
    desk.publish("t", "1");
    one(desk.out(), "does not match version 2");
}

#[test]
fn a_change_that_retained_events_do_not_match_is_refused_unless_forced() {
    let mut desk = with_numbers();
    for n in 1..=200 {
        desk.publish("t", &n.to_string());
    }
    desk.out();
    one(
        patch(&mut desk, Some(json!({"maximum": 150})), false),
        "partition 0, offset 151: at the top: value is greater",
    );
    one(patch(&mut desk, Some(json!({"maximum": 200})), false), "topic ");
    desk.publish("t", "201");
    one(desk.out(), "does not match version 2");
    one(patch(&mut desk, Some(json!({"maximum": 5})), true), "topic ");
    assert_eq!(versions(&desk), [(1, false), (2, false), (3, true)]);
    assert_eq!(stored(&desk).len(), 200, "events are not rewritten");
    // Setting the same schema again is no change.
    one(patch(&mut desk, Some(json!({"maximum": 5})), false), "topic ");
    assert_eq!(versions(&desk).len(), 3);
    one(patch(&mut desk, None, false), "topic ");
    desk.publish("t", r#""anything""#);
    one(desk.out(), "published");
}

#[test]
fn the_answer_says_which_events_were_compared() {
    let mut desk = Desk::with(BusLimits { schema_check_events_max: 60, ..BusLimits::default() });
    let partitions = TopicConfig { partitions: 2, ..TopicConfig::default() };
    desk.call(Request::CreateTopic { topic: topic("t"), settings: partitions.into(), only_new: false });
    for _ in 0..60 {
        desk.publish("t", "1");
    }
    desk.out();
    let shown = patch(&mut desk, Some(json!({"type": "integer"})), false);
    assert_eq!(shown, ["topic t created=false schema 1 checked 0/1-30 checked 1/1-30"]);
}

#[test]
fn a_change_that_was_not_compared_with_all_events_must_be_forced() {
    let by_events = BusLimits { schema_check_events_max: 20, ..BusLimits::default() };
    let by_bytes = BusLimits { schema_check_bytes_max: 10, ..BusLimits::default() };
    for (limits, below) in [(by_events, 181), (by_bytes, 137)] {
        let mut desk = Desk::with(limits);
        for n in 0..200 {
            // The oldest events are beyond the bound.
            desk.publish("t", if n < 4 { r#""old""# } else { "1" });
        }
        desk.out();
        let why = format!("events below offset {below} of partition 0 were not compared");
        one(patch(&mut desk, Some(json!({"type": "integer"})), false), &why);
        assert_eq!(versions(&desk), []);
        // An event that was compared and does not match is named first.
        let breaks = format!("offset {below}: at the top");
        one(patch(&mut desk, Some(json!({"type": "string"})), false), &breaks);
        one(patch(&mut desk, Some(json!({"type": "integer"})), true), "topic t created=false schema 1");
    }
}

#[test]
fn a_change_that_was_not_compared_with_all_delayed_events_must_be_forced() {
    let limits = BusLimits { schema_check_delayed_rows_max: 64, ..BusLimits::default() };
    let mut desk = Desk::with(limits);
    for n in 0..65 {
        let deliver_at = Some(DeliverAt::AfterMs(1_000 + n));
        desk.call(Request::Publish(Publish { topic: topic("t"), event: event("1"), deliver_at }));
    }
    desk.out();
    one(
        patch(&mut desk, Some(json!({"type": "integer"})), false),
        "some delayed events that wait for their time",
    );
    one(patch(&mut desk, Some(json!({"type": "integer"})), true), "topic t created=false schema 1");
}

/// The event is accepted under the old schema while the new one is compared with the retained events.
#[test]
fn no_event_slips_in_while_a_change_is_checked() {
    let mut desk = with_numbers();
    desk.publish("t", "1");
    desk.hold_checks = true;
    desk.out();
    assert!(patch(&mut desk, Some(json!({"maximum": 9})), false).is_empty());
    desk.publish("t", "10");
    one(desk.out(), "published");
    desk.release_checks();
    one(desk.out(), "an event that is being published: at the top: value is greater than the maximum of 9");
    desk.publish("t", "11");
    one(desk.out(), "published");
    assert_eq!(versions(&desk), [(1, false)]);
}

/// The event was accepted before, but is not in the store yet, so nobody who reads the store can see it.
#[test]
fn an_event_on_its_way_to_the_store_counts() {
    let mut desk = with_numbers();
    desk.hold = true;
    desk.publish("t", "10");
    one(patch(&mut desk, Some(json!({"maximum": 9})), false), "an event that is being published");
    desk.release();
    one(desk.out(), "published");
    // A delayed event that became due is on its way as well.
    let mut desk = with_numbers();
    let deliver_at = Some(DeliverAt::AfterMs(50));
    desk.call(Request::Publish(Publish { topic: topic("t"), event: event("10"), deliver_at }));
    desk.out();
    desk.hold = true;
    desk.pass(100);
    one(patch(&mut desk, Some(json!({"maximum": 9})), false), "an event that is being published");
}

#[test]
fn an_event_that_becomes_due_while_a_change_is_checked_counts() {
    let mut desk = with_numbers();
    desk.publish("t", "1");
    let deliver_at = Some(DeliverAt::AfterMs(50));
    desk.call(Request::Publish(Publish { topic: topic("t"), event: event("10"), deliver_at }));
    desk.out();
    desk.hold_checks = true;
    patch(&mut desk, Some(json!({"maximum": 9})), false);
    desk.pass(100);
    desk.release_checks();
    one(desk.out(), "an event that is being published");
}

#[test]
fn other_changes_may_come_while_one_is_checked() {
    let mut desk = with_numbers();
    desk.publish("t", "1");
    desk.out();
    desk.hold_checks = true;
    patch(&mut desk, Some(json!({"maximum": 9})), false);
    one(patch(&mut desk, Some(json!({"maximum": 8})), false), "another change of the schema");
    let retention = TopicPatch { retention_ms: Some(Some(5000)), ..TopicPatch::default() };
    desk.call(Request::PatchTopic { topic: topic("t"), patch: retention.into() });
    one(desk.out(), "topic ");
    desk.release_checks();
    one(desk.out(), "topic t created=false schema 2 checked 0/1-1");
    let row = &desk.tables[&(Space::Topics, "default/t".to_owned())];
    let config = TopicRow::decode("t", row).unwrap().config;
    assert_eq!((config.retention_ms, config.schema.as_deref()), (Some(5000), Some(&json!({"maximum": 9}))));
    assert_eq!(versions(&desk), [(1, false), (2, false)]);
    // The topic is deleted while its events are compared.
    desk.hold_checks = true;
    patch(&mut desk, Some(json!({"maximum": 7})), false);
    desk.call(Request::DeleteTopic { topic: topic("t") });
    one(desk.out(), "deleted t");
    desk.release_checks();
    one(desk.out(), "topic t was deleted");
}

#[test]
fn a_restart_keeps_schema_and_versions_and_a_successor_starts_anew() {
    let mut desk = Desk::with(BusLimits { schema_versions_max: 3, ..BusLimits::default() });
    desk.call(Request::CreateTopic {
        topic: topic("t"),
        settings: config(json!({"maximum": 100})).into(),
        only_new: false,
    });
    for n in 1..6 {
        patch(&mut desk, Some(json!({"maximum": 100 + n})), false);
    }
    desk.out();
    assert_eq!(versions(&desk), [(4, false), (5, false), (6, false)]);
    desk.restart();
    desk.publish("t", "106");
    one(desk.out(), "does not match version 6");
    desk.publish("t", "105");
    one(desk.out(), "published");
    // The schema is removed and set again: version numbers go on.
    patch(&mut desk, None, false);
    desk.restart();
    desk.publish("t", "107");
    one(desk.out(), "published");
    patch(&mut desk, Some(json!({"maximum": 200})), false);
    assert_eq!(versions(&desk), [(5, false), (6, false), (7, false)]);
    desk.call(Request::DeleteTopic { topic: topic("t") });
    desk.out();
    assert_eq!(versions(&desk), []);
    assert!(desk.schemas.is_empty());
    desk.publish("t", "\"free\"");
    one(desk.out(), "published");
    desk.call(Request::CreateTopic {
        topic: topic("t"),
        settings: config(json!({"type": "string"})).into(),
        only_new: false,
    });
    desk.out();
    assert_eq!(versions(&desk), [(1, false)]);
}

#[test]
fn what_the_server_writes_is_not_checked_and_cannot_have_a_schema() {
    let mut desk = with_numbers();
    for name in ["t.DLQ", "system.metrics"] {
        desk.call(Request::CreateTopic {
            topic: topic(name),
            settings: config(json!(true)).into(),
            only_new: false,
        });
        one(desk.out(), "cannot have a schema");
    }
    let mut tombstones = config(json!({"type": "integer"}));
    tombstones.compact = true;
    desk.call(Request::CreateTopic { topic: topic("c"), settings: tombstones.into(), only_new: false });
    desk.publish_event("c", keyed("k", "null"));
    one(desk.out().into_iter().skip(1).collect(), "published");
}

#[test]
fn schemas_are_bounded() {
    let mut desk =
        Desk::with(BusLimits { schema_bytes_max: 100, schemas_bytes_total_max: 150, ..BusLimits::default() });
    let long = json!({"description": "x".repeat(80)});
    desk.call(Request::CreateTopic {
        topic: topic("a"),
        settings: config(json!({"description": "x".repeat(90)})).into(),
        only_new: false,
    });
    one(desk.out(), "the number of bytes of schema is 108: at most 100 is allowed");
    desk.call(Request::CreateTopic {
        topic: topic("a"),
        settings: config(long.clone()).into(),
        only_new: false,
    });
    one(desk.out(), "topic ");
    desk.call(Request::CreateTopic {
        topic: topic("b"),
        settings: config(long.clone()).into(),
        only_new: false,
    });
    one(desk.out(), "the limit of 150 bytes of schemas is reached");
    desk.call(Request::DeleteTopic { topic: topic("a") });
    desk.out();
    desk.call(Request::CreateTopic { topic: topic("b"), settings: config(long).into(), only_new: false });
    one(desk.out(), "topic ");
    desk.call(Request::CreateTopic {
        topic: topic("c"),
        settings: config(json!({"type": 5})).into(),
        only_new: false,
    });
    one(desk.out(), "schema is refused at /type");
}
