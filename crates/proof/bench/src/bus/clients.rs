//! Eight clients, each with one confirmed publish at a time, as services do.

use std::thread;
use std::time::Instant;

use super::link::{WsLink, payload, publish_frame};
use super::stage::BusStage;
use crate::error::BenchError;
use crate::figures::Latencies;

const CLIENTS: usize = 8;

pub(crate) fn run(stage: &mut BusStage<'_>) -> Result<(), BenchError> {
    let frame = publish_frame("bench.clients", &payload(stage.options.payload_bytes));
    let mut links: Vec<WsLink> =
        (0..CLIENTS).map(|_| WsLink::open(stage.server.ws())).collect::<Result<_, _>>()?;
    let commits = stage.server.commits()?;
    let mut all = Latencies::default();
    let busy = stage.slices(|end| {
        thread::scope(|scope| {
            let loads: Vec<_> =
                links.iter_mut().map(|link| scope.spawn(|| publish_until(end, link, &frame))).collect();
            for load in loads {
                all.extend(load.join().map_err(|_| BenchError::Panicked)??);
            }
            Ok(())
        })
    })?;
    let syncs = stage.server.commits()? - commits;
    stage.out.add("clients", "8 clients, rate", "events/s", all.len() as f64 / busy.as_secs_f64());
    stage.out.add("clients", "confirmed publish p50", "ms", all.quantile_ms(0.5));
    stage.out.add("clients", "confirmed publish p99", "ms", all.quantile_ms(0.99));
    stage.out.add("clients", "events per sync", "events", all.len() as f64 / syncs.max(1.0));
    Ok(())
}

fn publish_until(end: Instant, link: &mut WsLink, frame: &str) -> Result<Latencies, BenchError> {
    let mut latencies = Latencies::default();
    while Instant::now() < end {
        let sent = Instant::now();
        link.feed(frame.to_owned())?;
        link.flush()?;
        link.published()?;
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}
