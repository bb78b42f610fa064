//! Watches: what is reported and when, and which watches are refused.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{ERROR, HUP, Harness, NONE, READABLE, WRITABLE, failed, handle, ids, ready};
use millrace_reactor::{LoopLimits, PollTimeout, PollerCall, Readiness, Trigger};

const FAILED: &str = "watch failed";

#[test]
fn a_ready_handle_is_reported_with_the_bits_that_were_asked_for() {
    let mut harness = Harness::new();
    harness.polled(4, READABLE | WRITABLE);
    assert_eq!(harness.watch(7, 4, READABLE | ERROR), Ok(()));
    let reply = harness.poll(8);
    assert_eq!(reply.events, [ready(7, 4, READABLE)]);
    assert!(!reply.more);
}

#[test]
fn a_watch_is_level_triggered_and_stays_until_unwatch() {
    let mut harness = Harness::new();
    harness.polled(4, READABLE);
    harness.computed(5, READABLE);
    assert_eq!(harness.watch(1, 4, READABLE), Ok(()));
    assert_eq!(harness.watch(2, 5, READABLE), Ok(()));
    for _ in 0..3 {
        let mut reported = ids(&harness.poll(8));
        reported.sort_unstable();
        assert_eq!(reported, [1, 2], "reported again as long as the condition is true");
    }
    harness.set(4, NONE);
    harness.set(5, NONE);
    assert_eq!(harness.poll(8).events, []);
    harness.set(4, READABLE);
    assert_eq!(harness.poll(8).events, [ready(1, 4, READABLE)], "still installed");
    assert_eq!(harness.unwatch(1), Ok(()));
    assert_eq!(harness.poll(8).events, []);
}

#[test]
fn several_watches_on_one_handle_report_one_event_each() {
    let mut harness = Harness::new();
    harness.polled(4, READABLE | WRITABLE);
    assert_eq!(harness.watch(1, 4, READABLE), Ok(()));
    assert_eq!(harness.watch(2, 4, WRITABLE), Ok(()));
    assert_eq!(harness.watch(3, 4, HUP), Ok(()));
    assert_eq!(harness.poll(8).events, [ready(1, 4, READABLE), ready(2, 4, WRITABLE)]);
}

#[test]
fn a_handle_is_registered_once_with_what_its_watches_ask_for() {
    let mut harness = Harness::new();
    harness.polled(4, NONE);
    harness.watch(1, 4, READABLE).unwrap();
    harness.watch(2, 4, READABLE).unwrap();
    harness.watch(3, 4, WRITABLE).unwrap();
    harness.unwatch(3).unwrap();
    harness.unwatch(1).unwrap();
    harness.unwatch(2).unwrap();
    let handle = handle(4);
    assert_eq!(
        harness.poller.calls,
        [
            PollerCall::Register { handle, interest: READABLE },
            PollerCall::Modify { handle, interest: READABLE | WRITABLE, trigger: Trigger::Level },
            PollerCall::Modify { handle, interest: READABLE, trigger: Trigger::Level },
            PollerCall::Deregister { handle },
        ]
    );
}

#[test]
fn a_watch_id_is_unique() {
    let mut harness = Harness::new();
    harness.polled(4, READABLE);
    harness.polled(5, READABLE);
    assert_eq!(harness.watch(1, 4, READABLE), Ok(()));
    assert_eq!(harness.watch(1, 5, READABLE), failed(FAILED));
    assert_eq!(harness.poll(8).events, [ready(1, 4, READABLE)], "the first watch is kept");
}

#[test]
fn a_handle_that_cannot_be_watched_is_refused() {
    let mut harness = Harness::new();
    for number in [0, 1, 2, 3, 99, 0x8000_0003, u32::MAX] {
        assert_eq!(harness.watch(1, number, READABLE), failed(FAILED), "{number}");
    }
    assert_eq!(harness.sys_loop.gauges().watches, 0);
}

#[test]
fn a_poller_that_refuses_leaves_the_watches_as_they_were() {
    let mut harness = Harness::new();
    harness.polled(4, READABLE | WRITABLE);
    harness.polled(5, READABLE);
    harness.watch(1, 4, READABLE).unwrap();
    harness.poller.is_failing = true;
    assert_eq!(harness.watch(2, 4, WRITABLE), failed(FAILED));
    assert_eq!(harness.watch(3, 5, READABLE), failed(FAILED));
    harness.poller.is_failing = false;
    assert_eq!(harness.poll(8).events, [ready(1, 4, READABLE)]);
    assert_eq!(harness.watch(2, 4, WRITABLE), Ok(()), "the id is free");
}

