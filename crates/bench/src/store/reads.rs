//! Reading pages by offset and by time from a short and a long log, and opening it again.

use std::path::Path;
use std::time::Instant;

use millrace_model::{Offset, Timestamp};
use millrace_store::{ReadLimit, Store};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

use super::append::{batch, body, streams};
use crate::BenchOptions;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::report::Collector;

const READS: u64 = 500;
const PAGE: ReadLimit = ReadLimit { events_max: 10, bytes_max: 1 << 20 };
const PER_COMMIT: u64 = 1000;

pub(crate) fn run(folder: &Path, options: &BenchOptions, out: &mut Collector) -> Result<(), BenchError> {
    let path = folder.join("reads.db");
    let store = SqliteStore::open(&path, SqliteOptions::default())?;
    let (streams, body) = (streams(1), body(options.payload_bytes));
    let Some(stream) = streams.first() else { return Ok(()) };
    let mut filled = 0;
    for length in [options.log_events / 100, options.log_events] {
        while filled < length {
            let batches: Vec<_> =
                (0..PER_COMMIT.min(length - filled)).map(|n| batch(stream, &body, filled + n)).collect();
            filled += store.commit(&batches)?.len() as u64;
        }
        while store.maintain(10_000)?.more {}
        let (mut by_offset, mut by_time) = (Latencies::default(), Latencies::default());
        let ends = |at| -> Result<Timestamp, BenchError> {
            let page = store.read(stream, Offset(at), PAGE)?;
            Ok(page.events.first().map(|event| event.ts).unwrap_or_default())
        };
        let (oldest, newest) = (ends(1)?, ends(length)?);
        for n in 0..READS {
            let at = n.wrapping_mul(7919) % READS;
            let begun = Instant::now();
            store.read(stream, Offset(1 + at * (length - 1) / READS), PAGE)?;
            by_offset.push(begun.elapsed());
            let begun = Instant::now();
            store.seek(stream, Timestamp(oldest.0 + at * (newest.0 - oldest.0) / READS))?;
            by_time.push(begun.elapsed());
        }
        out.add("reads", &format!("10 by offset of {length}, p50"), "ms", by_offset.quantile_ms(0.5));
        out.add("reads", &format!("seek by time in {length}, p50"), "ms", by_time.quantile_ms(0.5));
    }
    drop(store);
    let begun = Instant::now();
    SqliteStore::open(&path, SqliteOptions::default())?;
    out.add("reads", &format!("open with {filled} events"), "ms", begun.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
