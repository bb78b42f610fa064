//! A session with one handler and a backlog: from the claim to the acknowledgement on disk.

use std::time::Duration;

use millrace::{Config, HandlerOrder, HandlerSettings};

use super::load::{
    HANDLER, HandledTally, Work, handler, named_handler, publish, publish_keyed, work_through,
};
use super::stage::{HandlersStage, timed};
use crate::error::BenchError;

/// Jobs of the first slice; the size of later slices follows from the rate.
const FIRST_JOBS: u64 = 500;
/// Events of one claim in `noop`.
const CLAIMED_TOGETHER: usize = 64;
const AT_ONCE: usize = 32;
/// Handlers of `many`, and the events of its first slice: each handler runs each of them.
const HANDLERS: u64 = 300;
const FIRST_MANY_JOBS: u64 = 4;
/// Different keys of the events in `keyed`.
const KEYS: u64 = 1000;

pub(crate) fn noop(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    let config =
        Config { event_claim_limit: CLAIMED_TOGETHER, handler_concurrency: AT_ONCE, ..Config::default() };
    run(stage, "noop", Work::Nothing, config, None)
}

/// Like `noop`, with events of one key in order.
pub(crate) fn keyed(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    let by_key = HandlerSettings { order: Some(HandlerOrder::Key), ..HandlerSettings::default() };
    let config = Config {
        event_claim_limit: CLAIMED_TOGETHER,
        handler_concurrency: AT_ONCE,
        handlers: [(HANDLER.to_owned(), by_key)].into(),
        ..Config::default()
    };
    run(stage, "keyed", Work::Nothing, config, Some(KEYS))
}

pub(crate) fn state(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    run(stage, "state", Work::State, Config { handler_concurrency: AT_ONCE, ..Config::default() }, None)
}

/// Like `state`, one event at a time.
pub(crate) fn one(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    run(stage, "one", Work::StateAndAck, Config { handler_concurrency: 1, ..Config::default() }, None)
}

/// Handlers of one session, all of the same topic.
pub(crate) fn many(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    let config = Config { handler_concurrency: AT_ONCE, ..Config::default() };
    let session = stage.open()?.to_builder().config(config).open()?;
    let (tally, reached) = HandledTally::new();
    let options = stage.options;
    let mut jobs = FIRST_MANY_JOBS;
    let busy = stage.slices(|time| {
        publish(&session, jobs, options.payload_bytes)?;
        let handlers =
            (0..HANDLERS).map(|n| named_handler(&format!("bench::many{n}"), Work::Nothing, &tally));
        let all = (handlers.collect(), jobs * HANDLERS);
        let took = timed(|| work_through(&session, all.0, (&tally, &reached), all.1, || options.go_on()))?;
        jobs = next(jobs, took, time);
        Ok(took)
    })?;
    stage.out.add("many", "300 handlers, runs", "runs/s", tally.handled() as f64 / busy.as_secs_f64());
    Ok(())
}

pub(crate) fn emit(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    run(stage, "emit", Work::Emit, Config { handler_concurrency: AT_ONCE, ..Config::default() }, None)
}

fn run(
    stage: &mut HandlersStage<'_>,
    name: &str,
    work: Work,
    config: Config,
    keys: Option<u64>,
) -> Result<(), BenchError> {
    let session = stage.open()?.to_builder().config(config).open()?;
    let (tally, reached) = HandledTally::new();
    let options = stage.options;
    let (mut jobs, mut commits) = (FIRST_JOBS, 0);
    let busy = stage.slices(|time| {
        match keys {
            Some(keys) => publish_keyed(&session, jobs, options.payload_bytes, keys)?,
            None => publish(&session, jobs, options.payload_bytes)?,
        }
        let before = session.commits_made();
        let took = timed(|| {
            work_through(&session, vec![handler(work, &tally)], (&tally, &reached), jobs, || options.go_on())
        })?;
        commits += session.commits_made() - before;
        jobs = next(jobs, took, time);
        Ok(took)
    })?;
    let handled = tally.handled() as f64;
    stage.out.add(name, "handled", "events/s", handled / busy.as_secs_f64());
    stage.out.add(name, "handled per sync", "events", handled / (commits.max(1) as f64));
    Ok(())
}

/// Number of jobs that fit the time of a slice at the last slice's rate; at most a factor of four from the last number.
fn next(jobs: u64, took: Duration, time: Duration) -> u64 {
    let fits = jobs as f64 * time.as_secs_f64() / took.as_secs_f64().max(1e-6);
    (fits as u64).clamp(jobs / 4, jobs * 4).max(1)
}
