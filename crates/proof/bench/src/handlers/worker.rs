//! A worker process: the first line of stdin is the URL of the store, which may hold a password and so is no argument. The
//! other lines are commands, each answered with a count.

use std::io::Write;
use std::time::{Duration, Instant};

use millrace::{Config, Session};

use super::load::{HandledTally, Job, Work, handler, publish as publish_backlog, work_through};
use crate::error::BenchError;

/// Printed once, when the store is open.
const READY: &str = "ready";
const CLAIMED_TOGETHER: usize = 64;

/// Runs until stdin ends.
pub fn bench_handlers_worker(payload_bytes: usize) -> Result<(), BenchError> {
    let wrong = |source| BenchError::io("reading what to do", source);
    let mut lines = std::io::stdin().lines();
    let Some(store) = lines.next() else { return Ok(()) };
    let session = Session::open(&store.map_err(wrong)?)?
        .to_builder()
        .config(Config { event_claim_limit: CLAIMED_TOGETHER, ..Config::default() })
        .open()?;
    say(READY)?;
    let mut running = Vec::new();
    for line in lines {
        let line = line.map_err(wrong)?;
        // Seconds, or a number of events.
        let (verb, amount) = line.split_once(' ').unwrap_or((&line, ""));
        let amount: f64 = amount.parse().map_err(|_| BenchError::Unexpected(line.clone()))?;
        let (time, events) = (Duration::from_secs_f64(amount), amount as u64);
        let count = match verb {
            "publish" => publish(&session, time, payload_bytes)?,
            "idle" => {
                let (tally, _reached) = HandledTally::new();
                running.push(session.spawn(vec![handler(Work::Nothing, &tally)], vec![])?);
                0
            }
            "handle" => handle(&session, time)?,
            "backlog" => publish_backlog(&session, events, payload_bytes).map(|()| events)?,
            "work" => work(&session, events)?,
            _ => return Err(BenchError::Unexpected(line)),
        };
        say(&count.to_string())?;
    }
    Ok(())
}

fn say(line: &str) -> Result<(), BenchError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|source| BenchError::io("answering", source))
}

fn publish(session: &Session, time: Duration, bytes: usize) -> Result<u64, BenchError> {
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < time {
        session.publish(Job::new(count, bytes))?;
        count += 1;
    }
    Ok(count)
}

/// Handles exactly so many events.
fn work(session: &Session, events: u64) -> Result<u64, BenchError> {
    let (tally, reached) = HandledTally::new();
    work_through(session, vec![handler(Work::Nothing, &tally)], (&tally, &reached), events, || Ok(()))?;
    Ok(tally.handled())
}

fn handle(session: &Session, time: Duration) -> Result<u64, BenchError> {
    let (tally, _reached) = HandledTally::new();
    let running = session.spawn(vec![handler(Work::Nothing, &tally)], vec![])?;
    std::thread::sleep(time);
    running.stop()?;
    Ok(tally.handled())
}
