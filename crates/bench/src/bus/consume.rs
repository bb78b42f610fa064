//! One consumer with a backlog: deliver, ack (cumulatively, every 100 events), until nothing is left.

use std::time::Instant;

use super::link::{Link, ack_frame, fill, payload};
use super::server::Server;
use crate::BenchOptions;
use crate::error::BenchError;
use crate::report::Collector;

const WINDOW: u32 = 1024;
const ACK_EVERY: u64 = 100;
/// Events per second of the asked duration: long enough to be past the first pages.
const BACKLOG_PER_SECOND: f64 = 100_000.0;

pub(crate) fn run(
    server: &mut Server,
    options: &BenchOptions,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let topic = "bench.consume";
    let backlog = (options.seconds * BACKLOG_PER_SECOND) as u64;
    fill(server.ws(), topic, backlog, &payload(options.payload_bytes), None)?;
    let mut link = Link::open(server.ws())?;
    let begun = Instant::now();
    link.subscribe(topic, "g", "earliest", WINDOW)?;
    for expected in 1..=backlog {
        let message = link.message()?;
        if message.envelope.offset.0 != expected {
            return Err(BenchError::Unexpected(format!("offset {} for {expected}", message.envelope.offset)));
        }
        if expected % ACK_EVERY == 0 || expected == backlog {
            link.feed(ack_frame(topic, "g", expected))?;
            link.flush()?;
        }
    }
    out.add(
        "consume",
        "backlog, consume and ack",
        "events/s",
        backlog as f64 / begun.elapsed().as_secs_f64(),
    );
    Ok(())
}
