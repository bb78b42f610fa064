//! 13. Schedules publish their event at its time.

use std::time::Duration;

use millrace::{CatchUp, Schedule};

use crate::words::*;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn schedules_fire_on_time_and_independently() {
    let sim = simulation();
    let seen = Seen::default();
    let notes = seen.clone();
    let handler = on::<Ping>("pings", move |ctx| {
        notes.add(format!("{} {}", ctx.event.n, ctx.meta().created_at));
        Ok(())
    });
    let schedules = vec![
        Schedule::cron("*/15 * * * *", Ping { n: 15 }).unwrap(),
        Schedule::cron("0 2 * * *", Ping { n: 2 }).unwrap(),
    ];
    sim.start(vec![handler], schedules).unwrap();
    sim.advance(Duration::from_millis(15 * 60_000 - 1)).unwrap();
    assert_eq!(seen.take(), Vec::<String>::new());
    sim.advance(Duration::from_millis(1)).unwrap();
    assert_eq!(seen.take(), ["15 2026-01-01T00:15:00.000Z"]);
    sim.advance(MINUTE * 60 * 24).unwrap();
    let seen = seen.take();
    assert_eq!(seen.iter().filter(|line| line.starts_with("15 ")).count(), 96);
    assert_eq!(
        seen.iter().filter(|line| line.starts_with("2 ")).collect::<Vec<_>>(),
        ["2 2026-01-01T02:00:00.000Z"]
    );
}

#[test]
fn many_sessions_fire_once() {
    let sim = simulation();
    let seen = Seen::default();
    let sessions: Vec<_> = (0..4).map(|_| sim.beside()).collect();
    for session in &sessions {
        let schedule = Schedule::cron("* * * * *", Ping { n: 1 }).unwrap();
        session.start(vec![noting::<Ping>("pings", &seen)], vec![schedule]).unwrap();
    }
    sim.advance(MINUTE * 10).unwrap();
    assert_eq!(seen.len(), 10);
}

#[test]
fn missed_fires_are_coalesced_made_up_for_or_let_go() {
    for (catch_up, expected) in [(CatchUp::One, 1), (CatchUp::All, 5), (CatchUp::None, 0)] {
        let sim = simulation();
        let seen = Seen::default();
        let schedule = || Schedule::cron("0 * * * *", Ping { n: 1 }).unwrap().catch_up(catch_up);
        sim.start(vec![], vec![schedule()]).unwrap();
        sim.run_until_idle().unwrap();
        sim.stop().unwrap();
        sim.advance(MINUTE * (5 * 60 + 30)).unwrap();
        let later = sim.beside();
        later.start(vec![noting::<Ping>("pings", &seen)], vec![schedule()]).unwrap();
        later.run_until_idle().unwrap();
        assert_eq!(seen.len(), expected, "{catch_up:?}");
    }
}

#[test]
fn schedules_are_listed_and_switched_while_they_run() {
    let sim = simulation();
    let seen = Seen::default();
    let schedule = Schedule::cron("* * * * *", Ping { n: 1 }).unwrap().named("every minute");
    sim.start(vec![noting::<Ping>("pings", &seen)], vec![schedule]).unwrap();
    sim.advance(MINUTE * 2).unwrap();
    let listed = sim.schedules().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].0.as_str(), listed[0].1.fires, listed[0].1.enabled), ("every minute", 2, true));
    sim.set_schedule_enabled("every minute", false).unwrap();
    sim.advance(MINUTE * 5).unwrap();
    assert_eq!(seen.len(), 2);
    sim.set_schedule_enabled("every minute", true).unwrap();
    sim.advance(MINUTE * 2).unwrap();
    assert_eq!(seen.len(), 4, "what it missed while it was off does not fire");
    let unknown = sim.set_schedule_enabled("nightly", true).unwrap_err().to_string();
    assert!(unknown.contains("no schedule named"), "{unknown}");
}

#[test]
fn local_time_follows_daylight_saving() {
    let sim = simulation();
    let seen = Seen::default();
    let notes = seen.clone();
    let handler = on::<Ping>("pings", move |ctx| {
        notes.add(ctx.meta().created_at.to_string());
        Ok(())
    });
    let schedule = Schedule::cron("0 12 * * *", Ping { n: 1 }).unwrap().zone("Europe/Berlin").unwrap();
    sim.start(vec![handler], vec![schedule]).unwrap();
    sim.advance(MINUTE * 60 * 24 * 120).unwrap();
    let seen = seen.all();
    assert!(seen.contains(&"2026-03-28T11:00:00.000Z".to_owned()));
    assert!(seen.contains(&"2026-03-29T10:00:00.000Z".to_owned()));
    assert_eq!(seen.len(), 120);
    assert!(Schedule::cron("* * *", Ping { n: 1 }).is_err());
    assert!(Schedule::cron("* * * * *", Ping { n: 1 }).unwrap().zone("Europe/Atlantis").is_err());
}
