//! The store alone, as a library has it: one caller, 256 events in each commit. With SQL beside it: as many rows in one
//! insert. The loads of `inflight` share the cores with a server and its client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_model::{EventBody, JsonText, Stream};
use millrace_store::Store;
use millrace_stores::{SharedSettings, StoreOptions, open_shared};

use super::place::EngineKind;
use super::raw::UniqueIds;
use super::row_rate::{ROWS, RowRate};
use super::stage::EngineStage;
use crate::aim::Aim;
use crate::error::BenchError;
use crate::probe::slice_time;
use crate::store::append::{batch, streams};

pub(super) fn run(stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
    let url = stage.place.url.parse().map_err(|error| BenchError::StoreUrl(format!("{error}")))?;
    let shared = SharedSettings { cache: stage.folder.join("copy"), ..SharedSettings::default() };
    let opened = open_shared(&url, &StoreOptions { shared, ..StoreOptions::default() });
    let opened = opened.map_err(|error| BenchError::Engine(error.to_string()))?;
    let mut commits = CommitRate::new(opened.store);
    let (mut rows, mut rows_with_ids) = (RowRate::new(UniqueIds::None), RowRate::new(UniqueIds::Indexed));
    stage.slices(|stage, _| {
        rows.slice(stage)?;
        rows_with_ids.slice(stage)?;
        commits.slice(stage)
    })?;
    let rate = commits.rate();
    stage.add("256 events per commit", "events/s", rate);
    if let Some(by_hand) = rows.rate() {
        stage.add("256 rows in one insert", "events/s", by_hand);
        let (figure, ratio) = ("rate / 256 rows in one insert", rate / by_hand);
        match stage.kind {
            EngineKind::Postgres => stage.add_with_aim(figure, "ratio", ratio, Aim::AtLeast(0.8)),
            _ => stage.add(figure, "ratio", ratio),
        }
    }
    if let Some(by_hand) = rows_with_ids.rate() {
        stage.add("256 rows in one insert, unique ids", "events/s", by_hand);
        stage.add("rate / the same with unique ids", "ratio", rate / by_hand);
    }
    Ok(())
}

/// Events that were committed, and the time that it took.
struct CommitRate {
    store: Arc<dyn Store>,
    streams: Vec<Stream>,
    events: u64,
    busy: Duration,
}

impl CommitRate {
    fn new(store: Arc<dyn Store>) -> CommitRate {
        CommitRate { store, streams: streams(1), events: 0, busy: Duration::ZERO }
    }

    fn slice(&mut self, stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
        let (time, began) = (slice_time(stage.options), Instant::now());
        while began.elapsed() < time {
            let numbered = stage.payloads.take(ROWS).into_iter().zip(self.events + 1..);
            let of = |(payload, nonce)| batch(&self.streams[0], &body(payload), nonce);
            self.events += self.store.commit(&numbered.map(of).collect::<Vec<_>>())?.len() as u64;
        }
        self.busy += began.elapsed();
        Ok(())
    }

    fn rate(&self) -> f64 {
        self.events as f64 / self.busy.as_secs_f64()
    }
}

fn body(payload: &str) -> Arc<EventBody> {
    Arc::new(EventBody::of(JsonText::parse(payload).unwrap_or_else(|_| JsonText::null())))
}
