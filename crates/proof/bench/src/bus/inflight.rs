//! A single client with 256 publishes in flight: how much group commit gains on one connection.

use std::time::Instant;

use super::link::{WsLink, payload, publish_frame};
use super::stage::BusStage;
use crate::error::BenchError;

const IN_FLIGHT: u64 = 256;
/// Answers read before the next frames are sent together, as a client under load does.
const ANSWERS_PER_FLUSH: u64 = 32;

pub(crate) fn run(stage: &mut BusStage<'_>) -> Result<(), BenchError> {
    let mut link = WsLink::open(stage.server.ws())?;
    let frame = publish_frame("bench.inflight", &payload(stage.options.payload_bytes));
    let commits = stage.server.commits()?;
    let mut confirmed = 0u64;
    let busy = stage.slices(|end| {
        send(&mut link, &frame, IN_FLIGHT)?;
        while Instant::now() < end {
            confirmed += receive(&mut link, ANSWERS_PER_FLUSH)?;
            send(&mut link, &frame, ANSWERS_PER_FLUSH)?;
        }
        // Nothing may be under way while the disk is probed.
        confirmed += receive(&mut link, IN_FLIGHT)?;
        Ok(())
    })?;
    let syncs = stage.server.commits()? - commits;
    stage.out.add("inflight", "256 in flight, rate", "events/s", confirmed as f64 / busy.as_secs_f64());
    stage.out.add("inflight", "events per sync", "events", confirmed as f64 / syncs.max(1.0));
    Ok(())
}

fn send(link: &mut WsLink, frame: &str, count: u64) -> Result<(), BenchError> {
    for _ in 0..count {
        link.feed(frame.to_owned())?;
    }
    link.flush()
}

fn receive(link: &mut WsLink, count: u64) -> Result<u64, BenchError> {
    for _ in 0..count {
        link.published()?;
    }
    Ok(count)
}
