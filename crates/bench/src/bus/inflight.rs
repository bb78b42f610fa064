//! One client with 256 publishes in flight: what group commit makes of one connection.

use std::time::{Duration, Instant};

use super::link::{Link, payload, publish_frame};
use super::server::Server;
use crate::BenchOptions;
use crate::error::BenchError;
use crate::report::Collector;

const IN_FLIGHT: u64 = 256;
/// Answers taken before the next frames leave together, as a client under load does.
const SLICE: u64 = 32;

pub(crate) fn run(
    server: &mut Server,
    options: &BenchOptions,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let mut link = Link::open(server.ws())?;
    let frame = publish_frame("bench.inflight", &payload(options.payload_bytes));
    let commits = server.commits()?;
    let begun = Instant::now();
    for _ in 0..IN_FLIGHT {
        link.feed(frame.clone())?;
    }
    link.flush()?;
    let mut confirmed = 0u64;
    while begun.elapsed() < Duration::from_secs_f64(options.seconds) {
        for _ in 0..SLICE {
            link.published()?;
        }
        confirmed += SLICE;
        for _ in 0..SLICE {
            link.feed(frame.clone())?;
        }
        link.flush()?;
    }
    for _ in 0..IN_FLIGHT {
        link.published()?;
    }
    confirmed += IN_FLIGHT;
    let rate = confirmed as f64 / begun.elapsed().as_secs_f64();
    let syncs = server.commits()? - commits;
    out.add("inflight", "256 in flight, rate", "events/s", rate);
    out.add("inflight", "events per sync", "events", confirmed as f64 / syncs.max(1.0));
    Ok(())
}
