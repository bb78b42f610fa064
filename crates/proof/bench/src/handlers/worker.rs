//! A worker process of the `processes` scenario: carries out the commands on the lines of stdin and answers each with a
//! count.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use millrace::{Config, Session};

use super::load::{HandledTally, Job, Work, handler};
use super::stage::open;
use crate::error::BenchError;

/// Printed once, when the store is open.
const READY: &str = "ready";
const CLAIMED_TOGETHER: usize = 64;

/// Runs until stdin ends.
pub fn bench_handlers_worker(store: &Path, payload_bytes: usize) -> Result<(), BenchError> {
    let session = open(store)?
        .to_builder()
        .config(Config { event_claim_limit: CLAIMED_TOGETHER, ..Config::default() })
        .open()?;
    say(READY)?;
    for line in std::io::stdin().lines() {
        let line = line.map_err(|source| BenchError::io("reading what to do", source))?;
        let (verb, seconds) = line.split_once(' ').unwrap_or((&line, ""));
        let seconds: f64 = seconds.parse().map_err(|_| BenchError::Unexpected(line.clone()))?;
        let time = Duration::from_secs_f64(seconds);
        let count = match verb {
            "publish" => publish(&session, time, payload_bytes)?,
            "handle" => handle(&session, time)?,
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

fn handle(session: &Session, time: Duration) -> Result<u64, BenchError> {
    let (tally, _reached) = HandledTally::new();
    let running = session.spawn(vec![handler(Work::Nothing, &tally)], vec![])?;
    std::thread::sleep(time);
    running.stop()?;
    Ok(tally.handled())
}
