//! 1,000 events a second to ten groups of one consumer each: how old an event is when it arrives.

use std::thread;
use std::time::{Duration, Instant};

use super::link::{WsLink, ack_frame, publish_frame};
use super::stage::BusStage;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::probe::SLICES;

const CONSUMERS: usize = 10;
const EVENTS_PER_SECOND: f64 = 1000.0;
const WINDOW: u32 = 256;

pub(crate) fn run(stage: &mut BusStage<'_>) -> Result<(), BenchError> {
    let topic = &format!("bench.fanout{}", stage.suffix);
    let per_slice = ((stage.options.seconds * EVENTS_PER_SECOND) as u64 / u64::from(SLICES)).max(1);
    let events = per_slice * u64::from(SLICES);
    let epoch = Instant::now();
    let mut consumers = Vec::new();
    for number in 0..CONSUMERS {
        let mut link = WsLink::open(stage.server.ws())?;
        let group = format!("g{number}");
        link.subscribe(topic, &group, "latest", WINDOW)?;
        let topic = topic.clone();
        consumers.push(thread::spawn(move || consume(link, &topic, &group, events, epoch)));
    }
    let mut publisher = WsLink::open(stage.server.ws())?;
    let bytes = stage.options.payload_bytes;
    let busy = stage.slices(|_| {
        let begun = Instant::now();
        for number in 0..per_slice {
            let due = Duration::from_secs_f64(number as f64 / EVENTS_PER_SECOND);
            thread::sleep(due.saturating_sub(begun.elapsed()));
            publisher.feed(publish_frame(topic, &stamp(epoch, bytes)))?;
            publisher.flush()?;
            publisher.published()?;
        }
        Ok(())
    })?;
    let mut ages = Latencies::default();
    for consumer in consumers {
        ages.extend(consumer.join().map_err(|_| BenchError::Panicked)??);
    }
    stage.out.add("fanout", "publish to arrival p50", "ms", ages.quantile_ms(0.5));
    stage.out.add("fanout", "publish to arrival p99", "ms", ages.quantile_ms(0.99));
    stage.out.add("fanout", "published", "events/s", events as f64 / busy.as_secs_f64());
    stage.out.add("fanout", "delivered", "events", ages.len() as f64);
    Ok(())
}

/// A payload with the time of sending, in nanoseconds since `epoch`, padded to `bytes`.
fn stamp(epoch: Instant, bytes: usize) -> String {
    let text = epoch.elapsed().as_nanos().to_string();
    format!("\"{text:<width$}\"", width = bytes.saturating_sub(2))
}

fn consume(
    mut link: WsLink,
    topic: &str,
    group: &str,
    events: u64,
    epoch: Instant,
) -> Result<Latencies, BenchError> {
    let mut ages = Latencies::default();
    for _ in 0..events {
        let message = link.message()?;
        let arrived = epoch.elapsed();
        let text = message.envelope.payload.as_str().trim_matches(['"', ' ']).to_owned();
        let sent = text.parse().map_err(|_| BenchError::Unexpected(text))?;
        ages.push(arrived.saturating_sub(Duration::from_nanos(sent)));
        link.feed(ack_frame(topic, group, message.envelope.offset.0))?;
        link.flush()?;
    }
    Ok(ages)
}
