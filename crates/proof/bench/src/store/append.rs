//! Appending: how many events one sync can carry, and the cost if every event is of another topic.

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
use crate::probe::{Probe, SLICES, slice_time};
use crate::report::Collector;

const PER_COMMIT: [usize; 5] = [1, 32, 100, 256, 1000];
const TOPICS: usize = 1000;
/// Rows of housekeeping between commits; the broker does housekeeping there, too.
const MAINTAIN_ROWS_MAX: usize = 2000;
const MAINTAIN_EVERY: usize = 64;

pub(crate) fn run(
    folder: &Path,
    options: &BenchOptions,
    probe: &mut Probe,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let load = |count: &usize| {
        let path = folder.join(format!("append-{count}.db"));
        AppendLoad::open(&path, options, *count, 1, Durability::Fsync)
    };
    let mut loads: Vec<AppendLoad> = PER_COMMIT.iter().map(load).collect::<Result<_, _>>()?;
    in_turn(&mut loads, options, probe)?;
    for load in loads {
        out.add("append", &format!("{} per commit", load.per_commit), "events/s", load.rate());
    }
    Ok(())
}

pub(crate) fn run_topics(
    folder: &Path,
    options: &BenchOptions,
    probe: &mut Probe,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let load = |topics| {
        let path = folder.join(format!("topics-{topics}.db"));
        AppendLoad::open(&path, options, 256, topics, Durability::Fsync)
    };
    let mut loads = [load(1)?, load(TOPICS)?];
    in_turn(&mut loads, options, probe)?;
    for load in loads {
        let figure = format!("256 per commit, {} in turn", load.streams.len());
        out.add("topics", &figure, "events/s", load.rate());
    }
    Ok(())
}

/// Runs a slice of each load in turn, with a probe before each, so that changes of the disk's pace affect all of them
/// alike.
fn in_turn(loads: &mut [AppendLoad], options: &BenchOptions, probe: &mut Probe) -> Result<(), BenchError> {
    for _ in 0..SLICES {
        for load in loads.iter_mut() {
            probe.slice()?;
            load.slice(slice_time(options))?;
        }
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

/// A batch with one event, as the server makes for each publish of a client.
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

/// A store of its own, with counts of what was put into it so far.
pub(crate) struct AppendLoad {
    store: SqliteStore,
    durability: Durability,
    streams: Vec<Stream>,
    body: Arc<EventBody>,
    per_commit: usize,
    events: u64,
    commits: usize,
    busy: Duration,
}

impl AppendLoad {
    pub(crate) fn open(
        path: &Path,
        options: &BenchOptions,
        per_commit: usize,
        topics: usize,
        durability: Durability,
    ) -> Result<AppendLoad, BenchError> {
        let store = SqliteStore::open(path, SqliteOptions::default())?;
        let (streams, body) = (streams(topics), body(options.payload_bytes));
        let (events, commits, busy) = (0, 0, Duration::ZERO);
        Ok(AppendLoad { store, durability, streams, body, per_commit, events, commits, busy })
    }

    /// Appends so many events, in whole commits.
    pub(crate) fn events(&mut self, events: u64) -> Result<(), BenchError> {
        let (begun, goal) = (Instant::now(), self.events + events);
        while self.events < goal {
            self.commit()?;
        }
        self.busy += begun.elapsed();
        Ok(())
    }

    fn slice(&mut self, time: Duration) -> Result<(), BenchError> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.commit()?;
        }
        self.busy += begun.elapsed();
        Ok(())
    }

    fn commit(&mut self) -> Result<(), BenchError> {
        let turn = self.streams.iter().cycle().skip(self.events as usize % self.streams.len().max(1));
        let numbered = turn.zip(self.events + 1..).take(self.per_commit);
        let batch =
            |(stream, nonce)| Batch { durability: self.durability, ..batch(stream, &self.body, nonce) };
        let batches: Vec<Batch> = numbered.map(batch).collect();
        self.events += self.store.commit(&batches)?.len() as u64;
        self.commits += 1;
        if self.commits.is_multiple_of(MAINTAIN_EVERY) {
            self.store.maintain(MAINTAIN_ROWS_MAX)?;
        }
        Ok(())
    }

    pub(crate) fn rate(&self) -> f64 {
        self.events as f64 / self.busy.as_secs_f64()
    }
}
