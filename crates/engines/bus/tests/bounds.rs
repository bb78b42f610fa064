//! Behaviour at the bounds: memory for the tail, batches of the largest size, requests that overtake one another.

mod harness;

use std::sync::Arc;

use harness::{Harness, event, group, keyed, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

fn earliest(name: &str, window: u32) -> Request {
    let from = Some(From::Earliest);
    let ack_mode = Some(AckMode::Individual);
    Request::Subscribe(Subscribe { from, max_inflight: Some(window), ack_mode, ..subscription(name, "g") })
}

fn offsets_of(lines: &[String], conn: u64) -> Vec<String> {
    let start = format!("{conn}<- g ");
    lines.iter().filter(|line| line.starts_with(&start)).map(|line| line[start.len()..].to_owned()).collect()
}

#[test]
fn without_memory_for_the_tail_every_event_still_arrives_in_order() {
    let limits = BusLimits {
        tail_bytes_total_max: 300,
        fetched_bytes_total_max: 200,
        fetched_max: 2,
        ..BusLimits::default()
    };
    let mut harness = Harness::with(limits);
    for (conn, name) in [(1, "a"), (2, "b")] {
        harness.open(conn);
        harness.request(conn, earliest(name, 2));
    }
    for n in 1..=20 {
        harness.publish("a", &n.to_string());
        harness.publish("b", &n.to_string());
        if n % 3 == 0 {
            harness.open(100 + n);
            harness.request(100 + n, Request::Subscribe(subscription("a", "late")));
        }
    }
    for offset in 1..=20 {
        harness.ack(1, "a", "g", offset);
        harness.ack(2, "b", "g", offset);
    }
    let out = harness.out();
    for (conn, name) in [(1, "a"), (2, "b")] {
        let expected: Vec<String> = (1..=20).map(|n| format!("{name}/0/{n} {n}")).collect();
        assert_eq!(offsets_of(&out, conn), expected);
    }
}

#[test]
fn refusals_with_long_reasons_are_written_in_batches_that_fit() {
    let mut harness = Harness::with(BusLimits { max_inflight_max: 5000, ..BusLimits::default() });
    harness.open(1);
    for n in 1..=4000 {
        harness.publish("t", &n.to_string());
    }
    harness.request(1, earliest("t", 5000));
    harness.hold = true;
    for offset in 1..=4000 {
        let nack = Nack {
            topic: topic("t"),
            partition: Partition(0),
            group: group("g"),
            offset: Offset(offset),
            reason: Some("\u{1}".repeat(2000)),
            delay_ms: Some(3_600_000),
            confirm: false,
        };
        harness.request(1, Request::Nack(nack));
    }
    harness.release();
    harness.pass(1_000);
    assert_eq!(harness.count_rows(Space::Attempts), 4000);
    // Seeking past these events deletes all the rows, again in batches that fit.
    let (topic, group) = (topic("t"), group("g"));
    harness.call(Request::SeekGroup { topic, group, partition: None, from: From::Latest });
    harness.pass(1_000);
    assert_eq!(harness.count_rows(Space::Attempts), 0);
}

#[test]
fn a_topic_with_many_groups_is_deleted_in_batches_that_fit() {
    let mut harness = Harness::new();
    let config = TopicConfig { partitions: 1024, ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    harness.open(1);
    for n in 0..20 {
        let group = harness::group(&format!("{}{n}", "g".repeat(240)));
        harness.request(1, Request::Subscribe(Subscribe { group, ..subscription("t", "g") }));
    }
    harness.call(Request::DeleteTopic { topic: topic("t") });
    assert_eq!(harness.out().last().map(String::as_str), Some("deleted t"));
    assert!(harness.tables().is_empty());
}

#[test]
fn partitions_grow_for_many_groups_at_once_and_groups_find_them_after_a_restart() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    let patch = TopicPatch { partitions: Some(1024), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("t"), patch: patch.into() });
    harness.publish_event("t", keyed("duck-1", "1"));
    harness.restart();
    harness.open(1);
    harness.out();
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    let out = harness.out();
    assert_eq!(offsets_of(&out, 1).len(), 1, "{out:?}");
}

#[test]
fn a_batch_that_is_too_large_after_all_is_told_to_its_author() {
    let mut harness = Harness::new();
    harness.hold = true;
    harness.publish("t", "1");
    let (token, _) = harness.held.remove(0);
    harness.input(Input::TooLarge { token, bytes: 20 << 20 });
    harness.expect(&["refused too_large: the batch holds 20971520 bytes: at most 12582912 are allowed"]);
}

