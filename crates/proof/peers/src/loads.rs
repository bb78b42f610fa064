//! The loads, the same for every broker. Timed loads run in slices; before each slice, while the load rests, the disk
//! is probed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_bench::{Latencies, Probe};
use tokio::task::JoinSet;

use crate::error::PeerError;
use crate::load_target::{Consumer, LoadTarget, Topic};
use crate::report::Sample;
use crate::system::{Load, System};

pub(crate) const PAYLOAD_BYTES: usize = 256;
pub(crate) const IN_FLIGHT: usize = 256;
/// Confirmations read before the next publishes are sent, as a client under load does.
pub(crate) const ANSWERS_PER_TURN: usize = 32;
/// A consumer that gets nothing for this long is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const CLIENTS: usize = 8;
const SLICES: u32 = 5;
/// Events in the backlog for each second of the requested duration.
const BACKLOG_PER_SECOND: f64 = 50_000.0;
const ACK_EVERY: usize = 100;
/// The group of every load but the fan-out.
const GROUP: &str = "g";
const CONSUMERS: usize = 10;
const FANOUT_PER_SECOND: f64 = 1000.0;

pub(crate) struct LoadStage {
    pub(crate) system: System,
    pub(crate) round: usize,
    pub(crate) url: String,
    pub(crate) seconds: f64,
    pub(crate) probe: Probe,
}

/// The result of a load: events, the time they took, and single latencies if it measures any.
struct Yield {
    events: u64,
    busy: Duration,
    latencies: Latencies,
}

impl LoadStage {
    /// Runs the load as a task of its own, beside the tasks of its clients. A future that `main` awaits is polled by the
    /// thread of `main`, which is none of the runtime's: there each answer to the load would have to wake another
    /// thread, at a price that differs from client to client.
    pub(crate) async fn spawn<B: LoadTarget>(self, load: Load) -> Result<Sample, PeerError> {
        // A set, because dropping it ends the task.
        let mut running = JoinSet::new();
        running.spawn(self.run::<B>(load));
        running.join_next().await.and_then(Result::ok).unwrap_or(Err(PeerError::Panicked))
    }

    async fn run<B: LoadTarget>(mut self, load: Load) -> Result<Sample, PeerError> {
        let broker = B::connect(&self.url).await?;
        let groups = groups(load);
        let has_waiting_consumers = load == Load::Fanout;
        broker.create_topic(Topic { name: load.name(), groups: &groups, has_waiting_consumers }).await?;
        let Yield { events, busy, mut latencies } = match load {
            Load::Serial => self.serial(&broker).await?,
            Load::Inflight => self.inflight(&broker).await?,
            Load::Clients => self.clients::<B>().await?,
            Load::Consume => self.consume(&broker).await?,
            Load::Fanout => self.fanout(&broker).await?,
        };
        let timed = !latencies.is_empty();
        Ok(Sample {
            round: self.round,
            system: self.system,
            load,
            events,
            rate: events as f64 / busy.as_secs_f64(),
            p50_ms: timed.then(|| latencies.quantile_ms(0.5)),
            p99_ms: timed.then(|| latencies.quantile_ms(0.99)),
            probe_ms: self.probe.median_ms(),
            overwriting_ms: self.probe.overwriting_ms(),
        })
    }

    fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds) / SLICES
    }

    async fn serial<B: LoadTarget>(&mut self, broker: &B) -> Result<Yield, PeerError> {
        let (mut latencies, mut busy) = (Latencies::default(), Duration::ZERO);
        for _ in 0..SLICES {
            self.probe.slice()?;
            let begun = Instant::now();
            latencies.extend(one_at_a_time(broker, Load::Serial.name(), begun + self.slice()).await?);
            busy += begun.elapsed();
        }
        Ok(Yield { events: latencies.len() as u64, busy, latencies })
    }

    async fn inflight<B: LoadTarget>(&mut self, broker: &B) -> Result<Yield, PeerError> {
        let (mut events, mut busy) = (0, Duration::ZERO);
        for _ in 0..SLICES {
            self.probe.slice()?;
            let begun = Instant::now();
            let end = begun + self.slice();
            let more = |_| Instant::now() < end;
            events += broker.publish_many(Load::Inflight.name(), payload(), IN_FLIGHT, more).await?;
            busy += begun.elapsed();
        }
        Ok(Yield { events, busy, latencies: Latencies::default() })
    }

    async fn clients<B: LoadTarget>(&mut self) -> Result<Yield, PeerError> {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(B::connect(&self.url).await?);
        }
        let (mut latencies, mut busy) = (Latencies::default(), Duration::ZERO);
        for _ in 0..SLICES {
            self.probe.slice()?;
            let begun = Instant::now();
            let end = begun + self.slice();
            let mut running = JoinSet::new();
            for client in clients.clone() {
                running.spawn(async move { one_at_a_time(&client, Load::Clients.name(), end).await });
            }
            while let Some(done) = running.join_next().await {
                latencies.extend(done.map_err(|_| PeerError::Panicked)??);
            }
            busy += begun.elapsed();
        }
        Ok(Yield { events: latencies.len() as u64, busy, latencies })
    }

    /// Consumes in one go, without slices: events that a client prefetches during a probe would cost no time.
    async fn consume<B: LoadTarget>(&mut self, broker: &B) -> Result<Yield, PeerError> {
        let topic = Load::Consume.name();
        let backlog = (self.seconds * BACKLOG_PER_SECOND) as u64;
        let filled = broker.publish_many(topic, payload(), IN_FLIGHT, |sent| sent < backlog).await?;
        self.probe.slice()?;
        let mut consumer = broker.subscribe(topic, GROUP).await?;
        let (begun, mut taken) = (Instant::now(), 0);
        while taken < filled {
            match consumer.receive(ACK_EVERY, &mut |_| ()).await? {
                0 => return Err(stalled("the consumer", taken, filled)),
                more => taken += more,
            }
        }
        let busy = begun.elapsed();
        self.probe.slice()?;
        Ok(Yield { events: taken, busy, latencies: Latencies::default() })
    }

    async fn fanout<B: LoadTarget>(&mut self, broker: &B) -> Result<Yield, PeerError> {
        let topic = Load::Fanout.name();
        let wanted = (self.seconds * FANOUT_PER_SECOND) as u64;
        let epoch = Instant::now();
        let mut consumers = JoinSet::new();
        for group in groups(Load::Fanout) {
            let connection = B::connect(&self.url).await?;
            let mut consumer = connection.subscribe(topic, &group).await?;
            consumers.spawn(async move {
                let (mut ages, mut got) = (Latencies::default(), 0);
                while got < wanted {
                    let mut each = |payload: &[u8]| ages.push(age(epoch, payload));
                    match consumer.receive(ACK_EVERY, &mut each).await? {
                        0 => return Err(stalled("a consumer", got, wanted)),
                        more => got += more,
                    }
                }
                drop(connection);
                Ok(ages)
            });
        }
        self.probe.slice()?;
        let begun = Instant::now();
        pace(broker, topic, wanted, epoch).await?;
        let busy = begun.elapsed();
        let mut latencies = Latencies::default();
        while let Some(done) = consumers.join_next().await {
            latencies.extend(done.map_err(|_| PeerError::Panicked)??);
        }
        self.probe.slice()?;
        Ok(Yield { events: wanted, busy, latencies })
    }
}

/// The groups of a load's topic. Where nothing is consumed there is one, which keeps the events.
fn groups(load: Load) -> Vec<String> {
    match load {
        Load::Fanout => (0..CONSUMERS).map(|number| format!("{GROUP}{number}")).collect(),
        _ => vec![GROUP.to_owned()],
    }
}

async fn one_at_a_time<B: LoadTarget>(broker: &B, topic: &str, end: Instant) -> Result<Latencies, PeerError> {
    let (mut latencies, payload) = (Latencies::default(), payload());
    while Instant::now() < end {
        let sent = Instant::now();
        broker.publish(topic, payload.clone()).await?;
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}

/// Publishes one event per tick, whether or not the last one is confirmed; returns when all are confirmed.
async fn pace<B: LoadTarget>(
    broker: &B,
    topic: &'static str,
    events: u64,
    epoch: Instant,
) -> Result<(), PeerError> {
    let begun = Instant::now();
    let mut waiting = JoinSet::new();
    for number in 0..events {
        let due = begun + Duration::from_secs_f64(number as f64 / FANOUT_PER_SECOND);
        tokio::time::sleep_until(due.into()).await;
        let (broker, payload) = (broker.clone(), stamped(epoch));
        waiting.spawn(async move { broker.publish(topic, payload).await });
        while let Some(done) = waiting.try_join_next() {
            done.map_err(|_| PeerError::Panicked)??;
        }
    }
    while let Some(done) = waiting.join_next().await {
        done.map_err(|_| PeerError::Panicked)??;
    }
    Ok(())
}

fn stalled(consumer: &str, got: u64, wanted: u64) -> PeerError {
    PeerError::Stalled { consumer: consumer.to_owned(), got, wanted, seconds: PATIENCE.as_secs() }
}

/// A JSON string of exactly `PAYLOAD_BYTES`, quotes included: the same bytes for every broker.
pub(crate) fn payload() -> Bytes {
    format!("\"{}\"", "x".repeat(PAYLOAD_BYTES - 2)).into()
}

/// A payload with the time of sending, in nanoseconds since `epoch`, padded to the same length.
fn stamped(epoch: Instant) -> Bytes {
    format!("\"{:<width$}\"", epoch.elapsed().as_nanos(), width = PAYLOAD_BYTES - 2).into()
}

/// A payload that cannot be parsed counts as sent at `epoch`: a broker that changes payloads must not look fast.
fn age(epoch: Instant, payload: &[u8]) -> Duration {
    let text = std::str::from_utf8(payload).unwrap_or_default();
    let sent = text.trim_matches(['"', ' ']).parse().unwrap_or(0);
    epoch.elapsed().saturating_sub(Duration::from_nanos(sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_has_the_asked_length() {
        assert_eq!(payload().len(), PAYLOAD_BYTES);
        assert_eq!(stamped(Instant::now()).len(), PAYLOAD_BYTES);
    }

    #[test]
    fn the_age_of_a_stamp_is_the_time_since() {
        let epoch = Instant::now() - Duration::from_secs(5);
        let stamp = stamped(epoch);
        assert!(age(epoch, &stamp) < Duration::from_secs(5));
        assert!(age(epoch, b"nonsense") >= Duration::from_secs(5));
    }
}
