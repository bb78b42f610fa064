//! Eight clients, one confirmed publish at a time each: what services do.

use std::thread;
use std::time::{Duration, Instant};

use super::link::{Link, payload, publish_frame};
use super::server::Server;
use crate::BenchOptions;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::report::Collector;

const CLIENTS: usize = 8;

pub(crate) fn run(
    server: &mut Server,
    options: &BenchOptions,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let frame = publish_frame("bench.clients", &payload(options.payload_bytes));
    let links: Vec<Link> = (0..CLIENTS).map(|_| Link::open(server.ws())).collect::<Result<_, _>>()?;
    let commits = server.commits()?;
    let begun = Instant::now();
    let seconds = Duration::from_secs_f64(options.seconds);
    let loads: Vec<_> = links
        .into_iter()
        .map(|mut link| {
            let frame = frame.clone();
            thread::spawn(move || -> Result<Latencies, BenchError> {
                let mut latencies = Latencies::default();
                while begun.elapsed() < seconds {
                    let sent = Instant::now();
                    link.feed(frame.clone())?;
                    link.flush()?;
                    link.published()?;
                    latencies.push(sent.elapsed());
                }
                Ok(latencies)
            })
        })
        .collect();
    let mut all = Latencies::default();
    for load in loads {
        all.extend(load.join().map_err(|_| BenchError::Panicked)??);
    }
    let rate = all.len() as f64 / begun.elapsed().as_secs_f64();
    let syncs = server.commits()? - commits;
    out.add("clients", "8 clients, rate", "events/s", rate);
    out.add("clients", "confirmed publish p50", "ms", all.quantile_ms(0.5));
    out.add("clients", "confirmed publish p99", "ms", all.quantile_ms(0.99));
    out.add("clients", "events per sync", "events", all.len() as f64 / syncs.max(1.0));
    Ok(())
}
