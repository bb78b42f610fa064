//! Timers: one-shot and repeating, absolute and relative, never early, without drift.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Harness, failed, ids, timer};
use millrace_reactor::{FirstDue, LoopLimits, MS, MonoNs, PollTimeout};

#[test]
fn a_one_shot_fires_once_and_is_unknown_afterwards() {
    let mut harness = Harness::new();
    harness.arm(1, FirstDue::After(0), 0).unwrap();
    assert_eq!(harness.poll(8).events, [timer(1, harness.now)]);
    assert_eq!(harness.poll(8).events, []);
    assert_eq!(harness.cancel(1), failed("unknown timer_id"));
}

#[test]
fn a_timer_ends_a_wait_to_the_nanosecond_and_is_never_early() {
    for delay_ns in [1, 999, 100_000, 1_500_000, 30 * MS + 7] {
        let mut harness = Harness::new();
        harness.arm(1, FirstDue::After(delay_ns), 0).unwrap();
        let due = harness.now.after_ns(delay_ns);
        harness.advance_ns(delay_ns - 1);
        assert_eq!(harness.poll(8).events, []);
        let reply = harness.poll_for(8, PollTimeout::Forever);
        assert_eq!(reply.events, [timer(1, due)]);
        assert_eq!(harness.now, due);
    }
}

#[test]
fn an_absolute_due_time_is_on_the_hosts_monotonic_clock() {
    let mut harness = Harness::new();
    let due = harness.now.after_ns(250);
    harness.arm(1, FirstDue::At(due), 0).unwrap();
    assert_eq!(harness.poll_for(8, PollTimeout::Forever).events, [timer(1, due)]);
    harness.arm(2, FirstDue::At(MonoNs(1)), 0).unwrap();
    harness.arm(3, FirstDue::At(MonoNs(0)), 0).unwrap();
    assert_eq!(ids(&harness.poll(8)), [3, 2], "0 and the past are due at once, earliest first");
}

#[test]
fn a_delay_beyond_the_clock_saturates_and_does_not_fire() {
    let mut harness = Harness::new();
    harness.arm(1, FirstDue::After(u64::MAX), 0).unwrap();
    assert_eq!(harness.poll(8).events, []);
    assert_eq!(harness.cancel(1), Ok(()));
}

#[test]
fn a_repeating_timer_keeps_to_its_grid_however_late_it_is_delivered() {
    let mut harness = Harness::new();
    let first = harness.now.after_ms(10);
    harness.arm(1, FirstDue::After(10 * MS), 10 * MS).unwrap();
    for lateness_ns in [0, 3, 4 * MS, 9 * MS + 999_999, 1, 0] {
        let reply = harness.poll_for(8, PollTimeout::Forever);
        assert_eq!(ids(&reply), [1]);
        assert_eq!((harness.now.0 - first.0) % (10 * MS), 0, "the wait ends on the grid");
        harness.advance_ns(lateness_ns);
    }
}

#[test]
fn thirty_ticks_take_thirty_periods() {
    let mut harness = Harness::new();
    let start = harness.now;
    harness.arm(1, FirstDue::After(10 * MS), 10 * MS).unwrap();
    for _ in 0..30 {
        assert_eq!(ids(&harness.poll_for(8, PollTimeout::Forever)), [1]);
        // The guest works between two POLLs: the reference adds that time to every period.
        harness.advance_ns(100_000);
    }
    assert_eq!(harness.now, start.after_ms(300).after_ns(100_000));
}

#[test]
fn missed_periods_are_one_event() {
    let mut harness = Harness::new();
    let start = harness.now;
    harness.arm(1, FirstDue::After(5 * MS), 5 * MS).unwrap();
    harness.advance_ns(53 * MS);
    let reply = harness.poll(8);
    assert_eq!(reply.events, [timer(1, harness.now)]);
    assert!(!reply.more, "there is no second event in this moment");
    assert_eq!(harness.poll(8).events, []);
    harness.poll_for(8, PollTimeout::Forever);
    assert_eq!(harness.now, start.after_ms(55));
}

#[test]
fn an_interval_of_one_nanosecond_is_one_event_per_poll() {
    let mut harness = Harness::new();
    harness.arm(1, FirstDue::After(0), 1).unwrap();
    for _ in 0..5 {
        harness.advance_ns(1);
        let reply = harness.poll(8);
        assert_eq!((ids(&reply), reply.more), (vec![1], false));
    }
}

