//! Claims of a durable handler in a log with few and with many events that it has finished, and the cost of looking for
//! news.
//!
//! Nothing is synced: this measures the work of the claim, which the disk would hide.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use millrace_model::{
    Batch, Claim, Claimed, Done, Durability, Ending, EventBody, FinishedRow, HandlerId, HandlerOrder,
    LaneRow, Offset, Op, Outcome, SessionId, Space, Stream, Ticket, Timestamp, keys,
};
use millrace_store::{CommitNumber, Store};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

use super::append::{batch, body, streams};
use crate::BenchOptions;
use crate::aim::LONG_TO_SHORT;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::probe::Probe;
use crate::report::Collector;

/// How many times shorter the short log is.
const SHORT: u64 = 1000;
const ROUNDS: u64 = 200;
const EVENTS: usize = 100;
const PER_COMMIT: u64 = 1000;
const LEASE_MS: u64 = 30_000;

pub(crate) fn run(
    folder: &Path,
    options: &BenchOptions,
    probe: &mut Probe,
    out: &mut Collector,
) -> Result<(), BenchError> {
    run_as("claims", folder, options, probe, out)
}

pub(crate) fn run_as(
    scenario: &str,
    folder: &Path,
    options: &BenchOptions,
    probe: &mut Probe,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let mut medians = Vec::new();
    for length in [options.log_events.div_ceil(SHORT), options.log_events] {
        probe.slice()?;
        let Some(mut load) = ClaimsLoad::open(&folder.join(format!("claims-{length}.db")), options)? else {
            return Ok(());
        };
        load.finish(length)?;
        let found = load.measure()?;
        for (name, value) in NAMES.iter().zip(found) {
            out.add(scenario, &format!("{name}, {length} finished"), "ms", value);
        }
        medians.push(found);
    }
    if let [short, long] = medians.as_slice() {
        for (at, name) in NAMES.iter().enumerate() {
            out.add(scenario, &format!("{LONG_TO_SHORT}, {name}"), "ratio", long[at] / short[at]);
        }
    }
    Ok(())
}

const NAMES: [&str; 4] = ["idle claim p50", "claim of 100 p50", "ack and claim of 100 p50", "watch p50"];

struct ClaimsLoad {
    store: SqliteStore,
    stream: Stream,
    body: Arc<EventBody>,
    handler: HandlerId,
    session: SessionId,
    nonce: u64,
}

/// A claim of another number of events would measure something else.
fn expect(claimed: usize) -> Result<(), BenchError> {
    match claimed {
        EVENTS => Ok(()),
        taken => Err(BenchError::Claim { taken, expected: EVENTS }),
    }
}

impl ClaimsLoad {
    fn open(path: &Path, options: &BenchOptions) -> Result<Option<ClaimsLoad>, BenchError> {
        let store = SqliteStore::open(path, SqliteOptions::default())?;
        let body = body(options.payload_bytes);
        let (stream, handler, session) =
            (streams(1).into_iter().next(), HandlerId::new("bench::handler"), SessionId::new("bench"));
        let (Some(stream), Ok(handler), Ok(session)) = (stream, handler, session) else { return Ok(None) };
        Ok(Some(ClaimsLoad { store, stream, body, handler, session, nonce: 0 }))
    }

    /// Appends events that the handler has finished; its lane (the position where it looks for new events) begins after
    /// them.
    fn finish(&mut self, count: u64) -> Result<(), BenchError> {
        let mut done = 0;
        while done < count {
            let now = count.min(done + PER_COMMIT) - done;
            let mut batches: Vec<Batch> = (0..now).map(|_| self.append()).collect();
            batches.push(Batch {
                ops: (done + 1..=done + now).map(|at| self.finished(Offset(at), 0)).collect(),
                ..self.empty()
            });
            self.store.commit(&batches)?;
            done += now;
        }
        let lane = Op::Put {
            space: Space::Lanes,
            key: keys::lane(&self.handler, &self.stream, None),
            value: LaneRow::from_now(Offset(count + 1)).encode(),
        };
        let batch = Batch { ops: vec![lane], ..self.empty() };
        self.store.commit(&[batch])?;
        while self.store.maintain(10_000)?.more {}
        Ok(())
    }

    fn measure(&mut self) -> Result<[f64; 4], BenchError> {
        let [mut idle, mut claim, mut both, mut watch] = [(); 4].map(|()| Latencies::default());
        let mut after = CommitNumber::default();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            self.claim(&[])?;
            idle.push(begun.elapsed());

            self.append_many()?;
            let begun = Instant::now();
            let first = self.claim(&[])?;
            claim.push(begun.elapsed());
            expect(first.len())?;

            self.append_many()?;
            let begun = Instant::now();
            let second = self.claim(&first)?;
            both.push(begun.elapsed());
            expect(second.len())?;
            self.claim(&second)?;

            loop {
                let changes = self.store.watch(after, usize::MAX)?;
                let news = changes.last != after;
                after = changes.last;
                if !news {
                    break;
                }
            }
            let begun = Instant::now();
            self.store.watch(after, usize::MAX)?;
            watch.push(begun.elapsed());
        }
        Ok([idle, claim, both, watch].map(|mut found| found.quantile_ms(0.5)))
    }

    fn append_many(&mut self) -> Result<(), BenchError> {
        let batches: Vec<Batch> = (0..EVENTS).map(|_| self.append()).collect();
        self.store.commit(&batches)?;
        Ok(())
    }

    /// Acks `done` and claims more, in one commit.
    fn claim(&mut self, done: &[Claimed]) -> Result<Vec<Claimed>, BenchError> {
        let tickets: Vec<&Ticket> = done.iter().map(|one| &one.ticket).collect();
        let mut batch = self.empty();
        batch.checks = tickets.iter().map(|ticket| ticket.check()).collect();
        for ticket in tickets {
            batch.ops.push(ticket.delete());
            batch.ops.push(self.finished(ticket.offset, ticket.row.attempts));
        }
        batch.ops.push(Op::Claim(Claim {
            topic: self.stream.topic.clone(),
            handler: self.handler.clone(),
            session: self.session.clone(),
            events_max: EVENTS,
            bytes_max: 1 << 20,
            lease_until: Timestamp(batch.now.0 + LEASE_MS),
            start_max: 1,
            order: HandlerOrder::Priority,
        }));
        match self.store.commit(&[batch])?.pop() {
            Some(Outcome::Done(Done { claimed, .. })) => Ok(claimed),
            _ => Ok(Vec::new()),
        }
    }

    fn finished(&self, offset: Offset, attempts: u32) -> Op {
        let session = Some(self.session.clone());
        let row = FinishedRow { ending: Ending::Acked, at: Timestamp(1), attempts, session, error: None };
        let key = keys::finished(&self.stream, offset, &self.handler);
        Op::Put { space: Space::Finished, key, value: row.encode() }
    }

    fn append(&mut self) -> Batch {
        self.nonce += 1;
        Batch { durability: Durability::Memory, ..batch(&self.stream, &self.body, self.nonce) }
    }

    fn empty(&mut self) -> Batch {
        Batch { ops: Vec::new(), ..self.append() }
    }
}
