//! Cron across clock changes, in every zone of the bundled database: compared with a reference implementation that
//! looks at the wall clock minute by minute and shares no code with the engine.

mod harness;

use std::collections::{BTreeMap, BTreeSet};

use harness::*;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use millrace_claims::*;
use millrace_model::*;

const EXPRESSIONS: [&str; 20] = [
    "30 1 * * *",
    "0 2 * * *",
    "30 2 * * *",
    "0 3 * * *",
    "0 0 * * *",
    "30 0 * * *",
    "59 23 * * *",
    "0 12 * * *",
    "0,30 2 * * *",
    "15 0-4 * * *",
    "10 2,23 * * *",
    "0 0 1 * *",
    "30 0 * * 0",
    "45 1 1-15 * 6",
    "0 0 30 12 *",
    "*/20 * * * *",
    "7,37 */2 * * *",
    "20 * * * *",
    "*/30 2 * * *",
    "0 */6 * * *",
];

/// Parses a field of an expression into a bit for each value it names.
fn field(text: &str, from: u32, to: u32) -> u64 {
    let number = |text: &str| text.parse::<u32>().expect("a number");
    let mut values = 0;
    for part in text.split(',') {
        let (range, step) = part.split_once('/').map_or((part, 1), |(range, step)| (range, number(step)));
        let (low, high) = match range.split_once('-') {
            _ if range == "*" => (from, to),
            Some((low, high)) => (number(low), number(high)),
            None => (number(range), number(range)),
        };
        values |= (low..=high).step_by(step as usize).fold(0, |bits, value| bits | 1 << value);
    }
    values
}

struct Reference {
    fields: [u64; 5],
    /// Both day of month and weekday are given: then either is enough.
    either_day: bool,
    interval: bool,
}

impl Reference {
    fn new(cron: &str) -> Reference {
        let texts: Vec<&str> = cron.split(' ').collect();
        let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
        Reference {
            fields: std::array::from_fn(|at| field(texts[at], bounds[at].0, bounds[at].1)),
            either_day: texts[2] != "*" && texts[4] != "*",
            interval: texts[0].contains('*') || texts[1].contains('*'),
        }
    }

    fn matches(&self, local: &Local) -> bool {
        let Local { minute, hour, day, month, weekday } = *local;
        let [minutes, hours, days, months, weekdays] = self.fields;
        if minutes & minute == 0 || hours & hour == 0 || months & month == 0 {
            return false;
        }
        let (day, weekday) = (days & day != 0, weekdays & weekday != 0);
        if self.either_day { day || weekday } else { day && weekday }
    }

    /// The fires in the window, by what the wall clock showed minute by minute.
    fn fires(&self, shown: &[Shown]) -> Vec<jiff::Timestamp> {
        let fires = shown.iter().filter(|one| {
            let now = one.local.as_ref().is_some_and(|local| self.matches(local));
            match self.interval {
                true => now,
                false => now && one.first || one.skipped.iter().any(|local| self.matches(local)),
            }
        });
        fires.map(|one| one.at).collect()
    }
}

/// A local minute, each part as a bit.
struct Local {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
}

impl Local {
    /// Returns `None` for a time within a minute.
    fn of(local: DateTime) -> Option<Local> {
        let weekday = local.weekday().to_sunday_zero_offset();
        (local.second() == 0).then(|| Local {
            minute: 1 << local.minute(),
            hour: 1 << local.hour(),
            day: 1 << local.day(),
            month: 1 << local.month(),
            weekday: 1 << weekday,
        })
    }
}

/// A moment, and what the wall clock shows then.
struct Shown {
    at: jiff::Timestamp,
    local: Option<Local>,
    /// The clock has not shown this time before.
    first: bool,
    /// Times that the clock never showed, between the previous step and this one.
    skipped: Vec<Local>,
}

