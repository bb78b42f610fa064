//! The wall clock is set, or was wrong when the server started: delays are kept, and no event is removed before its
//! time.

mod desk;

use desk::{Desk, event, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn publish_at(desk: &mut Desk, at: DeliverAt, payload: &str) {
    let publish = Publish { topic: topic("t"), event: event(payload), deliver_at: Some(at) };
    desk.call(Request::Publish(publish));
    desk.out();
}

fn stored(desk: &Desk) -> Vec<String> {
    desk.logs.values().flatten().map(|event| event.body.payload.as_str().to_owned()).collect()
}

/// Sets the system's wall clock: the new time is believed, or the clock was wrong when the server started.
fn set_wall(desk: &mut Desk, by_ms: i64) {
    desk.now.wall = Timestamp(desk.now.wall.0.saturating_add_signed(by_ms));
    desk.now.steady_since = desk.now.mono;
}

fn far_from_zero() -> Desk {
    let mut desk = Desk::new();
    desk.pass(1_000 * DAY);
    desk
}

fn keeps(desk: &mut Desk, retention_ms: u64) {
    let config = TopicConfig { partitions: 1, retention_ms: Some(retention_ms), ..TopicConfig::default() };
    desk.call(Request::CreateTopic { topic: topic("t"), settings: config.into(), only_new: false });
    desk.out();
}

/// Returns where the log starts.
fn start(desk: &Desk) -> u64 {
    desk.starts.get(&topic("t").stream(Partition(0))).map_or(1, |start| start.0)
}

#[test]
fn a_delay_is_counted_whatever_the_wall_clock_does() {
    for by_ms in [-(HOUR as i64), -60_000, 60_000, 2 * DAY as i64] {
        let mut desk = far_from_zero();
        publish_at(&mut desk, DeliverAt::AfterMs(5_000), "1");
        set_wall(&mut desk, by_ms);
        desk.pass(5_001);
        assert!(stored(&desk).is_empty(), "{by_ms}");
        desk.pass(1);
        assert_eq!(stored(&desk), ["1"], "{by_ms}");
    }
}

#[test]
fn a_time_of_day_is_that_of_the_wall_clock() {
    let mut desk = far_from_zero();
    let at = desk.now.wall + HOUR;
    publish_at(&mut desk, DeliverAt::At(at), "\"on time\"");
    publish_at(&mut desk, DeliverAt::AfterMs(HOUR), "\"after an hour\"");
    set_wall(&mut desk, HOUR as i64);
    desk.pass(1);
    assert_eq!(stored(&desk), ["\"on time\""]);
    let at = desk.now.wall + HOUR;
    publish_at(&mut desk, DeliverAt::At(at), "\"later\"");
    set_wall(&mut desk, -(HOUR as i64));
    desk.pass(HOUR + 1);
    assert_eq!(stored(&desk), ["\"on time\"", "\"after an hour\""]);
    desk.pass(HOUR);
    assert_eq!(stored(&desk), ["\"on time\"", "\"after an hour\"", "\"later\""]);
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
        let mut desk = far_from_zero();
        publish_at(&mut desk, DeliverAt::AfterMs(10_000), "1");
        if set_ms != 0 {
            set_wall(&mut desk, set_ms);
        }
        desk.pass(0);
        set_wall(&mut desk, away_ms);
        desk.restart();
        desk.pass(left_ms - 1);
        assert!(stored(&desk).is_empty() || left_ms == 1, "{set_ms} {away_ms}");
        desk.pass(1);
        assert_eq!(stored(&desk), ["1"], "{set_ms} {away_ms}");
    }
}

