//! A long log: how fast the server is back after SIGKILL, what it needs at rest, and whether reading by offset and by
//! time depends on the log's length.

use std::time::Instant;

use super::link::{fill, payload};
use super::server::Server;
use crate::BenchOptions;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::report::Collector;

const READS: u64 = 200;

pub(crate) fn run(
    server: &mut Server,
    options: &BenchOptions,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let topic = "bench.recovery";
    let mut filled = 0;
    for length in [options.log_events / 100, options.log_events] {
        let ids = format!("to-{length}");
        fill(server.ws(), topic, length - filled, &payload(options.payload_bytes), Some(&ids))?;
        filled = length;
        reads(server, topic, length, out)?;
    }
    if let Some(mib) = server.memory_mib() {
        out.add("recovery", "memory after filling", "MiB", mib);
    }
    let begun = Instant::now();
    server.kill_and_restart()?;
    out.add(
        "recovery",
        &format!("ready after a kill, {filled} events"),
        "ms",
        begun.elapsed().as_secs_f64() * 1e3,
    );
    if let Some(mib) = server.memory_mib() {
        out.add("recovery", "memory when ready again", "MiB", mib);
    }
    reads(server, topic, filled, out)
}

fn reads(server: &Server, topic: &str, length: u64, out: &mut Collector) -> Result<(), BenchError> {
    let first = server.get(&format!("/topics/{topic}/events?from=1&limit=1"))?;
    let last = server.get(&format!("/topics/{topic}/events?from={length}&limit=1"))?;
    let (oldest, newest) = (ts_of(&first)?, ts_of(&last)?);
    let (mut by_offset, mut by_time) = (Latencies::default(), Latencies::default());
    for n in 0..READS {
        // Spread over the whole log in an order that is not the log's.
        let at = n.wrapping_mul(7919) % READS;
        let offset = 1 + at * (length - 1) / READS;
        let begun = Instant::now();
        server.get(&format!("/topics/{topic}/events?from={offset}&limit=10"))?;
        by_offset.push(begun.elapsed());
        let ts = oldest + at * (newest - oldest) / READS;
        let begun = Instant::now();
        server.get(&format!("/topics/{topic}/events?ts={ts}&limit=10"))?;
        by_time.push(begun.elapsed());
    }
    out.add("recovery", &format!("read 10 by offset of {length}, p50"), "ms", by_offset.quantile_ms(0.5));
    out.add("recovery", &format!("read 10 by time of {length}, p50"), "ms", by_time.quantile_ms(0.5));
    Ok(())
}

fn ts_of(page: &str) -> Result<u64, BenchError> {
    let value: serde_json::Value = serde_json::from_str(page).unwrap_or_default();
    value["events"][0]["ts"].as_u64().ok_or_else(|| BenchError::Unexpected(page.to_owned()))
}
