//! Deliveries that reached nobody are given back and do not count.

mod harness;

use harness::{Harness, subscription};
use millrace_bus::*;

/// Topic `t` with one event that may be delivered once, held by connection 1, which takes nothing more.
fn held(window: u32) -> Harness {
    let mut harness = Harness::with(BusLimits { max_attempts: 1, ..BusLimits::default() });
    harness.publish("t", "1");
    join(&mut harness, 1, window);
    harness.request(1, Request::Flow { credits: 0 });
    harness.expect(&["published 0/1", "subscribed 0/1", "1<- g t/0/1 1", "flow"]);
    harness
}

fn join(harness: &mut Harness, conn: u64, window: u32) {
    harness.open(conn);
    let (from, max_inflight) = (Some(From::Earliest), Some(window));
    let subscribe = Subscribe { from, max_inflight, ..subscription("t", "g") };
    harness.request(conn, Request::Subscribe(subscribe));
}

#[test]
fn what_is_given_back_is_free_at_once_and_was_no_attempt() {
    let mut harness = held(1);
    harness.give_back(1, "t", "g", 1);
    harness.expect(&[]);
    join(&mut harness, 2, 1);
    harness.expect(&["subscribed 0/1", "2<- g t/0/1 1"]);
    harness.nack(2, "t", "g", 1, None);
    assert_eq!(harness.committed("t", "g", 0), 1, "that was its one attempt");
}

#[test]
fn a_delivery_that_was_written_down_is_taken_back_durably() {
    let mut harness = held(1);
    // Long enough for a failed delivery to be written.
    harness.pass(harness.limits.delivered_flush_ms);
    harness.give_back(1, "t", "g", 1);
    for conn in 2..5 {
        harness.restart();
        join(&mut harness, conn, 1);
        harness.expect(&["subscribed 0/1", &format!("{conn}<- g t/0/1 1")]);
        harness.pass(harness.limits.delivered_flush_ms);
        harness.give_back(conn, "t", "g", 1);
        // The event goes to the same connection again, which has room.
        harness.expect(&[&format!("{conn}<- g t/0/1 1")]);
        harness.request(conn, Request::Flow { credits: 0 });
        harness.give_back(conn, "t", "g", 1);
        harness.expect(&["flow"]);
    }
    assert_eq!(harness.committed("t", "g", 0), 0, "nothing was given up");
}

#[test]
fn attempts_before_it_still_count() {
    let mut harness = Harness::with(BusLimits { max_attempts: 2, ..BusLimits::default() });
    harness.publish("t", "1");
    join(&mut harness, 1, 1);
    harness.nack(1, "t", "g", 1, None);
    harness.give_back(1, "t", "g", 1);
    harness.expect(&[
        "published 0/1",
        "subscribed 0/1",
        "1<- g t/0/1 1",
        "1<- g t/0/1 1 attempt 2",
        "1<- g t/0/1 1 attempt 2",
    ]);
    harness.nack(1, "t", "g", 1, None);
    assert_eq!(harness.committed("t", "g", 0), 1);
}

#[test]
fn only_whoever_holds_it_gives_it_back() {
    let mut harness = held(2);
    join(&mut harness, 2, 1);
    harness.out();
    let refused = "refused unknown_offset: offset 1 of partition 0 is not in flight for group g: this connection does not hold it";
    harness.give_back(2, "t", "g", 1);
    harness.expect(&[refused]);
    harness.ack(1, "t", "g", 1);
    harness.give_back(1, "t", "g", 1);
    harness.expect(&[refused]);
    harness.open(3);
    harness.give_back(3, "t", "g", 1);
    assert!(harness.out()[0].starts_with("refused bad_group"), "it is no member");
}