/// The clock was three hours behind when the server started, is corrected while the server runs, and the server ends
/// before it believes the correction.
#[test]
fn a_clock_that_is_corrected_shortly_before_a_restart_ends_no_delay_early() {
    let boot = |id| Some(Boot { id: BootId(id), up_at_zero_ms: 0 });
    // The id of the machine's boot afterwards, whether the server noticed the step, and what is left of an hour.
    for (id, noticed, left_ms) in [(1, false, HOUR - 3_997), (1, true, HOUR - 3_997), (2, true, HOUR + 1)] {
        let mut desk = far_from_zero();
        desk.boot = boot(1);
        desk.restart();
        publish_at(&mut desk, DeliverAt::AfterMs(HOUR), "1");
        desk.pass(1);
        if noticed {
            desk.now.steady_since = desk.now.mono;
            desk.pass(0);
        }
        desk.now.mono = desk.now.mono + 4_000;
        desk.now.wall = desk.now.wall + 4_000;
        set_wall(&mut desk, 3 * HOUR as i64);
        desk.boot = boot(id);
        desk.restart();
        desk.pass(left_ms - 1);
        assert!(stored(&desk).is_empty(), "{id} {noticed}");
        desk.pass(1);
        assert_eq!(stored(&desk), ["1"], "{id} {noticed}");
    }
}

#[test]
fn the_delay_of_a_nack_is_counted_over_a_restart_too() {
    for (restarts, by_ms) in [(false, -(HOUR as i64)), (false, DAY as i64), (true, -(HOUR as i64))] {
        let mut desk = far_from_zero();
        desk.open(1);
        desk.request(1, Request::Subscribe(subscription("t", "g")));
        desk.publish("t", "1");
        let nack = Nack {
            topic: topic("t"),
            group: desk::group("g"),
            partition: Partition(0),
            offset: Offset(1),
            delay_ms: Some(10_000),
            reason: None,
            confirm: false,
        };
        desk.request(1, Request::Nack(nack));
        desk.pass(1_000);
        set_wall(&mut desk, by_ms);
        if restarts {
            desk.restart();
            desk.open(1);
            desk.request(1, Request::Subscribe(subscription("t", "g")));
        }
        desk.out();
        let left_ms = if restarts { 10_001 } else { 9_001 };
        desk.pass(left_ms - 1_001);
        assert!(desk.out().is_empty(), "{restarts} {by_ms}");
        desk.pass(1_001);
        assert_eq!(desk.out(), ["1<- g t/0/1 1 attempt 2"], "{restarts} {by_ms}");
    }
}

#[test]
fn a_server_that_starts_with_a_wrong_clock_removes_nothing() {
    let mut desk = far_from_zero();
    keeps(&mut desk, DAY);
    desk.publish("t", "1");
    set_wall(&mut desk, 2 * DAY as i64);
    desk.restart();
    desk.publish("t", "2");
    desk.pass(CLOCK_SETTLE_MS - 1_000);
    assert_eq!(start(&desk), 1);
    // The clock is corrected; the server does not believe that yet.
    for _ in 0..100 {
        desk.now.steady_since = desk.now.mono;
        desk.pass(10_000);
    }
    assert_eq!(start(&desk), 1);
    set_wall(&mut desk, -(2 * DAY as i64));
    desk.pass(CLOCK_SETTLE_MS + 60_000);
    assert_eq!(start(&desk), 1);
    // By its timestamp the second event is of the day after tomorrow, but it is removed when it has lain in the log for
    // a day.
    desk.publish("t", "3");
    desk.pass(DAY - CLOCK_SETTLE_MS * 3);
    assert!(start(&desk) <= 2);
    desk.pass(DAY / 8 + CLOCK_SETTLE_MS * 4);
    assert_eq!(start(&desk), 4);
}

#[test]
fn a_clock_that_is_wrong_at_the_start_and_stays_wrong_removes_nothing() {
    let mut desk = far_from_zero();
    keeps(&mut desk, DAY);
    desk.publish("t", "1");
    set_wall(&mut desk, 8 * DAY as i64);
    desk.restart();
    // Events that the server stores carry the wrong time. That is no reason to believe the clock.
    desk.publish("t", "2");
    desk.pass(CLOCK_SETTLE_MS + HOUR);
    assert_eq!(start(&desk), 1);
    desk.pass(DAY - 2 * HOUR);
    assert_eq!(start(&desk), 1);
    // By the monotonic clock, which is always right, both events have lain there for a day.
    desk.pass(2 * HOUR + DAY / 8);
    assert_eq!(start(&desk), 3);
}

#[test]
fn what_was_stored_before_the_clock_was_set_is_as_old_as_it_is() {
    let mut desk = far_from_zero();
    keeps(&mut desk, DAY);
    desk.publish("t", "1");
    desk.pass(HOUR);
    set_wall(&mut desk, 56 * 365 * DAY as i64);
    desk.publish("t", "2");
    desk.pass(22 * HOUR);
    assert_eq!(start(&desk), 1);
    desk.pass(HOUR + DAY / 8 + 60_000);
    assert!(start(&desk) >= 2);
}

