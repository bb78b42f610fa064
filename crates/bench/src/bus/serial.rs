//! One client, one confirmed publish at a time: what a single caller waits.

use std::time::{Duration, Instant};

use super::link::{Link, payload, publish_frame};
use super::server::Server;
use crate::BenchOptions;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::report::Collector;

pub(crate) fn run(
    server: &mut Server,
    options: &BenchOptions,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let mut link = Link::open(server.ws())?;
    let frame = publish_frame("bench.serial", &payload(options.payload_bytes));
    let mut latencies = Latencies::default();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs_f64(options.seconds) {
        let sent = Instant::now();
        link.feed(frame.clone())?;
        link.flush()?;
        link.published()?;
        latencies.push(sent.elapsed());
    }
    let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    out.add("serial", "confirmed publish p50", "ms", latencies.quantile_ms(0.5));
    out.add("serial", "confirmed publish p99", "ms", latencies.quantile_ms(0.99));
    out.add("serial", "rate", "events/s", rate);
    Ok(())
}
