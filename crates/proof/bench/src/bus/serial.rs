//! A single client with one confirmed publish at a time: how long a lone caller waits.

use std::time::Instant;

use super::link::{WsLink, payload, publish_frame};
use super::stage::BusStage;
use crate::error::BenchError;
use crate::figures::Latencies;

pub(crate) fn run(stage: &mut BusStage<'_>) -> Result<(), BenchError> {
    let mut link = WsLink::open(stage.server.ws())?;
    let frame = publish_frame("bench.serial", &payload(stage.options.payload_bytes));
    let mut latencies = Latencies::default();
    let busy = stage.slices(|end| {
        while Instant::now() < end {
            let sent = Instant::now();
            link.feed(frame.clone())?;
            link.flush()?;
            link.published()?;
            latencies.push(sent.elapsed());
        }
        Ok(())
    })?;
    let rate = latencies.len() as f64 / busy.as_secs_f64();
    stage.out.add("serial", "confirmed publish p50", "ms", latencies.quantile_ms(0.5));
    stage.out.add("serial", "confirmed publish p99", "ms", latencies.quantile_ms(0.99));
    stage.out.add("serial", "rate", "events/s", rate);
    Ok(())
}