#[test]
fn pipelined_subscriptions_count_before_they_are_durable() {
    let limits = BusLimits { subscriptions_per_connection_max: 2, ..BusLimits::default() };
    let mut harness = Harness::with(limits);
    harness.open(1);
    harness.hold = true;
    for name in ["a", "b", "c"] {
        harness.request(1, Request::Subscribe(subscription(name, "g")));
    }
    harness.expect(&["refused limit_reached: the limit of 2 subscriptions per connection is reached"]);
    harness.release();
    harness.expect(&["subscribed 0/1", "subscribed 0/1"]);
}

#[test]
fn an_unsubscribe_that_overtakes_its_subscription_waits_for_it() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.hold = true;
    harness.request(1, Request::Subscribe(subscription("t", "g")));
    harness.request(1, Request::Unsubscribe { topic: topic("t"), group: group("g") });
    harness.release();
    harness.expect(&["subscribed 0/1", "unsubscribed"]);
    harness.publish("t", "1");
    harness.expect(&["published 0/1"]);
}

#[test]
fn a_new_filter_also_holds_for_what_was_read_under_the_old_one() {
    let mut harness = Harness::new();
    harness.open(1);
    harness.request(1, earliest("t", 2));
    for n in 1..=6 {
        harness.publish_event("t", keyed(if n % 2 == 0 { "a" } else { "b" }, &n.to_string()));
    }
    harness.out();
    let filter = Filter { key: Some("a".to_owned()), header: None };
    let more = Subscribe { filter, max_inflight: Some(8), ..subscription("t", "g") };
    harness.request(1, Request::Subscribe(more));
    harness.expect(&["subscribed 0/1", "1<- g t/0/4 4", "1<- g t/0/6 6"]);
}

#[test]
fn a_large_event_is_read_again_to_be_sent_again_and_to_be_buried() {
    let mut harness =
        Harness::with(BusLimits { open_event_bytes_max: 0, max_attempts: 2, ..BusLimits::default() });
    harness.open(1);
    harness.request(1, earliest("t", 1));
    harness.publish("t", "1");
    harness.out();
    harness.nack(1, "t", "g", 1, None);
    harness.expect(&["1<- g t/0/1 1 attempt 2"]);
    harness.nack(1, "t", "g", 1, None);
    assert_eq!(harness.committed("t", "g", 0), 1);
    assert_eq!(harness.log("t.DLQ")[0].body.payload.as_str(), "1");
}

#[test]
fn a_group_without_members_keeps_nothing_and_forgets_nothing() {
    let mut harness = Harness::new();
    harness.open(1);
    for n in 1..=5 {
        harness.publish("t", &n.to_string());
    }
    harness.request(1, earliest("t", 4));
    harness.ack(1, "t", "g", 4);
    harness.restart();
    harness.open(1);
    // The member reads all events with a window of one, leaves, and comes back as connection 2.
    harness.request(1, earliest("t", 1));
    harness.input(Input::Close { conn: ConnId(1) });
    harness.open(2);
    harness.out();
    harness.request(2, earliest("t", 8));
    let out = harness.out();
    let expected = ["t/0/1 1 attempt 2", "t/0/2 2", "t/0/3 3", "t/0/5 5"];
    assert_eq!(offsets_of(&out, 2), expected);
}

#[test]
fn a_group_that_retention_has_passed_remembers_no_more_than_it_may() {
    let mut harness = Harness::new();
    for n in 1..=10 {
        harness.publish("t", &n.to_string());
    }
    harness.open(1);
    harness.request(1, earliest("t", 1));
    // The member holds one event, nine were read ahead. Then others append, and retention removes everything up to the
    // end.
    let (stream, end) = (topic("t").stream(Partition(0)), Offset(1_000_000));
    harness.input(Input::Elsewhere {
        reaches: vec![Reach { stream: stream.clone(), start: end, next: end }],
        delayed: None,
    });
    harness.ack(1, "t", "g", 1);
    harness.input(Input::Close { conn: ConnId(1) });
    harness.pass(1_000);
    let row = |harness: &Harness| {
        let key = keys::cursor(&stream, &group("g"));
        let value = harness.row(Space::Cursors, &key);
        CursorRow::decode(&key, &value).expect("a row")
    };
    let ahead = row(&harness).ahead.iter().max();
    assert!(ahead.is_none_or(|bit| bit < AHEAD_MAX), "{ahead:?} beyond the commit");
    harness.open(2);
    harness.out();
    harness.request(2, earliest("t", 8));
    harness.expect(&["subscribed 0/2", "2<- g t/0/2 2 attempt 2"]);
    harness.ack(2, "t", "g", 2);
    harness.pass(1_000);
    let updated = row(&harness).updated;
    assert!(updated.is_some());
    assert_eq!(
        row(&harness),
        CursorRow { committed: end.before(), delivered: Offset(2), updated, ..CursorRow::default() }
    );
}

