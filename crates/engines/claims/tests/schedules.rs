//! Schedules: on time, once across many sessions, and the handling of missed fires.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

fn every(cron: &str, zone: &str, catch_up: CatchUp) -> ScheduleSpec {
    ScheduleSpec {
        name: "tick/tock".into(),
        cron: cron.into(),
        zone: zone.into(),
        catch_up,
        jitter_ms: 0,
        event: out("tick", "{}"),
    }
}

fn fires(harness: &Harness) -> Vec<u64> {
    harness.events("tick").iter().map(|event| (event.ts.0 - START.0) / 1000).collect()
}

/// The planned times of the fires, in seconds from the start.
fn planned(harness: &Harness) -> Vec<u64> {
    let planned = |event: &std::sync::Arc<Event>| {
        let headers = event.body.headers.as_ref().expect("headers").to_map();
        (headers[PLANNED_AT].parse::<u64>().expect("milliseconds") - START.0) / 1000
    };
    harness.events("tick").iter().map(planned).collect()
}

fn times(cron: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let times = Times::parse("x", cron, zone).expect("a sound schedule");
    let from: jiff::Timestamp = from.parse().expect("a time");
    let mut at = Timestamp(from.as_millisecond() as u64);
    (0..count)
        .map(|_| {
            at = times.next(at).expect("another fire");
            at.to_string()[..16].to_owned()
        })
        .collect()
}

#[test]
fn a_schedule_fires_on_time_and_its_handlers_run() {
    let mut harness = Harness::new();
    let schedule = every("*/5 * * * *", "UTC", CatchUp::One);
    harness.join("a", config(), vec![handler("m:h", "tick")], vec![schedule]);
    assert_eq!(harness.pass_working(16 * MINUTE), 3);
    assert_eq!(fires(&harness), [300, 600, 900]);
}

#[test]
fn many_sessions_fire_once() {
    let mut harness = Harness::new();
    for who in ["a", "b", "c", "d"] {
        harness.join(
            who,
            config(),
            vec![handler("m:h", "tick")],
            vec![every("* * * * *", "UTC", CatchUp::One)],
        );
    }
    harness.pass_working(10 * MINUTE);
    assert_eq!(fires(&harness), (1..=10).map(|n| n * 60).collect::<Vec<_>>());
}

#[test]
fn many_sessions_that_fire_at_the_same_moment_fire_once() {
    let mut harness = Harness::new();
    for who in ["a", "b", "c"] {
        harness.join(who, config(), vec![], vec![every("* * * * *", "UTC", CatchUp::One)]);
    }
    harness.pass(MINUTE - 1);
    harness.hold = true;
    harness.pass(1);
    let firing = |batch: &Batch| batch.ops.iter().any(|op| matches!(op, Op::Append(_)));
    assert!(harness.held.iter().filter(|(_, _, batch)| firing(batch)).count() >= 2, "they race");
    harness.release_commits();
    harness.pass(10);
    assert_eq!(harness.events("tick").len(), 1);
    harness.pass(MINUTE);
    assert_eq!(harness.events("tick").len(), 2);
}

#[test]
fn missed_fires_are_made_up_for_by_one_all_or_none() {
    for (catch_up, expected) in [(CatchUp::One, 1), (CatchUp::All, 300), (CatchUp::None, 0)] {
        let mut harness = Harness::new();
        harness.join("a", config(), vec![], vec![every("*/2 * * * *", "UTC", catch_up)]);
        harness.crash("a");
        harness.pass(600 * MINUTE + 90_000);
        harness.join("b", config(), vec![], vec![every("*/2 * * * *", "UTC", catch_up)]);
        harness.pass(1000);
        assert_eq!(harness.events("tick").len(), expected, "{catch_up:?}");
        harness.pass(2 * MINUTE);
        assert_eq!(harness.events("tick").len(), expected + 1, "{catch_up:?}");
    }
}

#[test]
fn a_schedule_can_be_switched_off_and_on_while_sessions_run() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![], vec![every("* * * * *", "UTC", CatchUp::All)]);
    harness.pass(2 * MINUTE);
    let switch = |harness: &mut Harness, enabled, nonce| {
        let (key, value) = harness.rows(Space::Schedules).remove(0);
        assert_eq!(key, keys::schedule(&Namespace::default(), "tick/tock"));
        let value = value.into_bytes().into();
        let now = harness.now.wall;
        let batch =
            set_schedule_enabled(&Namespace::default(), "tick/tock", &value, enabled, now, nonce).unwrap();
        millrace_store::Store::commit(&harness.store, &[batch]).unwrap();
    };
    switch(&mut harness, false, 1);
    harness.pass(5 * MINUTE);
    assert_eq!(harness.events("tick").len(), 2);
    switch(&mut harness, true, 2);
    harness.pass(2 * MINUTE);
    assert_eq!(harness.events("tick").len(), 4, "what was missed while it was off stays missed");
}