/// The timer's next due time is beyond the end of the clock, so the end of the clock is used instead.
#[test]
fn a_repeating_timer_with_a_huge_interval_stays_armed() {
    for interval_ns in [u64::MAX, u64::MAX - 1, u64::MAX / 2 + 1] {
        let mut harness = Harness::new();
        harness.arm(1, FirstDue::After(0), interval_ns).unwrap();
        assert_eq!(ids(&harness.poll(8)), [1]);
        harness.advance_ns(1 << 62);
        assert_eq!(harness.poll(8).events, []);
        assert!(harness.cancel(1).is_ok(), "the guest still knows it");
    }
}

#[test]
fn arming_an_id_again_replaces_the_timer() {
    let mut harness = Harness::new();
    let start = harness.now;
    harness.arm(1, FirstDue::After(MS), 0).unwrap();
    harness.arm(1, FirstDue::After(20 * MS), 0).unwrap();
    assert_eq!(ids(&harness.poll_for(8, PollTimeout::Forever)), [1]);
    assert_eq!(harness.now, start.after_ms(20));
    assert_eq!(harness.sys_loop.gauges().timers, 0);
}

#[test]
fn a_cancelled_timer_does_not_fire() {
    let mut harness = Harness::new();
    harness.arm(1, FirstDue::After(0), 0).unwrap();
    harness.arm(2, FirstDue::After(0), MS).unwrap();
    assert_eq!(harness.cancel(1), Ok(()));
    assert_eq!(ids(&harness.poll(8)), [2]);
    assert_eq!(harness.cancel(2), Ok(()), "a repeating timer stays armed after it fired");
    harness.advance_ns(10 * MS);
    assert_eq!(harness.poll(8).events, []);
}

#[test]
fn cancelling_an_unknown_timer_is_an_error() {
    let mut harness = Harness::new();
    assert_eq!(harness.cancel(1), failed("unknown timer_id"));
    harness.arm(1, FirstDue::After(MS), 0).unwrap();
    assert_eq!(harness.cancel(1), Ok(()));
    assert_eq!(harness.cancel(1), failed("unknown timer_id"));
}

#[test]
fn a_full_table_refuses_new_timers_but_not_new_times() {
    let mut harness = Harness::with(LoopLimits { timers_max: 2, ..LoopLimits::default() });
    harness.arm(1, FirstDue::After(MS), 0).unwrap();
    harness.arm(2, FirstDue::After(MS), 0).unwrap();
    assert_eq!(harness.arm(3, FirstDue::After(MS), 0), failed("timer arm failed"));
    assert_eq!(harness.arm(1, FirstDue::After(0), 0), Ok(()));
    harness.poll(8);
    assert_eq!(harness.arm(3, FirstDue::After(MS), 0), Ok(()), "the fired timer has made room");
}

#[test]
fn due_timers_are_delivered_in_the_order_of_their_due_times() {
    let mut harness = Harness::new();
    for (id, delay_ns) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
        harness.arm(id, FirstDue::After(delay_ns), 0).unwrap();
    }
    harness.advance_ns(100);
    assert_eq!(ids(&harness.poll(8)), [2, 4, 3, 1]);
}

#[test]
fn all_timer_events_of_one_poll_carry_the_same_time() {
    let mut harness = Harness::new();
    harness.arm(1, FirstDue::After(10), 0).unwrap();
    harness.arm(2, FirstDue::After(20), 0).unwrap();
    harness.advance_ns(50);
    assert_eq!(harness.poll(8).events, [timer(1, harness.now), timer(2, harness.now)]);
}

#[test]
fn a_clock_that_falls_back_fires_nothing_twice_and_nothing_early() {
    let mut harness = Harness::new();
    let start = harness.now;
    harness.arm(1, FirstDue::After(10 * MS), 10 * MS).unwrap();
    harness.advance_ns(10 * MS);
    assert_eq!(ids(&harness.poll(8)), [1]);
    harness.now = start;
    assert_eq!(harness.poll(8).events, []);
    harness.arm(2, FirstDue::After(5 * MS), 0).unwrap();
    harness.now = start.after_ms(14);
    assert_eq!(harness.poll(8).events, [], "5 ms after the latest moment that was told");
    harness.now = start.after_ms(15);
    assert_eq!(ids(&harness.poll(8)), [2]);
}
