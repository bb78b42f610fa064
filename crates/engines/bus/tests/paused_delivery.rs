//! Deliveries that are held back, for a leader that may have been replaced: nothing goes out, nothing is lost, nothing
//! counts as an attempt.

mod harness;

use harness::{Harness, subscription};
use millrace_bus::*;

fn join(harness: &mut Harness, conn: u64, group: &str) {
    harness.open(conn);
    let subscribe =
        Subscribe { from: Some(From::Earliest), max_inflight: Some(2), ..subscription("t", group) };
    harness.request(conn, Request::Subscribe(subscribe));
}

fn pause(harness: &mut Harness, is_paused: bool) {
    harness.input(Input::PauseDelivery { is_paused });
}

#[test]
fn nothing_goes_out_while_paused_and_everything_after() {
    let mut harness = Harness::new();
    join(&mut harness, 1, "g");
    pause(&mut harness, true);
    join(&mut harness, 2, "h");
    for payload in ["1", "2", "3"] {
        harness.publish("t", payload);
    }
    let told = ["subscribed 0/1", "subscribed 0/1", "published 0/1", "published 0/2", "published 0/3"];
    harness.expect(&told);
    pause(&mut harness, true);
    harness.expect(&[]);
    pause(&mut harness, false);
    harness.expect(&["1<- g t/0/1 1", "1<- g t/0/2 2", "2<- h t/0/1 1", "2<- h t/0/2 2"]);
    pause(&mut harness, false);
    harness.expect(&[]);
}

#[test]
fn acks_are_taken_while_paused_and_free_no_room() {
    let mut harness = Harness::new();
    for payload in ["1", "2", "3"] {
        harness.publish("t", payload);
    }
    join(&mut harness, 1, "g");
    harness.expect(&[
        "published 0/1",
        "published 0/2",
        "published 0/3",
        "subscribed 0/1",
        "1<- g t/0/1 1",
        "1<- g t/0/2 2",
    ]);
    pause(&mut harness, true);
    harness.ack(1, "t", "g", 2);
    harness.expect(&[]);
    assert_eq!(harness.committed("t", "g", 0), 2);
    pause(&mut harness, false);
    harness.expect(&["1<- g t/0/3 3"]);
}

#[test]
fn leases_that_end_while_paused_are_sent_again_after() {
    let mut harness = Harness::new();
    harness.publish("t", "1");
    join(&mut harness, 1, "g");
    harness.expect(&["published 0/1", "subscribed 0/1", "1<- g t/0/1 1"]);
    pause(&mut harness, true);
    harness.input(Input::Evict { conn: ConnId(1) });
    join(&mut harness, 2, "g");
    harness.pass(harness.limits.ack_timeout_ms);
    harness.expect(&["subscribed 0/1"]);
    pause(&mut harness, false);
    harness.expect(&["2<- g t/0/1 1"]);
}
