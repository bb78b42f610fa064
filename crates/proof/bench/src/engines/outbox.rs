//! Events that an application publishes inside its own PostgreSQL transaction: the price of such a transaction, and how
//! fast a server takes the events out of the outbox.

use std::thread;
use std::time::{Duration, Instant};

use super::stage::EngineStage;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::probe::slice_time;

/// Events of a full outbox, for each second of a load.
const EVENTS_PER_SECOND: f64 = 10_000.0;
const LOOK: Duration = Duration::from_millis(2);

pub(super) fn run(stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
    let _server = stage.leader("server", &[])?;
    let (mut plain, mut publishing) = (Latencies::default(), Latencies::default());
    stage.slices(|stage, _| {
        transact(stage, false, &mut plain)?;
        transact(stage, true, &mut publishing)
    })?;
    wait_until_empty(stage)?;
    let (plain, publishing) = (plain.quantile_ms(0.5), publishing.quantile_ms(0.5));
    stage.add("transaction p50", "ms", plain);
    stage.add("transaction that publishes p50", "ms", publishing);
    stage.add("publishing / not publishing", "ratio", publishing / plain);
    let events = (stage.options.seconds * EVENTS_PER_SECOND) as u64;
    let payload = stage.payloads.next().to_owned();
    let Some(tables) = stage.place.raw.sql() else { return Ok(()) };
    tables.fill_outbox(&payload, events)?;
    let began = Instant::now();
    wait_until_empty(stage)?;
    stage.add("outbox emptied", "events/s", events as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

/// Transactions for half of a slice.
fn transact(
    stage: &mut EngineStage<'_>,
    publishes: bool,
    latencies: &mut Latencies,
) -> Result<(), BenchError> {
    let end = Instant::now() + slice_time(stage.options) / 2;
    let Some(tables) = stage.place.raw.sql() else { return Ok(()) };
    loop {
        let payload = stage.payloads.next();
        let began = Instant::now();
        tables.transact(payload, publishes)?;
        latencies.push(began.elapsed());
        if Instant::now() >= end {
            return Ok(());
        }
    }
}

fn wait_until_empty(stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
    let Some(tables) = stage.place.raw.sql() else { return Ok(()) };
    while !tables.is_outbox_empty()? {
        stage.options.go_on()?;
        thread::sleep(LOOK);
    }
    Ok(())
}
