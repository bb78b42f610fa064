//! How fast a copy catches up: a journal folded from its beginning, in turn with events appended to a store of the same
//! kind by a caller that syncs nothing; and a new machine that starts from a snapshot.

use std::path::Path;
use std::time::{Duration, Instant};

use millrace_model::Durability;
use millrace_stores::{SharedSettings, SharedUrl, StoreOptions, StoreUrl, make_snapshot, open_followed};

use super::journal_bytes::JournalTally;
use super::serial::INTERVAL_NONE;
use super::stage::EngineStage;
use crate::aim::Aim;
use crate::bus::link::WsLink;
use crate::error::BenchError;
use crate::store::append::AppendLoad;

const PER_RECORD: usize = 256;
const REPEATS: usize = 3;
const TOPIC: &str = "bench.fold";

pub(super) fn run(stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
    let events = fill(stage)?;
    let Ok(StoreUrl::Shared(url)) = stage.place.url.parse() else {
        return Err(BenchError::StoreUrl("only shared stores have a journal".into()));
    };
    let journal = JournalTally::open(&url)?.bytes_after(0)?;
    let mut append =
        AppendLoad::open(&stage.folder.join("append.db"), stage.options, PER_RECORD, 1, Durability::Os)?;
    let mut folding = Duration::ZERO;
    for repeat in 0..REPEATS {
        stage.probe_slice()?;
        append.events(events)?;
        let cache = stage.folder.join(format!("fold-{repeat}"));
        folding += open_without_copy(&url, &cache, journal.last)?;
    }
    let rate = (REPEATS as u64 * events) as f64 / folding.as_secs_f64();
    let mb_per_second = |bytes: u64, time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
    stage.add("journal folded", "events/s", rate);
    stage.add("journal folded, bytes", "MB/s", mb_per_second(REPEATS as u64 * journal.bytes, folding));
    stage.add("unsynced append, 256 per commit", "events/s", append.rate());
    stage.add_with_aim("folded / unsynced append", "ratio", rate / append.rate(), Aim::AtLeast(1.0));
    let made = make_snapshot(&url, &store_options(&stage.folder.join("snapshot")));
    let made = made.map_err(|error| BenchError::Engine(error.to_string()))?;
    let mut starting = Duration::ZERO;
    for repeat in 0..REPEATS {
        stage.probe_slice()?;
        starting += open_without_copy(&url, &stage.folder.join(format!("start-{repeat}")), journal.last)?;
    }
    let started = mb_per_second(REPEATS as u64 * made.bytes, starting);
    stage.add("snapshot", "MB", made.bytes as f64 / 1e6);
    stage.add_with_aim("new machine from a snapshot", "MB/s", started, Aim::AtLeast(100.0));
    Ok(())
}

/// Fills the store through a server, one record for each frame, and stops the server. Returns the number of events.
fn fill(stage: &mut EngineStage<'_>) -> Result<u64, BenchError> {
    let server = stage.leader("server", &INTERVAL_NONE.map(str::to_owned))?;
    let mut link = WsLink::open(server.ws())?;
    let mut events = 0;
    while events < stage.options.log_events {
        stage.options.go_on()?;
        link.feed(stage.payloads.batch_frame(TOPIC, PER_RECORD))?;
        link.flush()?;
        link.published()?;
        events += PER_RECORD as u64;
    }
    drop(link);
    server.terminate()?;
    Ok(events)
}

/// Opens the store as a machine does that has no copy of it. Returns how long that took, from the moment on when the
/// engine had been looked at.
fn open_without_copy(url: &SharedUrl, cache: &Path, records: u64) -> Result<Duration, BenchError> {
    let mut began = None;
    let opened = open_followed(url, &store_options(cache), &mut |_: &str| {
        began.get_or_insert_with(Instant::now);
        true
    });
    let took = began.map(|began: Instant| began.elapsed()).unwrap_or_default();
    let opened = opened.map_err(|error| BenchError::Engine(error.to_string()))?;
    let position = opened.store.status().position.n;
    if position < records {
        return Err(BenchError::Unexpected(format!("{position} of {records} records were folded")));
    }
    drop(opened);
    std::fs::remove_dir_all(cache).map_err(|source| BenchError::io("removing a copy", source))?;
    Ok(took)
}

fn store_options(cache: &Path) -> StoreOptions {
    let shared = SharedSettings { cache: cache.to_owned(), ..SharedSettings::default() };
    StoreOptions { shared, ..StoreOptions::default() }
}
