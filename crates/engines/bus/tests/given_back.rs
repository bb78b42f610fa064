//! Deliveries that reached nobody are given back and do not count.

mod desk;

use desk::{Desk, subscription};
use millrace_bus::*;

/// Topic `t` with one event that may be delivered once, held by connection 1, which takes nothing more.
fn held(window: u32) -> Desk {
    let mut desk = Desk::with(BusLimits { max_attempts: 1, ..BusLimits::default() });
    desk.publish("t", "1");
    join(&mut desk, 1, window);
    desk.request(1, Request::Flow { credits: 0 });
    desk.expect(&["published 0/1", "subscribed 0/1", "1<- g t/0/1 1", "flow"]);
    desk
}

fn join(desk: &mut Desk, conn: u64, window: u32) {
    desk.open(conn);
    let (from, max_inflight) = (Some(From::Earliest), Some(window));
    let subscribe = Subscribe { from, max_inflight, ..subscription("t", "g") };
    desk.request(conn, Request::Subscribe(subscribe));
}

#[test]
fn what_is_given_back_is_free_at_once_and_was_no_attempt() {
    let mut desk = held(1);
    desk.give_back(1, "t", "g", 1);
    desk.expect(&[]);
    join(&mut desk, 2, 1);
    desk.expect(&["subscribed 0/1", "2<- g t/0/1 1"]);
    desk.nack(2, "t", "g", 1, None);
    assert_eq!(desk.committed("t", "g", 0), 1, "that was its one attempt");
}

#[test]
fn a_delivery_that_was_written_down_is_taken_back_durably() {
    let mut desk = held(1);
    // Long enough for a failed delivery to be written.
    desk.pass(desk.limits.delivered_flush_ms);
    desk.give_back(1, "t", "g", 1);
    for conn in 2..5 {
        desk.restart();
        join(&mut desk, conn, 1);
        desk.expect(&["subscribed 0/1", &format!("{conn}<- g t/0/1 1")]);
        desk.pass(desk.limits.delivered_flush_ms);
        desk.give_back(conn, "t", "g", 1);
        // The event goes to the same connection again, which has room.
        desk.expect(&[&format!("{conn}<- g t/0/1 1")]);
        desk.request(conn, Request::Flow { credits: 0 });
        desk.give_back(conn, "t", "g", 1);
        desk.expect(&["flow"]);
    }
    assert_eq!(desk.committed("t", "g", 0), 0, "nothing was given up");
}

#[test]
fn attempts_before_it_still_count() {
    let mut desk = Desk::with(BusLimits { max_attempts: 2, ..BusLimits::default() });
    desk.publish("t", "1");
    join(&mut desk, 1, 1);
    desk.nack(1, "t", "g", 1, None);
    desk.give_back(1, "t", "g", 1);
    desk.expect(&[
        "published 0/1",
        "subscribed 0/1",
        "1<- g t/0/1 1",
        "1<- g t/0/1 1 attempt 2",
        "1<- g t/0/1 1 attempt 2",
    ]);
    desk.nack(1, "t", "g", 1, None);
    assert_eq!(desk.committed("t", "g", 0), 1);
}

#[test]
fn only_whoever_holds_it_gives_it_back() {
    let mut desk = held(2);
    join(&mut desk, 2, 1);
    desk.out();
    let refused = "refused unknown_offset: offset 1 of partition 0 is not in flight for group g: this connection does not hold it";
    desk.give_back(2, "t", "g", 1);
    desk.expect(&[refused]);
    desk.ack(1, "t", "g", 1);
    desk.give_back(1, "t", "g", 1);
    desk.expect(&[refused]);
    desk.open(3);
    desk.give_back(3, "t", "g", 1);
    assert!(desk.out()[0].starts_with("refused bad_group"), "it is no member");
}