/// The times on the wall clock around a change, step by step: in half minutes where an offset has seconds.
fn clock_around(zone: &TimeZone, change: jiff::Timestamp) -> Vec<Shown> {
    let (from, to) = (change - SignedDuration::from_hours(26), change + SignedDuration::from_hours(26));
    let odd = |offset: Offset| offset.seconds() % 60 != 0;
    let step_s = if odd(zone.to_offset(from)) || odd(zone.to_offset(to)) { 30 } else { 60 };
    let step = SignedDuration::from_secs(step_s);
    let mut at = jiff::Timestamp::from_second(from.as_second().div_euclid(60) * 60).expect("a time");
    let mut shown = Vec::new();
    let (mut before, mut latest): (Option<DateTime>, Option<DateTime>) = (None, None);
    while at <= to {
        let local = zone.to_datetime(at);
        let mut skipped = Vec::new();
        let mut expected = before.map(|before| before + step);
        while let Some(missing) = expected.filter(|expected| *expected < local) {
            skipped.extend(Local::of(missing));
            expected = Some(missing + step);
        }
        let first = latest.is_none_or(|latest| local > latest);
        shown.push(Shown { at, local: Local::of(local), first, skipped });
        (before, latest) = (Some(local), latest.max(Some(local)));
        at += step;
    }
    shown
}

fn wall(at: jiff::Timestamp) -> Timestamp {
    Timestamp(at.as_millisecond() as u64)
}

/// The shape of a change: the offsets before and after it, and its time of day. Changes of equal shape are compared
/// once per zone, and once over all zones if they are from before 2015.
type Shape = (i32, i32, i64);

/// Changes of every zone since 1970: in each zone the latest of each shape since 2015, and every older shape once.
fn changes() -> Vec<(String, TimeZone, jiff::Timestamp)> {
    let database = TimeZoneDatabase::bundled();
    let (end, recent): (jiff::Timestamp, jiff::Timestamp) =
        ("2030-01-01T00:00:00Z".parse().expect("a time"), "2015-01-01T00:00:00Z".parse().expect("a time"));
    let mut everywhere = BTreeSet::new();
    let mut found = Vec::new();
    for name in database.available() {
        let zone = database.get(name.as_str()).expect("a zone");
        let mut here: BTreeMap<Shape, jiff::Timestamp> = BTreeMap::new();
        for change in zone.following("1970-01-03T00:00:00Z".parse().expect("a time")) {
            let at = change.timestamp();
            if at > end {
                break;
            }
            let before = zone.to_offset(at - SignedDuration::from_secs(1)).seconds();
            let after = zone.to_offset(at).seconds();
            let shape = (before, after, at.as_second().rem_euclid(24 * 3600));
            if before != after && (at > recent || everywhere.insert(shape)) {
                here.insert(shape, at);
            }
        }
        found.extend(here.into_values().map(|at| (name.as_str().to_owned(), zone.clone(), at)));
    }
    found
}

#[test]
fn every_zone_fires_as_the_clock_on_the_wall_says() {
    let references = EXPRESSIONS.map(|cron| (cron, Reference::new(cron)));
    let changes = changes();
    assert!(changes.len() > 500, "{} changes: is the database complete?", changes.len());
    let mut differing = Vec::new();
    for (name, zone, change) in &changes {
        let shown = clock_around(zone, *change);
        let (from, to) = (wall(shown[0].at), wall(shown[shown.len() - 1].at));
        for (cron, reference) in &references {
            // The first time in the window may be one shown for the second time, or follow a gap: comparing begins
            // after it.
            let expected: Vec<Timestamp> =
                reference.fires(&shown).into_iter().map(wall).filter(|at| *at > from).collect();
            let times = Times::parse("x", cron, name).expect("a schedule");
            let fires = std::iter::successors(times.next(from), |at| times.next(*at));
            let fires: Vec<Timestamp> = fires.take_while(|at| *at <= to).collect();
            if fires != expected {
                differing.push(format!("{name} at {change}: {cron}: {fires:?}, expected {expected:?}"));
            }
            differing
                .extend(wrong_latest(&times, &expected, to).map(|wrong| format!("{name}: {cron}: {wrong}")));
        }
    }
    let first = differing.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(differing.is_empty(), "{} of {}:\n{first}", differing.len(), changes.len() * EXPRESSIONS.len());
}

