//! The wall clock is set, or was wrong when the server started: delays are kept, and no event is removed before its
//! time.

mod harness;

use harness::{Harness, event, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn publish_at(harness: &mut Harness, at: DeliverAt, payload: &str) {
    let publish = Publish { topic: topic("t"), event: event(payload), deliver_at: Some(at) };
    harness.call(Request::Publish(publish));
    harness.out();
}

fn stored(harness: &Harness) -> Vec<String> {
    harness.payloads()
}

/// Sets the system's wall clock: the new time is believed, or the clock was wrong when the server started.
fn set_wall(harness: &mut Harness, by_ms: i64) {
    harness.now.wall = Timestamp(harness.now.wall.0.saturating_add_signed(by_ms));
    harness.now.steady_since = harness.now.mono;
}

fn far_from_zero() -> Harness {
    let mut harness = Harness::new();
    harness.pass(1_000 * DAY);
    harness
}

fn keeps(harness: &mut Harness, retention_ms: u64) {
    let config = TopicConfig { partitions: 1, retention_ms: Some(retention_ms), ..TopicConfig::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    harness.out();
}

/// Returns where the log starts.
fn start(harness: &Harness) -> u64 {
    harness.start("t").0
}

#[test]
fn a_delay_is_counted_whatever_the_wall_clock_does() {
    for by_ms in [-(HOUR as i64), -60_000, 60_000, 2 * DAY as i64] {
        let mut harness = far_from_zero();
        publish_at(&mut harness, DeliverAt::AfterMs(5_000), "1");
        set_wall(&mut harness, by_ms);
        harness.pass(5_001);
        assert!(stored(&harness).is_empty(), "{by_ms}");
        harness.pass(1);
        assert_eq!(stored(&harness), ["1"], "{by_ms}");
    }
}

#[test]
fn a_time_of_day_is_that_of_the_wall_clock() {
    let mut harness = far_from_zero();
    let at = harness.now.wall + HOUR;
    publish_at(&mut harness, DeliverAt::At(at), "\"on time\"");
    publish_at(&mut harness, DeliverAt::AfterMs(HOUR), "\"after an hour\"");
    set_wall(&mut harness, HOUR as i64);
    harness.pass(1);
    assert_eq!(stored(&harness), ["\"on time\""]);
    let at = harness.now.wall + HOUR;
    publish_at(&mut harness, DeliverAt::At(at), "\"later\"");
    set_wall(&mut harness, -(HOUR as i64));
    harness.pass(HOUR + 1);
    assert_eq!(stored(&harness), ["\"on time\"", "\"after an hour\""]);
    harness.pass(HOUR);
    assert_eq!(stored(&harness), ["\"on time\"", "\"after an hour\"", "\"later\""]);
}

#[test]
fn over_a_restart_a_delay_goes_on() {
    // How the clock was set while the server ran, how far it moved while the server was away, and what is left of ten
    // seconds. A clock that shows less than before says nothing about the time away.
    for (set_ms, away_ms, left_ms) in [
        (0, 4_000, 6_003),
        (0, -(3 * HOUR as i64), 10_002),
        (3 * HOUR as i64, 4_000, 6_003),
        (-(3 * HOUR as i64), 4_000, 6_003),
        (0, DAY as i64, 1),
    ] {
        let mut harness = far_from_zero();
        publish_at(&mut harness, DeliverAt::AfterMs(10_000), "1");
        if set_ms != 0 {
            set_wall(&mut harness, set_ms);
        }
        harness.pass(0);
        set_wall(&mut harness, away_ms);
        harness.restart();
        harness.pass(left_ms - 1);
        assert!(stored(&harness).is_empty() || left_ms == 1, "{set_ms} {away_ms}");
        harness.pass(1);
        assert_eq!(stored(&harness), ["1"], "{set_ms} {away_ms}");
    }
}

/// The clock was three hours behind when the server started, is corrected while the server runs, and the server ends
/// before it believes the correction.
#[test]
fn a_clock_that_is_corrected_shortly_before_a_restart_ends_no_delay_early() {
    let boot = |id| Some(Boot { id: BootId(id), up_at_zero_ms: 0 });
    // The id of the machine's boot afterwards, whether the server noticed the step, and what is left of an hour.
    for (id, noticed, left_ms) in [(1, false, HOUR - 3_997), (1, true, HOUR - 3_997), (2, true, HOUR + 1)] {
        let mut harness = far_from_zero();
        harness.boot = boot(1);
        harness.restart();
        publish_at(&mut harness, DeliverAt::AfterMs(HOUR), "1");
        harness.pass(1);
        if noticed {
            harness.now.steady_since = harness.now.mono;
            harness.pass(0);
        }
        harness.now.mono = harness.now.mono + 4_000;
        harness.now.wall = harness.now.wall + 4_000;
        set_wall(&mut harness, 3 * HOUR as i64);
        harness.boot = boot(id);
        harness.restart();
        harness.pass(left_ms - 1);
        assert!(stored(&harness).is_empty(), "{id} {noticed}");
        harness.pass(1);
        assert_eq!(stored(&harness), ["1"], "{id} {noticed}");
    }
}

#[test]
fn the_delay_of_a_nack_is_counted_over_a_restart_too() {
    for (restarts, by_ms) in [(false, -(HOUR as i64)), (false, DAY as i64), (true, -(HOUR as i64))] {
        let mut harness = far_from_zero();
        harness.open(1);
        harness.request(1, Request::Subscribe(subscription("t", "g")));
        harness.publish("t", "1");
        let nack = Nack {
            topic: topic("t"),
            group: harness::group("g"),
            partition: Partition(0),
            offset: Offset(1),
            delay_ms: Some(10_000),
            reason: None,
            confirm: false,
        };
        harness.request(1, Request::Nack(nack));
        harness.pass(1_000);
        set_wall(&mut harness, by_ms);
        if restarts {
            harness.restart();
            harness.open(1);
            harness.request(1, Request::Subscribe(subscription("t", "g")));
        }
        harness.out();
        let left_ms = if restarts { 10_001 } else { 9_001 };
        harness.pass(left_ms - 1_001);
        assert!(harness.out().is_empty(), "{restarts} {by_ms}");
        harness.pass(1_001);
        assert_eq!(harness.out(), ["1<- g t/0/1 1 attempt 2"], "{restarts} {by_ms}");
    }
}

#[test]
fn a_server_that_starts_with_a_wrong_clock_removes_nothing() {
    let mut harness = far_from_zero();
    keeps(&mut harness, DAY);
    harness.publish("t", "1");
    set_wall(&mut harness, 2 * DAY as i64);
    harness.restart();
    harness.publish("t", "2");
    harness.pass(CLOCK_SETTLE_MS - 1_000);
    assert_eq!(start(&harness), 1);
    // The clock is corrected; the server does not believe that yet.
    for _ in 0..100 {
        harness.now.steady_since = harness.now.mono;
        harness.pass(10_000);
    }
    assert_eq!(start(&harness), 1);
    set_wall(&mut harness, -(2 * DAY as i64));
    harness.pass(CLOCK_SETTLE_MS + 60_000);
    assert_eq!(start(&harness), 1);
    // Requester its timestamp the second event is of the day after tomorrow, but it is removed when it has lain in the log for
    // a day.
    harness.publish("t", "3");
    harness.pass(DAY - CLOCK_SETTLE_MS * 3);
    assert!(start(&harness) <= 2);
    harness.pass(DAY / 8 + CLOCK_SETTLE_MS * 4);
    assert_eq!(start(&harness), 4);
}

#[test]
fn a_clock_that_is_wrong_at_the_start_and_stays_wrong_removes_nothing() {
    let mut harness = far_from_zero();
    keeps(&mut harness, DAY);
    harness.publish("t", "1");
    set_wall(&mut harness, 8 * DAY as i64);
    harness.restart();
    // Events that the server stores carry the wrong time. That is no reason to believe the clock.
    harness.publish("t", "2");
    harness.pass(CLOCK_SETTLE_MS + HOUR);
    assert_eq!(start(&harness), 1);
    harness.pass(DAY - 2 * HOUR);
    assert_eq!(start(&harness), 1);
    // Requester the monotonic clock, which is always right, both events have lain there for a day.
    harness.pass(2 * HOUR + DAY / 8);
    assert_eq!(start(&harness), 3);
}

#[test]
fn what_was_stored_before_the_clock_was_set_is_as_old_as_it_is() {
    let mut harness = far_from_zero();
    keeps(&mut harness, DAY);
    harness.publish("t", "1");
    harness.pass(HOUR);
    set_wall(&mut harness, 56 * 365 * DAY as i64);
    harness.publish("t", "2");
    harness.pass(22 * HOUR);
    assert_eq!(start(&harness), 1);
    harness.pass(HOUR + DAY / 8 + 60_000);
    assert!(start(&harness) >= 2);
}

#[test]
fn an_honest_clock_removes_what_is_old_after_it_has_settled() {
    let mut harness = far_from_zero();
    keeps(&mut harness, DAY);
    harness.publish("t", "1");
    harness.pass(23 * HOUR);
    harness.publish("t", "2");
    // The server is away for an hour. While no server runs, no event grows older: that hour could not be told from a
    // wrong clock.
    set_wall(&mut harness, HOUR as i64);
    harness.restart();
    harness.pass(CLOCK_SETTLE_MS - 60_000);
    assert_eq!(start(&harness), 1);
    harness.pass(HOUR - CLOCK_SETTLE_MS);
    assert_eq!(start(&harness), 1);
    harness.pass(180_000);
    assert_eq!(start(&harness), 2);
}

/// Events that a server with a wrong clock stores, its own and those of users, do not make a later server believe that
/// clock.
#[test]
fn a_server_that_is_started_again_and_again_with_a_wrong_clock_removes_nothing() {
    for settled in [false, true] {
        let mut harness = far_from_zero();
        keeps(&mut harness, DAY);
        harness.publish("t", "1");
        set_wall(&mut harness, 2 * DAY as i64);
        for _ in 0..10 {
            harness.restart();
            harness.publish("t", "2");
            harness.publish("system.metrics", "{}");
            harness.now.steady_since = harness.now.mono;
            harness.pass(if settled { CLOCK_SETTLE_MS + 60_000 } else { 60_000 });
            assert_eq!(start(&harness), 1);
        }
        assert!(!removals(&harness));
        // The clock is right again.
        set_wall(&mut harness, -(2 * DAY as i64));
        harness.restart();
        harness.pass(CLOCK_SETTLE_MS + HOUR);
        assert_eq!(start(&harness), 1);
    }
}

fn removals(harness: &Harness) -> bool {
    harness.notes.iter().any(|note| matches!(note, Note::Removed { .. }))
}

/// The machine was off for three days. That is noted, and old events are removed after a later start.
#[test]
fn after_an_honest_pause_what_is_old_goes() {
    let mut harness = far_from_zero();
    keeps(&mut harness, DAY);
    harness.publish("t", "1");
    harness.pass(60_000);
    set_wall(&mut harness, 3 * DAY as i64);
    harness.restart();
    harness.publish("t", "2");
    harness.pass(1);
    let told = harness.notes.iter().any(|note| {
        matches!(note, Note::ClockAhead { by_ms, believed_in_ms }
            if *by_ms > 2 * DAY && *believed_in_ms == 73 * CLOCK_SETTLE_MS)
    });
    assert!(told, "{:?}", harness.notes);
    harness.pass(13 * HOUR);
    assert_eq!(start(&harness), 1);
    harness.input(Input::Stop);
    set_wall(&mut harness, 0);
    harness.restart();
    harness.notes.clear();
    harness.pass(CLOCK_SETTLE_MS - 1_000);
    assert_eq!(start(&harness), 1);
    harness.pass(60_000);
    assert_eq!(start(&harness), 2);
    let told: Vec<&Note> = harness.notes.iter().collect();
    assert!(matches!(told[..], [Note::Removed { events: 1, .. }]), "{told:?}");
}

/// Only the server was off, and the machine knows for how long.
#[test]
fn while_the_machine_runs_events_grow_older_without_a_server() {
    let mut harness = far_from_zero();
    harness.boot = Some(Boot { id: BootId(1), up_at_zero_ms: 0 });
    harness.restart();
    keeps(&mut harness, DAY);
    harness.publish("t", "1");
    harness.input(Input::Stop);
    harness.now.mono = harness.now.mono + 2 * DAY;
    set_wall(&mut harness, 2 * DAY as i64);
    harness.restart();
    harness.publish("t", "2");
    harness.pass(CLOCK_SETTLE_MS - 1);
    assert_eq!(start(&harness), 1);
    harness.pass(60_000);
    assert_eq!(start(&harness), 2);
}
