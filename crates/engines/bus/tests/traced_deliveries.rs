//! Deliveries as metrics and traces see them: the ends of those that may be traced, how long they took, how old they are.

mod harness;

use std::collections::BTreeMap;
use std::sync::Arc;

use harness::{Harness, event, subscription};
use millrace_bus::*;
use millrace_model::{EventBody, Headers, NewEvent, TRACEPARENT};

fn traced(payload: &str) -> NewEvent {
    let headers = [(TRACEPARENT.to_owned(), "any".to_owned())];
    let headers = Some(Headers::from_map(&BTreeMap::from(headers)));
    let body = EventBody { headers, ..EventBody::clone(&event(payload).body) };
    NewEvent { id: None, body: Arc::new(body) }
}

fn harness(told: bool) -> Harness {
    let limits = BusLimits {
        ack_timeout_ms: 1000,
        max_attempts: 9,
        note_traced_deliveries: told,
        ..BusLimits::default()
    };
    let mut harness = Harness::with(limits);
    join(&mut harness, 1);
    harness
}

fn join(harness: &mut Harness, conn: u64) {
    harness.open(conn);
    let subscribe = Subscribe { from: Some(From::Earliest), ..subscription("t", "g") };
    harness.request(conn, Request::Subscribe(subscribe));
}

/// The ends that were told since the last call: attempt, duration in milliseconds, end.
fn ends(harness: &mut Harness) -> Vec<(u32, u64, &'static str)> {
    let told = harness.notes.drain(..).filter_map(|note| match note {
        Note::DeliveryEnded { attempts, lasted_ms, end, .. } => Some((attempts, lasted_ms, end.as_str())),
        _ => None,
    });
    told.collect()
}

fn stats(harness: &mut Harness) -> Stats {
    harness.reply(Request::Stats, |reply| match reply {
        Reply::Stats(stats) => Some(*stats),
        _ => None,
    })
}

#[test]
fn every_attempt_of_a_traced_event_is_told_with_its_end() {
    let mut harness = harness(true);
    harness.publish_event("t", traced("1"));
    harness.pass(30);
    harness.nack(1, "t", "g", 1, None);
    harness.pass(1000);
    harness.give_back(1, "t", "g", 1);
    harness.input(Input::Close { conn: ConnId(1) });
    join(&mut harness, 2);
    harness.pass(7);
    harness.ack(2, "t", "g", 1);
    assert_eq!(
        ends(&mut harness),
        [
            (1, 30, "refused"),
            (2, 1000, "timeout"),
            (3, 0, "given_back"),
            (3, 0, "disconnect"),
            (4, 7, "acked")
        ]
    );
}

#[test]
fn a_cumulative_ack_ends_every_delivery_that_it_completes() {
    let mut harness = harness(true);
    for payload in ["1", "2"] {
        harness.publish_event("t", traced(payload));
    }
    harness.publish("t", "3");
    harness.pass(5);
    harness.ack(1, "t", "g", 3);
    assert_eq!(ends(&mut harness), [(1, 5, "acked"), (1, 5, "acked")], "the third has no trace");
}

#[test]
fn nothing_is_told_unless_asked_for() {
    let mut harness = harness(false);
    harness.publish_event("t", traced("1"));
    harness.ack(1, "t", "g", 1);
    assert_eq!(ends(&mut harness), []);
}

#[test]
fn the_age_of_deliveries_under_way_and_the_time_to_their_acks_are_counted() {
    let mut harness = harness(false);
    harness.publish("t", "1");
    harness.pass(100);
    harness.publish("t", "2");
    harness.pass(20);
    let before = stats(&mut harness);
    assert_eq!((before.by_group[0].inflight, before.by_group[0].oldest_inflight_ms), (2, 120));
    harness.ack(1, "t", "g", 2);
    let after = stats(&mut harness);
    assert_eq!((after.by_group[0].inflight, after.by_group[0].oldest_inflight_ms), (0, 0));
    assert_eq!((after.ack_times.counts.iter().sum::<u64>(), after.ack_times.sum_ms), (2, 140));
}