/// Checks that the latest fire is the one of the reference, just before, at and after each fire.
fn wrong_latest(times: &Times, fires: &[Timestamp], end: Timestamp) -> Option<String> {
    let (first, second) = (*fires.first()?, fires.get(1).copied());
    // Some of the fires are enough where there is one every minute.
    let some = fires.iter().step_by(fires.len().div_ceil(12)).flat_map(|at| [at.0 - 1, at.0, at.0 + 59_999]);
    for now in some.map(Timestamp).chain([end]) {
        let expected = fires.iter().rev().find(|at| **at <= now).copied();
        let latest = times.latest(first, second, now);
        if latest != expected {
            return Some(format!("at {now}: latest {latest:?}, expected {expected:?}"));
        }
    }
    None
}

fn times(cron: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let times = Times::parse("x", cron, zone).expect("a sound schedule");
    let from: jiff::Timestamp = from.parse().expect("a time");
    let fires = std::iter::successors(Some(wall(from)), |at| times.next(*at)).skip(1);
    fires.take(count).map(|at| at.to_string()[..16].to_owned()).collect()
}

#[test]
fn a_time_before_the_gap_fires_once_on_the_day_of_the_change() {
    // Berlin, 29 March 2026: 02:00 becomes 03:00, at 01:00 UTC.
    let fires = times("30 1 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 3);
    assert_eq!(fires, ["2026-03-29T00:30", "2026-03-29T23:30", "2026-03-30T23:30"]);
}

#[test]
fn a_midnight_that_is_skipped_fires_once_after_it() {
    // Havana, 8 March 2026: 00:00 becomes 01:00, at 05:00 UTC.
    let midnight = times("0 0 * * *", "America/Havana", "2026-03-07T12:00:00Z", 2);
    assert_eq!(midnight, ["2026-03-08T05:00", "2026-03-09T04:00"]);
    let evening = times("30 22 * * *", "America/Havana", "2026-03-07T12:00:00Z", 2);
    assert_eq!(evening, ["2026-03-08T03:30", "2026-03-09T02:30"]);
}

#[test]
fn a_day_that_was_left_out_ends_no_schedule() {
    // Samoa skipped 30 December 2011, from its local midnight at 10:00 UTC on the 30th.
    let noon = times("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 4);
    assert_eq!(noon, ["2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00", "2011-12-31T22:00"]);
    let hours = times("0 */12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 3);
    assert_eq!(hours, ["2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00"]);
}

#[test]
fn a_list_of_hours_is_a_list_of_times() {
    let spring = times("0 2,14 * * *", "Europe/Berlin", "2026-03-28T20:00:00Z", 2);
    assert_eq!(spring, ["2026-03-29T01:00", "2026-03-29T12:00"], "the one that is skipped comes at once");
    let autumn = times("0 2,14 * * *", "Europe/Berlin", "2026-10-24T20:00:00Z", 2);
    assert_eq!(autumn, ["2026-10-25T00:00", "2026-10-25T13:00"], "the one that comes twice fires once");
}

#[test]
fn catching_up_over_a_clock_change_takes_the_last_fire() {
    let missed = |catch_up| {
        let mut harness = Harness::new();
        // 28 March 2026, noon.
        harness.now.wall = Timestamp(1_774_699_200_000);
        let daily = ScheduleSpec {
            name: "daily".into(),
            cron: "30 2 * * *".into(),
            zone: "Europe/Berlin".into(),
            catch_up,
            jitter_ms: 0,
            event: out("tick", "{}"),
        };
        harness.join("a", config(), vec![], vec![daily.clone()]);
        harness.crash("a");
        harness.pass(3 * 24 * 3600 * 1000);
        harness.join("b", config(), vec![], vec![daily]);
        harness.pass(1000);
        let planned = |event: &std::sync::Arc<Event>| {
            let headers = event.body.headers.as_ref().expect("headers").to_map();
            Timestamp(headers[PLANNED_AT].parse().expect("milliseconds")).to_string()[..16].to_owned()
        };
        harness.events("tick").iter().map(planned).collect::<Vec<_>>()
    };
    assert_eq!(missed(CatchUp::One), ["2026-03-31T00:30"]);
    assert_eq!(missed(CatchUp::All), ["2026-03-29T01:00", "2026-03-30T00:30", "2026-03-31T00:30"]);
}