/// Commits a change of the schedule's row, as another process would.
fn change(harness: &mut Harness, make: impl FnOnce(&bytes::Bytes, Timestamp) -> Option<Batch>) -> bool {
    let (_, value) = harness.rows(Space::Schedules).remove(0);
    match make(&value.into_bytes().into(), harness.now.wall) {
        Some(batch) => {
            let done = millrace_store::Store::commit(&harness.store, &[batch]).expect("a commit");
            matches!(done[0], Outcome::Done(_))
        }
        None => false,
    }
}

fn ask_for_a_run(harness: &mut Harness, nonce: u64) -> bool {
    let namespace = Namespace::default();
    change(harness, |value, now| {
        request_schedule_run(&namespace, "tick/tock", value, now, nonce).expect("a row")
    })
}

#[test]
fn a_run_that_was_asked_for_is_one_fire_of_many_sessions() {
    let mut harness = Harness::new();
    for who in ["a", "b", "c"] {
        harness.join(who, config(), vec![], vec![every("0 * * * *", "UTC", CatchUp::One)]);
    }
    harness.pass(MINUTE);
    assert!(ask_for_a_run(&mut harness, 1));
    assert!(!ask_for_a_run(&mut harness, 2), "two requests are one fire");
    harness.pass(MINUTE);
    assert_eq!(planned(&harness), [60], "planned for the time at which it was asked for");
    assert!(ask_for_a_run(&mut harness, 3), "and then there may be another");
    harness.pass(MINUTE);
    assert_eq!(planned(&harness), [60, 120]);
    harness.pass(HOUR);
    assert_eq!(planned(&harness), [60, 120, 3600], "the planned fires go on as before");
    let (key, value) = harness.rows(Space::Schedules).remove(0);
    let row = ScheduleRow::decode(&key, value.as_bytes()).expect("a row");
    assert_eq!((row.run, row.fires), (None, 3));
}

#[test]
fn a_run_of_a_paused_schedule_leaves_it_paused() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![], vec![every("* * * * *", "UTC", CatchUp::All)]);
    harness.pass(1000);
    let namespace = Namespace::default();
    let pause = |value: &bytes::Bytes, now| {
        Some(set_schedule_enabled(&namespace, "tick/tock", value, false, now, 1).unwrap())
    };
    assert!(change(&mut harness, pause));
    assert!(ask_for_a_run(&mut harness, 2));
    harness.pass(5 * MINUTE);
    assert_eq!(planned(&harness), [1]);
}

#[test]
fn a_run_waits_for_a_session_that_has_the_schedule() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![], vec![every("0 0 1 1 *", "UTC", CatchUp::One)]);
    harness.pass(1000);
    harness.crash("a");
    assert!(ask_for_a_run(&mut harness, 1));
    harness.join("b", config(), vec![handler("m:h", "tick")], vec![]);
    harness.pass(MINUTE);
    assert_eq!(harness.events("tick").len(), 0, "this one does not know the schedule's event");
    // A session that brings another time takes the request over with the schedule.
    harness.join("c", config(), vec![], vec![every("1 0 1 1 *", "UTC", CatchUp::One)]);
    harness.pass(MINUTE);
    assert_eq!(planned(&harness), [1]);
}

#[test]
fn a_run_asked_for_by_a_clock_that_is_ahead_is_not_early() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![], vec![every("0 0 1 1 *", "UTC", CatchUp::One)]);
    harness.pass(1000);
    let namespace = Namespace::default();
    let ahead = |value: &bytes::Bytes, now: Timestamp| {
        request_schedule_run(&namespace, "tick/tock", value, now + 30_000, 1).unwrap()
    };
    assert!(change(&mut harness, ahead));
    harness.pass(20_000);
    assert_eq!(harness.events("tick").len(), 0);
    harness.pass(20_000);
    assert_eq!(fires(&harness), [31]);
}

#[test]
fn an_expression_that_is_too_long_is_refused_before_it_is_parsed() {
    let refused =
        Times::parse("x", &format!("{}0 * * * *", "0,".repeat(CRON_CHARS_MAX)), "UTC").expect_err("too long");
    assert!(refused.to_string().contains("at most 512") && refused.to_string().len() < 200, "{refused}");
    let all = |to: u32| (0..to).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let months = (1..13).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let days = (1..32).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let whole = format!("{} {} {days} {months} {}", all(60), all(24), all(7));
    assert!(Times::parse("x", &whole, "UTC").is_ok(), "{} characters", whole.len());
    assert!(Times::parse("x", "1-100000000 * * * *", "UTC").is_err());
}

