//! Publishers: a connection for each topic, as fast as possible or at a given rate; every confirmation is recorded in
//! the ledger.

use std::fmt::Write;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use millrace_wire::{PublishedPlace, ServerFrame};

use super::{SoakState, TOPICS, add, topic};
use crate::bus::link::WsLink;
use crate::error::BenchError;

/// Unconfirmed publishes of one connection.
const IN_FLIGHT: u64 = 64;
const TICK: Duration = Duration::from_millis(5);
/// Every so many events, one is poison: consumers that may refuse events always refuse it, until it is a dead letter.
/// The first comes early, so that a short run has one.
const POISON_EVERY: u64 = 2000;
const POISON_FIRST: u64 = 10;
const KEYS: u64 = 97;
pub(crate) const POISON: &str = "poison";

/// Publishes at `rate` events per second over all topics; `None` = as fast as possible.
pub(crate) fn run(
    shared: &SoakState,
    rate: Option<f64>,
    whole: Duration,
    stop: &AtomicBool,
) -> Result<(), BenchError> {
    thread::scope(|scope| {
        let each = rate.map(|rate| rate / TOPICS as f64);
        let publishers: Vec<_> = (0..TOPICS)
            .map(|number| scope.spawn(move || publish(shared, number, each, whole, stop)))
            .collect();
        let mut ended = Ok(());
        for publisher in publishers {
            ended = ended.and(publisher.join().unwrap_or(Err(BenchError::Panicked)));
        }
        ended
    })
}

fn publish(
    shared: &SoakState,
    number: usize,
    rate: Option<f64>,
    whole: Duration,
    stop: &AtomicBool,
) -> Result<(), BenchError> {
    let mut link = WsLink::open(&shared.url)?;
    let topic = topic(number);
    let filler = "x".repeat(shared.payload_bytes);
    let (begun, mut sent) = (Instant::now(), 0u64);
    while begun.elapsed() < whole {
        shared.go_on(stop)?;
        let due = rate.map_or(u64::MAX, |rate| (begun.elapsed().as_secs_f64() * rate) as u64);
        let now = due.saturating_sub(sent).min(IN_FLIGHT);
        if now == 0 {
            thread::sleep(TICK);
            continue;
        }
        for n in sent..sent + now {
            link.feed(frame(&topic, n, rate.is_some(), &filler))?;
        }
        link.flush()?;
        for _ in 0..now {
            let text = link.text()?;
            let Ok(ServerFrame::Published(published)) = ServerFrame::parse(&text) else {
                return Err(BenchError::Unexpected(text.to_string()));
            };
            if let PublishedPlace::At { partition, offset } = published.place {
                shared.ledger.confirm(number, partition.0 as usize, offset.0);
            }
        }
        sent += now;
        add(&shared.counts.published, now);
    }
    Ok(())
}

fn frame(topic: &str, n: u64, with_poison: bool, filler: &str) -> String {
    let kind = if with_poison && n % POISON_EVERY == POISON_FIRST { POISON } else { "plain" };
    let mut frame = String::with_capacity(filler.len() + 128);
    let key = n % KEYS;
    // A write to a string cannot fail.
    let _ = write!(
        frame,
        "{{\"type\":\"PUBLISH\",\"topic\":\"{topic}\",\"key\":\"k{key}\",\"payload\":{{\"kind\":\"{kind}\",\"n\":{n},\
         \"filler\":\"{filler}\"}}}}"
    );
    frame
}