/// A bug found by the simulator (`ready_is_heard`).
#[test]
fn a_handle_that_the_poller_left_edge_triggered_is_level_triggered_as_soon_as_the_poller_agrees() {
    let mut harness = Harness::new();
    harness.polled(4, HUP);
    harness.watch(1, 4, WRITABLE).unwrap();
    assert_eq!(harness.poll(8).events, []);
    assert_eq!(harness.poller.trigger(handle(4)), Some(Trigger::Edge), "nobody asks for hup");
    harness.poller.is_failing = true;
    harness.set(4, HUP | WRITABLE);
    assert_eq!(harness.poll(8).events, [ready(1, 4, WRITABLE)]);
    assert_eq!(harness.poller.trigger(handle(4)), Some(Trigger::Edge), "the poller refuses");
    assert_eq!(harness.poll(8).events, []);
    harness.poller.is_failing = false;
    harness.poll(8);
    assert_eq!(harness.poller.trigger(handle(4)), Some(Trigger::Level));
    for _ in 0..3 {
        assert_eq!(harness.poll(8).events, [ready(1, 4, WRITABLE)]);
    }
}

/// A bug found by the simulator (`no_busy_loop`).
#[test]
fn a_poller_that_refused_to_report_less_is_asked_again() {
    let mut harness = Harness::new();
    harness.polled(4, WRITABLE);
    harness.watch(1, 4, READABLE).unwrap();
    harness.watch(2, 4, WRITABLE).unwrap();
    harness.poller.is_failing = true;
    harness.unwatch(2).unwrap();
    assert_eq!(harness.poller.interest(handle(4)), Some(READABLE | WRITABLE), "the poller refuses");
    assert_eq!(harness.poll(8).events, []);
    harness.poller.is_failing = false;
    assert_eq!(harness.poll(8).events, [], "what nobody asks for is not reported");
    assert_eq!(harness.poller.interest(handle(4)), Some(READABLE), "and does not end every wait");
}

#[test]
fn unwatch_of_an_unknown_id_is_an_error() {
    let mut harness = Harness::new();
    harness.polled(4, NONE);
    assert_eq!(harness.unwatch(1), failed("unknown watch_id"));
    harness.watch(1, 4, READABLE).unwrap();
    harness.unwatch(1).unwrap();
    assert_eq!(harness.unwatch(1), failed("unknown watch_id"), "a second time");
}

#[test]
fn a_full_table_refuses_a_watch_until_another_is_removed() {
    let mut harness = Harness::with(LoopLimits { watches_max: 3, ..LoopLimits::default() });
    harness.polled(4, NONE);
    for id in 1..=3 {
        harness.watch(id, 4, READABLE).unwrap();
    }
    assert_eq!(harness.watch(4, 4, READABLE), failed(FAILED));
    harness.unwatch(2).unwrap();
    assert_eq!(harness.watch(4, 4, READABLE), Ok(()));
}

#[test]
fn watches_of_an_ended_handle_stay_and_report_nothing() {
    for is_computed in [false, true] {
        let mut harness = Harness::new();
        let add = if is_computed { Harness::computed } else { Harness::polled };
        add(&mut harness, 4, READABLE);
        harness.watch(1, 4, READABLE).unwrap();
        harness.end(4);
        assert_eq!(harness.poll(8).events, []);
        assert!(harness.sys_loop.watches_handle(handle(4)), "the number must not be given out again");
        assert_eq!(harness.watch(2, 4, READABLE), failed(FAILED), "the handle does not exist");
        assert_eq!(harness.unwatch(1), Ok(()));
        assert!(!harness.sys_loop.watches_handle(handle(4)));
        assert_eq!(harness.poller.len(), 0);
    }
}

#[test]
fn a_watch_never_reports_another_handle_with_its_number() {
    let mut harness = Harness::new();
    harness.polled(4, READABLE);
    harness.watch(1, 4, READABLE).unwrap();
    harness.end(4);
    // This host reuses the number although a watch is still on it.
    harness.polled(4, READABLE);
    harness.watch(2, 4, READABLE).unwrap();
    assert_eq!(harness.poll(8).events, [ready(2, 4, READABLE)]);
    harness.unwatch(1).unwrap();
    assert!(harness.sys_loop.watches_handle(handle(4)), "the successor is watched");
    assert_eq!(harness.poll(8).events, [ready(2, 4, READABLE)]);
}

