//! A single client with 256 publishes in flight: how much one record carries. With SQL beside it: rows inserted by hand,
//! 256 in one statement, without and with a unique index on ids.

use std::time::{Duration, Instant};

use super::place::EngineKind;
use super::raw::UniqueIds;
use super::row_rate::{self, RowRate};
use super::serial::INTERVAL_NONE;
use super::stage::EngineStage;
use crate::aim::Aim;
use crate::bus::link::WsLink;
use crate::bus::server::BenchServer;
use crate::error::BenchError;
use crate::probe::slice_time;

const IN_FLIGHT: usize = row_rate::ROWS;
/// Answers read before the next frames are sent together, as a client under load does.
const ANSWERS_PER_FLUSH: usize = 32;
const TOPIC: &str = "bench.inflight";
/// The first commit of a slice finds an idle store and does not wait for others: its share of the slice must be small.
const INTERVALS_PER_SLICE: u64 = 10;

pub(super) fn run(stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
    let server = stage.leader("server", &[])?;
    let Some(interval_ms) = stage.kind.commit_interval_ms() else {
        return measure(stage, &server, "", Duration::ZERO);
    };
    let slice_min = Duration::from_millis(INTERVALS_PER_SLICE * interval_ms);
    measure(stage, &server, &format!(", interval {interval_ms} ms (default)"), slice_min)?;
    server.terminate()?;
    let server = stage.leader("server", &INTERVAL_NONE.map(str::to_owned))?;
    measure(stage, &server, ", interval 1 ms", Duration::ZERO)
}

fn measure(
    stage: &mut EngineStage<'_>,
    server: &BenchServer,
    which: &str,
    slice_min: Duration,
) -> Result<(), BenchError> {
    let mut link = WsLink::open(server.ws())?;
    let (mut rows, mut rows_with_ids) = (RowRate::new(UniqueIds::None), RowRate::new(UniqueIds::Indexed));
    let (mut confirmed, mut busy) = (0, Duration::ZERO);
    let before = stage.records(server)?;
    stage.slices(|stage, _| {
        rows.slice(stage)?;
        rows_with_ids.slice(stage)?;
        let began = Instant::now();
        let end = began + slice_time(stage.options).max(slice_min);
        send(&mut link, stage, IN_FLIGHT)?;
        while Instant::now() < end {
            confirmed += receive(&mut link, ANSWERS_PER_FLUSH)?;
            send(&mut link, stage, ANSWERS_PER_FLUSH)?;
        }
        // Nothing may be under way while the engine is probed.
        confirmed += receive(&mut link, IN_FLIGHT)?;
        busy += began.elapsed();
        Ok(())
    })?;
    let records = stage.records(server)? - before;
    let rate = confirmed as f64 / busy.as_secs_f64();
    stage.add(&format!("256 in flight, rate{which}"), "events/s", rate);
    let (figure, per_record) = (format!("events per record{which}"), confirmed as f64 / records.max(1.0));
    match stage.kind {
        // Judged with the default interval only: without one, a part of the 256 is in a put while the rest waits for it.
        EngineKind::Object if !slice_min.is_zero() => {
            stage.add_with_aim(&figure, "events", per_record, Aim::AtLeast(200.0));
        }
        _ => stage.add(&figure, "events", per_record),
    }
    if let Some(by_hand) = rows.rate() {
        stage.add("256 rows in one insert", "events/s", by_hand);
        stage.add_with_aim("rate / 256 rows in one insert", "ratio", rate / by_hand, Aim::AtLeast(0.8));
    }
    if let Some(by_hand) = rows_with_ids.rate() {
        stage.add("256 rows in one insert, unique ids", "events/s", by_hand);
        stage.add("rate / the same with unique ids", "ratio", rate / by_hand);
    }
    Ok(())
}

fn send(link: &mut WsLink, stage: &mut EngineStage<'_>, count: usize) -> Result<(), BenchError> {
    for _ in 0..count {
        link.feed(stage.payloads.frame(TOPIC))?;
    }
    link.flush()
}

fn receive(link: &mut WsLink, count: usize) -> Result<usize, BenchError> {
    for _ in 0..count {
        link.published()?;
    }
    Ok(count)
}
