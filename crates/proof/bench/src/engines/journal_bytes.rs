//! How large the journal grows: for each event that is published, and for each event that a handler has finished with.

use std::sync::Arc;

use millrace_journal::{Journal, JournalReadLimit};
use millrace_stores::{SharedUrl, StoreUrl, open_journal};

use super::stage::EngineStage;
use crate::aim::Aim;
use crate::bus::link::WsLink;
use crate::error::BenchError;
use crate::handlers::processes::Worker;

const PER_RECORD: usize = 64;
const RECORDS: usize = 32;
const JOBS: u64 = 4096;
/// Bytes that an event may take besides its payload.
const AROUND_PAYLOAD: f64 = 48.0;
const HANDLED: f64 = 40.0;
const TOPIC: &str = "bench.bytes";
const PAGE: JournalReadLimit = JournalReadLimit { records_max: 256, bytes_max: 8 << 20 };

pub(super) fn run(stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
    let Ok(StoreUrl::Shared(url)) = stage.place.url.parse() else {
        return Err(BenchError::StoreUrl("only shared stores have a journal".into()));
    };
    let server = stage.leader("server", &[])?;
    let tally = JournalTally::open(&url)?;
    let mut link = WsLink::open(server.ws())?;
    // The first event of a topic makes it.
    publish(stage, &mut link, 1)?;
    let before = tally.bytes_after(0)?;
    stage.probe_slice()?;
    for _ in 0..RECORDS {
        publish(stage, &mut link, PER_RECORD)?;
    }
    let published = tally.bytes_after(before.last)?;
    let per_event = published.bytes as f64 / (RECORDS * PER_RECORD) as f64;
    let aim = Aim::AtMost(stage.options.payload_bytes as f64 + AROUND_PAYLOAD);
    stage.add_with_aim("journal bytes per event, 64 per record", "B", per_event, aim);
    drop(link);
    server.terminate()?;

    let mut worker = Worker::start(stage.options, &stage.place.url, stage.folder)?;
    worker.answer(stage.options)?;
    let mut command = |verb: &str| {
        worker.send_line(&format!("{verb} {JOBS}"))?;
        worker.answer(stage.options)
    };
    command("backlog")?;
    let before = tally.bytes_after(published.last)?;
    command("work")?;
    let handled = tally.bytes_after(before.last)?;
    drop(worker);
    stage.probe_slice()?;
    let per_event = handled.bytes as f64 / JOBS as f64;
    stage.add_with_aim("journal bytes per handled event", "B", per_event, Aim::AtMost(HANDLED));
    stage.add("handled events per record", "events", JOBS as f64 / handled.records.max(1) as f64);
    Ok(())
}

fn publish(stage: &mut EngineStage<'_>, link: &mut WsLink, events: usize) -> Result<(), BenchError> {
    link.feed(stage.payloads.batch_frame(TOPIC, events))?;
    link.flush()?;
    link.published()
}

/// Reads the journal of a store and counts.
pub(super) struct JournalTally {
    journal: Arc<dyn Journal>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tallied {
    /// The number of the newest record.
    pub(super) last: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
}

impl JournalTally {
    pub(super) fn open(url: &SharedUrl) -> Result<JournalTally, BenchError> {
        let journal = open_journal(url).map_err(|error| BenchError::Engine(error.to_string()))?;
        journal.check()?;
        Ok(JournalTally { journal })
    }

    /// Counts the records that have a higher number.
    pub(super) fn bytes_after(&self, n: u64) -> Result<Tallied, BenchError> {
        let mut tallied = Tallied { last: n, records: 0, bytes: 0 };
        loop {
            let page = self.journal.read(tallied.last + 1, PAGE)?;
            let Some((last, _)) = page.last() else { return Ok(tallied) };
            tallied.last = *last;
            tallied.records += page.len() as u64;
            tallied.bytes += page.iter().map(|(_, record)| record.len() as u64).sum::<u64>();
        }
    }
}