#[test]
fn a_late_report_about_a_removed_watch_changes_nothing() {
    let mut harness = Harness::new();
    harness.polled(4, READABLE);
    harness.watch(1, 4, READABLE).unwrap();
    let (late, coverage) = harness.poller.round(8);
    harness.unwatch(1).unwrap();
    harness.polled(5, NONE);
    harness.watch(2, 5, READABLE).unwrap();
    harness.sys_loop.observe(&late, coverage, &mut harness.poller);
    assert_eq!(harness.sys_loop.gauges().ready, 0, "the slot is in use again, the token is not");
}

#[test]
fn hup_counts_as_readable_and_error_as_both() {
    let cases = [
        (HUP, READABLE, READABLE),
        (HUP, READABLE | HUP, READABLE | HUP),
        (HUP, HUP, HUP),
        (HUP, WRITABLE | ERROR, NONE),
        (ERROR, READABLE, READABLE),
        (ERROR, WRITABLE, WRITABLE),
        (ERROR, ERROR, ERROR),
        (ERROR, HUP, NONE),
        (READABLE, WRITABLE | HUP | ERROR, NONE),
        (Readiness::ALL, Readiness::ALL, Readiness::ALL),
        (NONE, Readiness::ALL, NONE),
    ];
    for (state, interest, expected) in cases {
        assert_eq!(state.reported_to(interest), expected, "{state:?} to {interest:?}");
        for is_computed in [false, true] {
            let mut harness = Harness::new();
            let add = if is_computed { Harness::computed } else { Harness::polled };
            add(&mut harness, 4, state);
            harness.watch(1, 4, interest).unwrap();
            let expected = if expected.is_empty() { vec![] } else { vec![ready(1, 4, expected)] };
            assert_eq!(
                harness.poll(8).events,
                expected,
                "{state:?} to {interest:?}, computed: {is_computed}"
            );
        }
    }
}

#[test]
fn a_state_that_nobody_asked_for_neither_ends_a_poll_nor_spins() {
    let mut harness = Harness::new();
    harness.polled(4, HUP);
    harness.watch(1, 4, WRITABLE).unwrap();
    let before = harness.now;
    assert_eq!(harness.poll_for(8, PollTimeout::Ms(50)).events, [], "not before its timeout");
    assert_eq!(harness.now, before.after_ms(50));
    assert_eq!(
        harness.poller.trigger(handle(4)),
        Some(Trigger::Edge),
        "the poller does not wake for it again"
    );
    let (mut rounds, _) = harness.poller.round(8);
    assert_eq!(rounds.len(), 0);
    harness.watch(2, 4, READABLE).unwrap();
    assert_eq!(harness.poll(8).events, [ready(2, 4, READABLE)], "until a watch asks for it");
    assert_eq!(harness.poller.trigger(handle(4)), Some(Trigger::Level));
    harness.unwatch(2).unwrap();
    assert_eq!(harness.poll(8).events, []);
    harness.set(4, WRITABLE);
    for _ in 0..3 {
        assert_eq!(harness.poll(8).events, [ready(1, 4, WRITABLE)], "or the handle changes");
    }
    (rounds, _) = harness.poller.round(8);
    assert_eq!(rounds.len(), 1);
    harness.unwatch(1).unwrap();
    assert_eq!(harness.poller.len(), 0);
}

#[test]
fn closing_the_loop_releases_everything() {
    let mut harness = Harness::new();
    harness.polled(4, READABLE);
    harness.computed(5, READABLE);
    harness.watch(1, 4, READABLE).unwrap();
    harness.watch(2, 5, READABLE).unwrap();
    harness.sys_loop.close(&mut harness.poller);
    assert_eq!(harness.poller.len(), 0);
    assert_eq!(harness.sys_loop.gauges(), millrace_reactor::Gauges::default());
    harness.sys_loop.check_invariants().unwrap();
}

#[test]
fn one_loop_knows_nothing_of_another() {
    let mut one = Harness::new();
    let mut other = Harness::new();
    one.polled(4, READABLE);
    other.polled(4, READABLE);
    one.watch(1, 4, READABLE).unwrap();
    assert_eq!(other.unwatch(1), failed("unknown watch_id"));
    assert_eq!(other.poll(8).events, []);
}