#[test]
fn a_delayed_event_that_cannot_be_read_is_set_aside_and_counted() {
    for (from, to) in [("{", "broken"), ("default/t", "no topic of this name")] {
        let mut harness = Harness::new();
        let deliver_at = Some(DeliverAt::AfterMs(1_000));
        harness.call(Request::Publish(Publish { topic: topic("t"), event: event("1"), deliver_at }));
        let mut written = String::new();
        for ((space, key), value) in harness.tables() {
            if space == Space::Due {
                written = std::str::from_utf8(&value).expect("JSON").replacen(from, to, 1);
                harness.put_row(space, &key, written.clone().into());
            }
        }
        harness.pass(2_000);
        let tables = harness.tables();
        let aside =
            tables.iter().find(|((space, key), _)| *space == Space::Kv && key.starts_with("quarantine/due/"));
        assert_eq!(aside.map(|(_, value)| value.as_ref()), Some(written.as_bytes()));
        assert!(harness.tables().keys().all(|(space, _)| *space != Space::Due));
        harness.call(Request::Stats);
        let stats = harness.out().pop().unwrap_or_default();
        assert!(stats.contains("quarantined: 1"), "{stats}");
    }
}

#[test]
fn delayed_events_of_every_size_are_moved_in_batches_that_fit() {
    let mut harness = Harness::new();
    let deliver_at = Some(DeliverAt::AfterMs(1_000));
    let payload = |mib: usize| format!("\"{}\"", "x".repeat(mib << 20));
    for mib in [3, 11, 3, 1] {
        harness.call(Request::Publish(Publish {
            topic: topic("t"),
            event: event(&payload(mib)),
            deliver_at,
        }));
    }
    harness.pass(2_000);
    assert_eq!(harness.log("t").len(), 4);
    assert!(harness.tables().keys().all(|(space, _)| *space != Space::Due));
}

#[test]
fn delayed_events_that_the_store_refuses_are_tried_again() {
    let mut harness = Harness::new();
    let deliver_at = Some(DeliverAt::AfterMs(1_000));
    harness.call(Request::Publish(Publish { topic: topic("t"), event: event("1"), deliver_at }));
    harness.hold = true;
    harness.pass(2_000);
    let (token, batch) = harness.held.remove(0);
    harness.input(Input::TooLarge { token, bytes: batch.bytes() });
    assert!(harness.held.is_empty(), "not at once");
    harness.hold = false;
    harness.pass(1_000);
    assert_eq!(harness.log("t").len(), 1);
}

#[test]
fn a_row_that_cannot_be_read_stops_the_start_and_is_named() {
    let broken = |key: &str| vec![(key.to_owned(), bytes::Bytes::from_static(b"{"))];
    let now = Now::default();
    let snapshot = Snapshot { cursors: broken("default/t/g/0"), ..Snapshot::default() };
    let error = Bus::restore(BusLimits::default(), snapshot, now).expect_err("it must not start");
    assert!(error.to_string().contains("default/t/g/0"), "{error}");
}

fn create(harness: &mut Harness, name: &str, partitions: u32) {
    let config = TopicConfig { partitions, ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic(name), settings: config.into(), only_new: false });
}

#[test]
fn cursors_are_counted_over_all_topics_and_only_more_of_them_are_refused() {
    let mut harness = Harness::with(BusLimits { cursors_total_max: 8, ..BusLimits::default() });
    harness.open(1);
    create(&mut harness, "t", 3);
    create(&mut harness, "u", 2);
    harness.out();
    for (name, group) in [("t", "a"), ("t", "b"), ("u", "a")] {
        harness.request(1, Request::Subscribe(subscription(name, group)));
    }
    let refused = |more, held| {
        format!(
            "refused limit_reached: this takes {more} more cursors (groups x partitions), and {held} of at most 8 are there"
        )
    };
    harness.request(1, Request::Subscribe(subscription("u", "b")));
    assert_eq!(harness.out()[3], refused(2, 8), "a subscription");
    // An existing group can still be joined.
    harness.request(1, Request::Subscribe(subscription("t", "a")));
    create(&mut harness, "t", 4);
    create(&mut harness, "v", 4);
    let out = harness.out();
    assert!(out[0].starts_with("subscribed"), "{out:?}");
    assert_eq!(out[1], refused(2, 8), "growth takes a cursor for each group");
    assert!(out[2].contains("topic v"), "a topic without groups takes none: {out:?}");
    // Deleting groups and topics makes room, also after a restart.
    harness.restart();
    harness.open(1);
    harness.call(Request::DeleteGroup { topic: topic("t"), group: harness::group("b") });
    harness.request(1, Request::Subscribe(subscription("u", "b")));
    harness.call(Request::DeleteTopic { topic: topic("u") });
    harness.request(1, Request::Subscribe(subscription("v", "a")));
    let out = harness.out();
    assert_eq!(out.iter().filter(|line| line.starts_with("subscribed")).count(), 2, "{out:?}");
    // A store from before the bound is served as it is.
    harness.limits.cursors_total_max = 1;
    harness.restart();
    harness.open(1);
    harness.out();
    harness.request(1, Request::Subscribe(subscription("t", "a")));
    harness.call(Request::PatchTopic { topic: topic("t"), patch: TopicPatch::default().into() });
    let out = harness.out();
    assert!(!out.iter().any(|line| line.contains("refused")), "{out:?}");
}