#[test]
fn an_honest_clock_removes_what_is_old_after_it_has_settled() {
    let mut desk = far_from_zero();
    keeps(&mut desk, DAY);
    desk.publish("t", "1");
    desk.pass(23 * HOUR);
    desk.publish("t", "2");
    // The server is away for an hour. While no server runs, no event grows older: that hour could not be told from a
    // wrong clock.
    set_wall(&mut desk, HOUR as i64);
    desk.restart();
    desk.pass(CLOCK_SETTLE_MS - 60_000);
    assert_eq!(start(&desk), 1);
    desk.pass(HOUR - CLOCK_SETTLE_MS);
    assert_eq!(start(&desk), 1);
    desk.pass(180_000);
    assert_eq!(start(&desk), 2);
}

/// Events that a server with a wrong clock stores, its own and those of users, do not make a later server believe that
/// clock.
#[test]
fn a_server_that_is_started_again_and_again_with_a_wrong_clock_removes_nothing() {
    for settled in [false, true] {
        let mut desk = far_from_zero();
        keeps(&mut desk, DAY);
        desk.publish("t", "1");
        set_wall(&mut desk, 2 * DAY as i64);
        for _ in 0..10 {
            desk.restart();
            desk.publish("t", "2");
            desk.publish("system.metrics", "{}");
            desk.now.steady_since = desk.now.mono;
            desk.pass(if settled { CLOCK_SETTLE_MS + 60_000 } else { 60_000 });
            assert_eq!(start(&desk), 1);
        }
        assert!(!removals(&desk));
        // The clock is right again.
        set_wall(&mut desk, -(2 * DAY as i64));
        desk.restart();
        desk.pass(CLOCK_SETTLE_MS + HOUR);
        assert_eq!(start(&desk), 1);
    }
}

fn removals(desk: &Desk) -> bool {
    desk.notes.iter().any(|note| matches!(note, Note::Removed { .. }))
}

/// The machine was off for three days. That is noted, and old events are removed after a later start.
#[test]
fn after_an_honest_pause_what_is_old_goes() {
    let mut desk = far_from_zero();
    keeps(&mut desk, DAY);
    desk.publish("t", "1");
    desk.pass(60_000);
    set_wall(&mut desk, 3 * DAY as i64);
    desk.restart();
    desk.publish("t", "2");
    desk.pass(1);
    let told = desk.notes.iter().any(|note| {
        matches!(note, Note::ClockAhead { by_ms, believed_in_ms }
            if *by_ms > 2 * DAY && *believed_in_ms == 73 * CLOCK_SETTLE_MS)
    });
    assert!(told, "{:?}", desk.notes);
    desk.pass(13 * HOUR);
    assert_eq!(start(&desk), 1);
    desk.input(Input::Stop);
    set_wall(&mut desk, 0);
    desk.restart();
    desk.notes.clear();
    desk.pass(CLOCK_SETTLE_MS - 1_000);
    assert_eq!(start(&desk), 1);
    desk.pass(60_000);
    assert_eq!(start(&desk), 2);
    let told: Vec<&Note> = desk.notes.iter().collect();
    assert!(matches!(told[..], [Note::Removed { events: 1, .. }]), "{told:?}");
}

/// Only the server was off, and the machine knows for how long.
#[test]
fn while_the_machine_runs_events_grow_older_without_a_server() {
    let mut desk = far_from_zero();
    desk.boot = Some(Boot { id: BootId(1), up_at_zero_ms: 0 });
    desk.restart();
    keeps(&mut desk, DAY);
    desk.publish("t", "1");
    desk.input(Input::Stop);
    desk.now.mono = desk.now.mono + 2 * DAY;
    set_wall(&mut desk, 2 * DAY as i64);
    desk.restart();
    desk.publish("t", "2");
    desk.pass(CLOCK_SETTLE_MS - 1);
    assert_eq!(start(&desk), 1);
    desk.pass(60_000);
    assert_eq!(start(&desk), 2);
}
