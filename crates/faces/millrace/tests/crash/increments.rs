//! A counter, four processes with eight concurrent handlers each, and kills: however often a run is repeated, each
//! event is counted once. Half of the runs use `update`, half read and then declare; some fail or panic after their
//! last commit.
//!
//! A longer run by hand: `MILLRACE_INCREMENTS=100000 MILLRACE_INCREMENT_KILLS=100 cargo test --release -p millrace
//! --test crash increments -- --nocapture`.

use std::time::{Duration, Instant};

use millrace::{Config, Entity, Event, Handler, Session};
use millrace_admin::Admin;
use serde::{Deserialize, Serialize};

use crate::process::{self, Crew, Place, work};
use crate::{Draw, PROCESSES, check};

const INCREMENTS: &str = "MILLRACE_INCREMENTS";
const INCREMENTS_PLAIN: u64 = 4000;
const KILLS: &str = "MILLRACE_INCREMENT_KILLS";
const KILLS_PLAIN: u64 = 12;
/// Events that are published by one call.
const PUBLISHED_AT_ONCE: u64 = 1000;
const TOTAL: &str = "total";

#[derive(Event, Clone, Debug, Serialize, Deserialize)]
struct Visit {
    n: u64,
}

#[derive(Event, Clone, Debug, Serialize, Deserialize)]
struct Counted {
    n: u64,
}

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Counter {
    #[key]
    name: String,
    visits: u64,
    /// The sum of the numbers of all visits, so that a visit counted twice does not hide a lost one.
    sum: u64,
}

impl Counter {
    fn and(old: Option<Counter>, n: u64) -> Counter {
        let (visits, sum) = old.map_or((0, 0), |old| (old.visits, old.sum));
        Counter { name: TOTAL.to_owned(), visits: visits + 1, sum: sum + n }
    }
}

fn config() -> Config {
    Config {
        handler_concurrency: 8,
        event_claim_limit: 64,
        event_claim_lease_ms: 1000,
        // Kills cost attempts, conflicts do not.
        event_max_attempts: 60,
        event_backoff_base_ms: 1,
        event_backoff_max_ms: 10,
        // Small, so that conflicts are resolved both inside a commit and by another run.
        update_retries_max: 10,
        ..Config::default()
    }
}

fn count() -> Handler {
    Handler::from_fn::<Visit>("count", |ctx| {
        let n = ctx.event.n;
        if n % 2 == 0 {
            ctx.update(TOTAL, move |old| Counter::and(old, n))?;
        } else {
            let old = ctx.get::<Counter>(TOTAL)?.map(millrace::Stored::into_inner);
            ctx.ensure(Counter::and(old, n))?;
        }
        ctx.emit(Counted { n })?;
        ctx.commit_and_ack()?;
        match n % 50 {
            7 => Err("failed after the event was done".into()),
            14 => panic!("panicked after the event was done"),
            _ => Ok(()),
        }
    })
}

/// Runs in the child processes.
#[test]
fn child() {
    work(config(), vec![count()]);
}

#[test]
fn increments_over_processes_and_kills_are_exact() {
    let (increments, kills) = (number(INCREMENTS, INCREMENTS_PLAIN), number(KILLS, KILLS_PLAIN));
    let mut draw = Draw::seeded();
    let place = Place::new();
    let session = Session::builder(&place.url()).config(config()).open().unwrap();
    let began = Instant::now();
    for first in (0..increments).step_by(PUBLISHED_AT_ONCE as usize) {
        let visits = (first..increments.min(first + PUBLISHED_AT_ONCE)).map(|n| Visit { n });
        session.publish_all(visits).unwrap();
    }
    let mut crew = Crew::start(&place, "increments::child", vec![(process::STORE, place.url())], PROCESSES);
    // Each kill comes after a fixed number of further increments, so that every kill happens while there is work.
    let between = increments / (kills + 1);
    for kill in 1..=kills {
        wait_for(&session, &mut crew, kill * between);
        crew.kill_and_replace(draw.below(PROCESSES as u64) as usize);
    }
    let admin = Admin::new(place.store());
    wait_for(&session, &mut crew, increments);
    while check::unfinished(&admin, &session) > 0 && visits(&session) <= increments {
        crew.are_alive();
        std::thread::sleep(Duration::from_millis(20));
    }
    crew.stop();
    let counter = session.get::<Counter>(TOTAL).unwrap().unwrap().into_inner();
    let sum = (0..increments).sum();
    assert_eq!(counter, Counter { name: TOTAL.to_owned(), visits: increments, sum });
    let commits = session.state().head().unwrap().0;
    assert_eq!(commits, increments, "each event made one commit of state");
    assert!(admin.dead_letters(session.namespace_name(), usize::MAX).unwrap().is_empty());
    let emitted = admin_counted(&place);
    assert_eq!(emitted, increments, "each event emitted once");
    drop((session, admin));
    check::doctor(&place.url());
    println!(
        "{increments} increments, {kills} kills of {PROCESSES} processes, seed {}: counted {} in {:?}",
        draw.seed,
        counter.visits,
        began.elapsed(),
    );
}

fn number(variable: &str, plain: u64) -> u64 {
    std::env::var(variable).map_or(plain, |text| text.parse().unwrap())
}

fn visits(session: &Session) -> u64 {
    session.get::<Counter>(TOTAL).unwrap().map_or(0, |counter| counter.visits)
}

fn wait_for(session: &Session, crew: &mut Crew<'_>, count: u64) {
    while visits(session) < count {
        crew.are_alive();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns how many `Counted` events there are. Offsets have no gaps, so the next offset tells.
fn admin_counted(place: &Place) -> u64 {
    let streams = place.store().streams().unwrap();
    let counted = streams.iter().filter(|bounds| bounds.stream.topic.topic() == Counted::TYPE);
    counted.map(|bounds| bounds.next.0 - 1).sum()
}