#[test]
fn a_subscription_that_is_refused_makes_no_topic() {
    let mut harness = Harness::with(BusLimits { cursors_total_max: 1, ..BusLimits::default() });
    harness.open(1);
    harness.request(1, Request::Subscribe(subscription("t", "a")));
    harness.request(1, Request::Subscribe(subscription("u", "a")));
    let out = harness.out();
    assert!(out[1].contains("limit_reached"), "{out:?}");
    harness.call(Request::DescribeTopic { topic: topic("u") });
    assert!(harness.out()[0].contains("there is no topic u"));
    harness.publish("u", "1");
    harness.restart();
    harness.call(Request::DescribeTopic { topic: topic("u") });
    assert!(harness.out()[1].contains("topic u"), "its row was stored with its first event");
}

#[test]
fn partitions_of_all_topics_together_are_bounded() {
    let mut harness = Harness::with(BusLimits { partitions_total_max: 5, ..BusLimits::default() });
    create(&mut harness, "t", 4);
    harness.out();
    create(&mut harness, "u", 2);
    create(&mut harness, "t", 6);
    harness.publish("v", "1");
    harness.publish("w", "1");
    harness.expect(&[
        "refused limit_reached: this takes 2 more partitions, and 4 of at most 5 are there",
        "refused limit_reached: this takes 2 more partitions, and 4 of at most 5 are there",
        "published 0/1",
        "refused limit_reached: this takes 1 more partitions, and 5 of at most 5 are there",
    ]);
    harness.call(Request::DeleteTopic { topic: topic("t") });
    harness.out();
    harness.publish("w", "1");
    harness.expect(&["published 0/1"]);
}

#[test]
fn windows_of_all_subscriptions_together_are_bounded_and_one_agent_gets_half() {
    let agent = |name: &str| -> Requester {
        Requester::Agent(Arc::new(Principal {
            agent: Actor::new(name).expect("a name"),
            roles: Vec::new(),
            namespaces: None,
        }))
    };
    let mut harness = Harness::with(BusLimits { inflight_total_max: 100, ..BusLimits::default() });
    (1..=3).for_each(|conn| harness.open(conn));
    let wide = |group: &str, max_inflight| Subscribe {
        max_inflight: Some(max_inflight),
        ..subscription("t", group)
    };
    harness.by = agent("eve");
    harness.request(1, Request::Subscribe(wide("a", 40)));
    harness.request(2, Request::Subscribe(wide("b", 11)));
    let out = harness.out();
    assert!(out[0].starts_with("subscribed"), "{out:?}");
    assert!(
        out[1].contains("11 more unacknowledged events of one agent") && out[1].contains("40 of at most 50"),
        "{out:?}"
    );
    // Several subscriptions at once, before the first has joined, do not get around the bound.
    harness.hold = true;
    harness.request(2, Request::Subscribe(wide("b", 10)));
    harness.request(2, Request::Subscribe(wide("c", 10)));
    harness.release();
    let out = harness.out();
    assert_eq!(out.iter().filter(|line| line.starts_with("subscribed")).count(), 1, "{out:?}");
    // Another agent still has room, and a window that becomes narrower frees its part.
    harness.by = agent("bob");
    harness.request(3, Request::Subscribe(wide("d", 50)));
    assert!(harness.out()[0].starts_with("subscribed"));
    harness.by = agent("eve");
    harness.request(1, Request::Subscribe(wide("a", 1)));
    harness.request(2, Request::Subscribe(wide("e", 39)));
    let out = harness.out();
    assert!(out.iter().all(|line| line.starts_with("subscribed")), "{out:?}");
    harness.input(Input::Close { conn: ConnId(2) });
    harness.request(1, Request::Subscribe(wide("f", 49)));
    assert!(harness.out().iter().any(|line| line.starts_with("subscribed")));
}
