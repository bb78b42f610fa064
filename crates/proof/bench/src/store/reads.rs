//! Reading pages by offset and by time from a short and a long log, and opening the store again.

use std::path::Path;
use std::time::Instant;

use millrace_model::{Offset, Stream, Timestamp};
use millrace_store::{ReadLimit, Store};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

use super::append::{batch, body, streams};
use crate::BenchOptions;
use crate::aim::LONG_TO_SHORT;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::probe::{Probe, SLICES};
use crate::report::Collector;

const READS: u64 = 500;
const PAGE: ReadLimit = ReadLimit { events_max: 10, bytes_max: 1 << 20 };
const PER_COMMIT: u64 = 1000;

pub(crate) fn run(
    folder: &Path,
    options: &BenchOptions,
    probe: &mut Probe,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let path = folder.join("reads.db");
    let store = SqliteStore::open(&path, SqliteOptions::default())?;
    let (streams, body) = (streams(1), body(options.payload_bytes));
    let Some(stream) = streams.first() else { return Ok(()) };
    let mut filled = 0;
    let mut medians = Vec::new();
    for length in [options.log_events / 100, options.log_events] {
        let slice = (length - filled).div_ceil(u64::from(SLICES)).max(1);
        while filled < length {
            probe.slice()?;
            let until = length.min(filled + slice);
            while filled < until {
                let count = PER_COMMIT.min(until - filled);
                let batches: Vec<_> = (0..count).map(|n| batch(stream, &body, filled + n)).collect();
                filled += store.commit(&batches)?.len() as u64;
            }
        }
        while store.maintain(10_000)?.more {}
        let found = read(&store, stream, length)?;
        out.add("reads", &format!("10 by offset of {length}, p50"), "ms", found.by_offset);
        out.add("reads", &format!("seek by time in {length}, p50"), "ms", found.by_time);
        medians.push(found);
    }
    if let [short, long] = medians.as_slice() {
        out.add("reads", &format!("{LONG_TO_SHORT}, by offset"), "ratio", long.by_offset / short.by_offset);
        out.add("reads", &format!("{LONG_TO_SHORT}, by time"), "ratio", long.by_time / short.by_time);
    }
    drop(store);
    let begun = Instant::now();
    SqliteStore::open(&path, SqliteOptions::default())?;
    out.add("reads", &format!("open with {filled} events"), "ms", begun.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Medians in milliseconds.
struct ReadMedians {
    by_offset: f64,
    by_time: f64,
}

fn read(store: &SqliteStore, stream: &Stream, length: u64) -> Result<ReadMedians, BenchError> {
    let (mut by_offset, mut by_time) = (Latencies::default(), Latencies::default());
    let time_of = |at| -> Result<Timestamp, BenchError> {
        let page = store.read(stream, Offset(at), PAGE)?;
        Ok(page.events.first().map(|event| event.ts).unwrap_or_default())
    };
    let (oldest, newest) = (time_of(1)?, time_of(length)?);
    for n in 0..READS {
        let at = n.wrapping_mul(7919) % READS;
        let begun = Instant::now();
        store.read(stream, Offset(1 + at * (length - 1) / READS), PAGE)?;
        by_offset.push(begun.elapsed());
        let begun = Instant::now();
        store.seek(stream, Timestamp(oldest.0 + at * (newest.0 - oldest.0) / READS))?;
        by_time.push(begun.elapsed());
    }
    Ok(ReadMedians { by_offset: by_offset.quantile_ms(0.5), by_time: by_time.quantile_ms(0.5) })
}