#[test]
fn a_session_with_a_new_time_takes_the_schedule_over() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![], vec![every("* * * * *", "UTC", CatchUp::All)]);
    harness.pass(90_000);
    harness.join("b", config(), vec![], vec![every("0 * * * *", "UTC", CatchUp::All)]);
    harness.pass(30 * MINUTE);
    assert_eq!(harness.events("tick").len(), 1);
    assert!(harness.notes.iter().any(|note| matches!(note, Note::ScheduleSkipped { .. })));
}

#[test]
fn jitter_delays_by_the_same_amount_everywhere() {
    let mut harness = Harness::new();
    let jittered = ScheduleSpec { jitter_ms: 20_000, ..every("* * * * *", "UTC", CatchUp::One) };
    for who in ["a", "b"] {
        harness.join(who, config(), vec![], vec![jittered.clone()]);
    }
    harness.pass(30 * MINUTE);
    let late: Vec<u64> = harness.events("tick").iter().map(|event| event.ts.0 % MINUTE).collect();
    assert!(late.len() >= 29 && late.iter().all(|ms| *ms <= 20_000), "{late:?}");
    assert!(late.iter().collect::<std::collections::BTreeSet<_>>().len() > 5, "{late:?}");
}

#[test]
fn a_time_that_the_clock_skips_fires_once_at_the_shift() {
    let fires = times("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 4);
    assert_eq!(fires, ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30", "2026-03-31T00:30"]);
}

#[test]
fn the_shift_is_noticed_from_every_second_before_it() {
    for from in ["2026-03-29T00:58:59.5Z", "2026-03-29T00:59:00Z", "2026-03-29T00:59:59.999Z"] {
        assert_eq!(times("30 2 * * *", "Europe/Berlin", from, 1), ["2026-03-29T01:00"], "{from}");
    }
    assert_eq!(times("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", 1), ["2026-03-30T00:30"]);
}

#[test]
fn a_time_that_comes_twice_fires_once() {
    let fires = times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 3);
    assert_eq!(fires, ["2026-10-25T00:30", "2026-10-26T01:30", "2026-10-27T01:30"]);
}

#[test]
fn intervals_go_by_elapsed_time_through_both_shifts() {
    let spring = times("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:20:00Z", 4);
    assert_eq!(spring, ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30", "2026-03-29T02:00"]);
    let autumn = times("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:20:00Z", 4);
    assert_eq!(autumn, ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"]);
}

#[test]
fn the_engine_fires_once_through_the_hour_that_comes_twice() {
    let mut harness = Harness::new();
    // 24 October 2026, noon.
    harness.now.wall = Timestamp(1_792_843_200_000);
    harness.join("a", config(), vec![], vec![every("30 2 * * *", "Europe/Berlin", CatchUp::One)]);
    harness.pass(24 * HOUR);
    assert_eq!(harness.events("tick").len(), 1);
}

#[test]
fn the_29th_of_february_is_found_over_2100() {
    assert_eq!(times("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1), ["2104-02-29T00:00"]);
    assert_eq!(times("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 1), ["2028-02-29T00:00"]);
}

#[test]
fn day_of_month_or_weekday_is_enough() {
    // The 13th of the month, or a Friday.
    let fires = times("0 0 13 * 5", "UTC", "2026-10-01T00:00:00Z", 4);
    assert_eq!(fires, ["2026-10-02T00:00", "2026-10-09T00:00", "2026-10-13T00:00", "2026-10-16T00:00"]);
}

#[test]
fn nicknames_are_known() {
    let first = |cron| times(cron, "UTC", "2026-03-01T08:00:00Z", 1).remove(0);
    assert_eq!(first("@hourly"), "2026-03-01T09:00");
    assert_eq!(first("@daily"), "2026-03-02T00:00");
    assert_eq!(first("@midnight"), "2026-03-02T00:00");
    assert_eq!(first("@weekly"), "2026-03-08T00:00");
    assert_eq!(first("@monthly"), "2026-04-01T00:00");
    assert_eq!(first("@yearly"), "2027-01-01T00:00");
}

#[test]
fn an_interval_fires_on_a_grid_that_all_sessions_share() {
    let mut harness = Harness::new();
    // The grid begins at midnight in 1970: 08:00 is a multiple of 90 seconds.
    harness.pass(40_000);
    harness.join("a", config(), vec![], vec![every("@every 90s", "UTC", CatchUp::One)]);
    harness.pass(25_000);
    harness.join("b", config(), vec![], vec![every("@every 90s", "UTC", CatchUp::One)]);
    harness.pass(5 * MINUTE);
    assert_eq!(fires(&harness), [90, 180, 270, 360]);
    harness.crash("a");
    harness.crash("b");
    harness.pass(MINUTE);
    harness.join("c", config(), vec![], vec![every("@every 90s", "UTC", CatchUp::One)]);
    harness.pass(3 * MINUTE);
    assert_eq!(fires(&harness), [90, 180, 270, 360, 450, 540], "a restart moves nothing");
}

#[test]
fn missed_fires_of_an_interval_are_made_up_for_like_any() {
    for (catch_up, expected) in
        [(CatchUp::One, vec![3600]), (CatchUp::All, (1..=40).map(|n| n * 90).collect())]
    {
        let mut harness = Harness::new();
        harness.join("a", config(), vec![], vec![every("@every 1m30s", "UTC", catch_up)]);
        harness.crash("a");
        harness.pass(HOUR + 10_000);
        harness.join("b", config(), vec![], vec![every("@every 1m30s", "UTC", catch_up)]);
        harness.pass(1000);
        assert_eq!(planned(&harness), expected, "{catch_up:?}");
    }
}

#[test]
fn an_event_says_when_its_fire_was_planned() {
    let mut harness = Harness::new();
    let jittered = ScheduleSpec { jitter_ms: 20_000, ..every("* * * * *", "UTC", CatchUp::One) };
    harness.join("a", config(), vec![], vec![jittered]);
    harness.pass(10 * MINUTE + 30_000);
    assert_eq!(planned(&harness), (1..=10).map(|n| n * 60).collect::<Vec<_>>());
    assert!(
        harness.events("tick").iter().any(|event| event.ts.0 % MINUTE > 0),
        "jitter moves the event only"
    );
}

#[test]
fn bad_intervals_say_what_is_wrong() {
    let parse = |every: &str| Times::parse("x", every, "UTC").expect_err("a bad interval").to_string();
    for every in [
        "@every",
        "@every ",
        "@every 90",
        "@every s",
        "@every 1w",
        "@every 1.5h",
        "@every 1h 30m",
        "@every -5s",
    ] {
        let text = parse(every);
        assert!(text.contains("is not an interval") && text.contains("90s or 1h30m"), "{every}: {text}");
    }
    for every in ["@every 0s", "@every 367d", "@every 18446744073709551615d"] {
        assert!(parse(every).contains("is not"), "{every}");
    }
    assert!(parse("@every 0s").contains("between 1s and 366d"));
    assert!(parse("@reboot").contains("is not a cron expression of five fields"));
}

#[test]
fn bad_schedules_say_what_is_wrong() {
    let make =
        |schedule| Worker::new(config(), identity("x"), vec![], vec![schedule], 1).unwrap_err().to_string();
    for cron in ["", "* * * *", "0 * * * * *", "60 * * * *", "* * * * * * *", "nonsense"] {
        let text = make(every(cron, "UTC", CatchUp::One));
        assert!(text.contains("is not a cron expression of five fields"), "{cron:?}: {text}");
    }
    let text = make(every("* * * * *", "Europe/Atlantis", CatchUp::One));
    assert!(text.contains("\"Europe/Atlantis\" is not known"), "{text}");
    let text = make(every("0 0 30 2 *", "UTC", CatchUp::One));
    assert!(text.contains("never fires"), "{text}");
}

#[test]
fn a_clock_that_steps_back_fires_nothing_twice() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![], vec![every("* * * * *", "UTC", CatchUp::One)]);
    harness.pass(3 * MINUTE);
    harness.now.wall = Timestamp(harness.now.wall.0 - 2 * MINUTE);
    harness.pass(2 * MINUTE);
    assert_eq!(harness.events("tick").len(), 3);
    harness.pass(MINUTE);
    assert_eq!(harness.events("tick").len(), 4);
}

#[test]
fn a_fire_that_waits_while_the_clock_steps_back_is_not_early() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![handler("m:h", "t")], vec![every("* * * * *", "UTC", CatchUp::One)]);
    harness.pass(MINUTE - 1);
    harness.hold = true;
    harness.publish(out("t", "1"));
    assert_eq!(harness.held.len(), 1, "a claim is on its way, the fire must wait for it");
    harness.pass(1);
    harness.now.wall = Timestamp(harness.now.wall.0 - 5000);
    harness.release_commits();
    assert!(harness.events("tick").is_empty(), "too early");
    harness.pass(5000);
    assert_eq!(fires(&harness), [60]);
}

#[test]
fn days_of_minutes_come_by_without_polling() {
    let mut harness = Harness::new();
    let alone = WorkerConfig { alone: true, ..config() };
    harness.join("a", alone, vec![handler("m:h", "tick")], vec![every("* * * * *", "UTC", CatchUp::One)]);
    assert_eq!(harness.pass_working(3 * 24 * HOUR), 3 * 24 * 60);
}
