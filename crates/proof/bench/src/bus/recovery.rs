//! A long log: how fast the server is ready again after SIGKILL, how much memory it needs at rest, and whether the time
//! to read by offset and by timestamp depends on the log's length.

use std::time::Instant;

use super::link::{fill, payload};
use super::server::BenchServer;
use super::stage::BusStage;
use crate::aim::LONG_TO_SHORT;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::probe::SLICES;

const TOPIC: &str = "bench.recovery";
const READS: u64 = 200;

pub(crate) fn run(stage: &mut BusStage<'_>) -> Result<(), BenchError> {
    let (short, long) = (stage.options.log_events / 100, stage.options.log_events);
    grow(stage, 0, short)?;
    let before = reads(stage, short, "")?;
    grow(stage, short, long)?;
    let after = reads(stage, long, "")?;
    stage.out.add(
        "recovery",
        &format!("{LONG_TO_SHORT}, by offset"),
        "ratio",
        after.by_offset / before.by_offset,
    );
    stage.out.add("recovery", &format!("{LONG_TO_SHORT}, by time"), "ratio", after.by_time / before.by_time);
    memory(stage, "memory after filling and reading");
    let begun = Instant::now();
    stage.server.kill_and_restart()?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    stage.out.add("recovery", &format!("ready after a kill, {long} events"), "ms", took);
    memory(stage, "memory when ready again");
    reads(stage, long, " after kill")?;
    Ok(())
}

fn memory(stage: &mut BusStage<'_>, figure: &str) {
    if let Some(megabytes) = stage.server.memory_mb() {
        stage.out.add("recovery", figure, "MB", megabytes);
    }
}

/// Appends events, each with an id, as clients do.
fn grow(stage: &mut BusStage<'_>, from: u64, to: u64) -> Result<(), BenchError> {
    let payload = payload(stage.options.payload_bytes);
    let mut filled = from;
    for slice in 1..=u64::from(SLICES) {
        let until = from + (to - from) * slice / u64::from(SLICES);
        stage.probe.slice()?;
        fill(stage.server.ws(), TOPIC, until - filled, &payload, Some(&format!("from-{filled}")))?;
        filled = until;
    }
    Ok(())
}

/// Medians in milliseconds.
struct ReadMedians {
    by_offset: f64,
    by_time: f64,
}

fn reads(stage: &mut BusStage<'_>, length: u64, when: &str) -> Result<ReadMedians, BenchError> {
    let server: &BenchServer = stage.server;
    let first = server.get(&format!("/topics/{TOPIC}/events?from=1&limit=1"))?;
    let last = server.get(&format!("/topics/{TOPIC}/events?from={length}&limit=1"))?;
    let (oldest, newest) = (ts_of(&first)?, ts_of(&last)?);
    let (mut by_offset, mut by_time) = (Latencies::default(), Latencies::default());
    for n in 0..READS {
        // Spreads the reads over the whole log, in an order that is not the log's.
        let at = n.wrapping_mul(7919) % READS;
        let offset = 1 + at * (length - 1) / READS;
        let begun = Instant::now();
        server.get(&format!("/topics/{TOPIC}/events?from={offset}&limit=10"))?;
        by_offset.push(begun.elapsed());
        let ts = oldest + at * (newest - oldest) / READS;
        let begun = Instant::now();
        server.get(&format!("/topics/{TOPIC}/events?ts={ts}&limit=10"))?;
        by_time.push(begun.elapsed());
    }
    let found = ReadMedians { by_offset: by_offset.quantile_ms(0.5), by_time: by_time.quantile_ms(0.5) };
    stage.out.add("recovery", &format!("10 by offset of {length}{when}, p50"), "ms", found.by_offset);
    stage.out.add("recovery", &format!("10 by time of {length}{when}, p50"), "ms", found.by_time);
    Ok(found)
}

fn ts_of(page: &str) -> Result<u64, BenchError> {
    let value: serde_json::Value = serde_json::from_str(page).unwrap_or_default();
    value["events"][0]["ts"].as_u64().ok_or_else(|| BenchError::Unexpected(page.to_owned()))
}
