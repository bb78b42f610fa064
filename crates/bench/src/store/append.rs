//! Appending: how much one sync can carry, and what it costs when every event is of another topic.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use millrace_model::{
    Append, Batch, Durability, EventBody, JsonText, NewEvent, Op, Partition, Stream, Timestamp, TopicKey,
};
use millrace_store::Store;
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

use crate::BenchOptions;
use crate::error::BenchError;
use crate::report::Collector;

const PER_COMMIT: [usize; 5] = [1, 32, 100, 256, 1000];
const TOPICS: usize = 1000;
/// Rows of housekeeping between commits, as the runtime does it.
const MAINTAIN_ROWS_MAX: usize = 2000;
const MAINTAIN_EVERY: usize = 64;

pub(crate) fn run(folder: &Path, options: &BenchOptions, out: &mut Collector) -> Result<(), BenchError> {
    for count in PER_COMMIT {
        let rate = load(&folder.join(format!("append-{count}.db")), options, count, 1)?;
        out.add("append", &format!("{count} per commit"), "events/s", rate);
    }
    Ok(())
}

pub(crate) fn run_topics(
    folder: &Path,
    options: &BenchOptions,
    out: &mut Collector,
) -> Result<(), BenchError> {
    for topics in [1, TOPICS] {
        let rate = load(&folder.join(format!("topics-{topics}.db")), options, 256, topics)?;
        out.add("topics", &format!("256 per commit, {topics} in turn"), "events/s", rate);
    }
    Ok(())
}

pub(crate) fn topics_ratio(out: &Collector) -> Option<f64> {
    let one = out.median("topics", "256 per commit, 1 in turn")?;
    Some(out.median("topics", &format!("256 per commit, {TOPICS} in turn"))? / one)
}

pub(crate) fn streams(count: usize) -> Vec<Stream> {
    let topic = |n| TopicKey::parse(&format!("default/bench.{n}")).ok();
    (0..count).filter_map(topic).map(|topic| topic.stream(Partition(0))).collect()
}

/// One event per batch, as the server commits what its clients publish.
pub(crate) fn batch(stream: &Stream, body: &Arc<EventBody>, nonce: u64) -> Batch {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let event = NewEvent { id: None, body: body.clone() };
    Batch {
        nonce,
        now: Timestamp(u64::try_from(wall.as_millis()).unwrap_or(0)),
        durability: Durability::Fsync,
        checks: Vec::new(),
        ops: vec![Op::Append(Append { stream: stream.clone(), event, dedupe_window_ms: 0 })],
    }
}

pub(crate) fn body(bytes: usize) -> Arc<EventBody> {
    let text = format!("\"{}\"", "x".repeat(bytes.saturating_sub(2)));
    Arc::new(EventBody::of(JsonText::parse(&text).unwrap_or_else(|_| JsonText::null())))
}

fn load(path: &Path, options: &BenchOptions, per_commit: usize, topics: usize) -> Result<f64, BenchError> {
    let store = SqliteStore::open(path, SqliteOptions::default())?;
    let (streams, body) = (streams(topics), body(options.payload_bytes));
    let mut turn = streams.iter().cycle();
    let (mut events, mut commits, mut nonce) = (0u64, 0usize, 0u64);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs_f64(options.seconds) {
        let batches: Vec<Batch> = turn
            .by_ref()
            .take(per_commit)
            .map(|stream| {
                nonce += 1;
                batch(stream, &body, nonce)
            })
            .collect();
        events += store.commit(&batches)?.len() as u64;
        commits += 1;
        if commits % MAINTAIN_EVERY == 0 {
            store.maintain(MAINTAIN_ROWS_MAX)?;
        }
    }
    Ok(events as f64 / begun.elapsed().as_secs_f64())
}
