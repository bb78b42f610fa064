//! Example 3: a scheduled task, on virtual time, so that three nights take no time at all.
//!
//! `cargo run -p millrace --example ex3_nightly_cleanup`; with a store (`... sqlite:///app.db`) the program waits for
//! real nights until Ctrl+C.

use std::time::Duration;

use millrace::{
    Entity, Event, HandlerContext, Result, Running, Schedule, Session, Simulation, handlers, on_event,
    schedules,
};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(priority = 50)]
struct SystemCleanup {
    cutoff_days: u64,
}

#[derive(Entity, Serialize, Deserialize)]
struct Record {
    #[key]
    id: u64,
    created_at: u64,
}

#[on_event(SystemCleanup)]
fn cleanup_old_data(ctx: &mut HandlerContext<SystemCleanup>) -> Result<()> {
    let cutoff = ctx.now().0.saturating_sub(ctx.event.cutoff_days * 24 * 3600 * 1000);
    let old = ctx.query::<Record>().filter(|record| record.created_at.lt(cutoff)).collect()?;
    println!("{}: {} records are too old", ctx.now(), old.len());
    for record in old {
        ctx.retract::<Record>(record.id)?;
    }
    ctx.commit()?;
    Ok(())
}

fn nightly() -> Result<Vec<Schedule>> {
    Ok(schedules![Schedule::cron("0 2 * * *", SystemCleanup { cutoff_days: 1 })?])
}

/// Returns how many records are left after each of three nights.
pub(crate) fn run() -> Result<Vec<u64>> {
    let sim = Simulation::builder(1).namespace("system-tasks").open()?;
    let hour = 3_600_000;
    sim.ensure((0..48).map(|n| Record { id: n, created_at: sim.now().0 + n * hour }))?;
    sim.commit()?;
    sim.start(handlers![cleanup_old_data], nightly()?)?;
    let mut left = Vec::new();
    for _ in 0..3 {
        sim.advance(Duration::from_secs(24 * 3600))?;
        left.push(sim.query::<Record>().count()?);
    }
    Ok(left)
}

fn open(store: &str) -> Result<Session> {
    Session::builder(store).namespace("system-tasks").open()
}

/// Runs the schedule in the background, on a store, until the returned `Running` is stopped.
#[allow(dead_code)]
pub(crate) fn start(store: &str) -> Result<(Session, Running)> {
    let session = open(store)?;
    let running = session.spawn(handlers![cleanup_old_data], nightly()?)?;
    Ok((session, running))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(store) => open(&store)?.run(handlers![cleanup_old_data], nightly()?),
        None => {
            println!("left after each night: {:?}", run()?);
            Ok(())
        }
    }
}
