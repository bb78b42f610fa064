//! Publishing from 64 threads of one session, each waiting until its event is durable; and 64 events per call.

use std::thread;
use std::time::{Duration, Instant};

use millrace::Session;

use super::load::Job;
use super::stage::HandlersStage;
use crate::error::BenchError;

const IN_FLIGHT: usize = 64;

pub(crate) fn run(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    let session = stage.open()?;
    let bytes = stage.options.payload_bytes;
    let before = session.commits_made();
    let mut single = 0;
    let busy = stage.slices(|time| {
        let (count, took) = from_threads(&session, time, bytes)?;
        single += count;
        Ok(took)
    })?;
    let commits = session.commits_made() - before;
    stage.out.add("enqueue", "64 threads, rate", "events/s", single as f64 / busy.as_secs_f64());
    stage.out.add("enqueue", "64 threads, per sync", "events", single as f64 / commits.max(1) as f64);
    let mut together = 0;
    let busy = stage.slices(|time| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            let jobs = (0..IN_FLIGHT as u64).map(|number| Job::new(number, bytes));
            together += session.publish_all(jobs)?.len();
        }
        Ok(begun.elapsed())
    })?;
    stage.out.add("enqueue", "64 per publish_all, rate", "events/s", together as f64 / busy.as_secs_f64());
    Ok(())
}

fn from_threads(session: &Session, time: Duration, bytes: usize) -> Result<(u64, Duration), BenchError> {
    let begun = Instant::now();
    let publish = || {
        let mut count = 0;
        while begun.elapsed() < time {
            session.publish(Job::new(count, bytes))?;
            count += 1;
        }
        Ok::<u64, BenchError>(count)
    };
    let count = thread::scope(|scope| {
        let threads: Vec<_> = (0..IN_FLIGHT).map(|_| scope.spawn(publish)).collect();
        let counts = threads.into_iter().map(|thread| thread.join().map_err(|_| BenchError::Panicked)?);
        counts.sum::<Result<u64, _>>()
    })?;
    Ok((count, begun.elapsed()))
}
