//! A consumer: reads and acknowledges, and while `trouble` is set refuses events, is slow or disconnects, at random.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use millrace_wire::{ErrorCode, Message, ServerFrame};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::publisher::POISON;
use super::{SoakState, TOPICS, add, group, topic};
use crate::bus::link::WsLink;
use crate::bus::server::BenchServer;
use crate::error::BenchError;

const WINDOW: u32 = 64;
/// A consumer that gets nothing for this long sends its pending acks and checks whether the run is over.
const QUIET: Duration = Duration::from_millis(50);
/// Events per cumulative ack.
const ACK_EVERY: usize = 16;

/// Probabilities per event.
const REFUSE: f64 = 0.005;
const VANISH: f64 = 0.0003;
const DAWDLE: f64 = 0.001;
const DAWDLE_MS: std::ops::Range<u64> = 20..400;
const REFUSE_DELAY_MS: std::ops::Range<u64> = 0..200;

pub(crate) fn run(shared: &SoakState, of: usize, seed: u64, number: u64) -> Result<(), BenchError> {
    let mut dice = SmallRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number));
    // See the head of `soak/mod.rs`: consumers that may disconnect acknowledge one by one.
    let one_by_one = of % 2 == 1;
    while !shared.done.load(Ordering::Relaxed) {
        let member = SoakMember::join(shared, of, one_by_one)?;
        member.work(&mut dice)?;
    }
    Ok(())
}

/// Waits until every member of every group has subscribed.
pub(crate) fn wait_for_all(
    server: &BenchServer,
    shared: &SoakState,
    wanted: usize,
    stop: &AtomicBool,
) -> Result<(), BenchError> {
    loop {
        shared.go_on(stop)?;
        let stats = server.document("/stats")?;
        if stats["subscriptions"].as_u64().unwrap_or(0) >= wanted as u64 {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

struct SoakMember<'a> {
    shared: &'a SoakState,
    of: usize,
    group: String,
    one_by_one: bool,
    link: WsLink,
    /// In cumulative mode, offsets that were read and not acknowledged, by topic and partition.
    held: BTreeMap<(usize, u32), Vec<u64>>,
    held_count: usize,
    /// Deliveries that came before the last subscription was confirmed.
    early: Vec<Message>,
}

impl SoakMember<'_> {
    fn join(shared: &SoakState, of: usize, one_by_one: bool) -> Result<SoakMember<'_>, BenchError> {
        let link = WsLink::open(&shared.url)?;
        let (group, held) = (group(of), BTreeMap::new());
        let mut member =
            SoakMember { shared, of, group, one_by_one, link, held, held_count: 0, early: Vec::new() };
        let mode = if one_by_one { "individual" } else { "cumulative" };
        for number in 0..TOPICS {
            let (topic, group) = (topic(number), &member.group);
            member.link.feed(format!(
                "{{\"type\":\"SUBSCRIBE\",\"topic\":\"{topic}\",\"group\":\"{group}\",\"from\":{{\"kind\":\"earliest\"}},\
                 \"max_inflight\":{WINDOW},\"ack_mode\":\"{mode}\"}}"
            ))?;
        }
        member.link.flush()?;
        let mut confirmed = 0;
        while confirmed < TOPICS {
            let text = member.link.text()?;
            match ServerFrame::parse(&text) {
                Ok(ServerFrame::Ok(_)) => confirmed += 1,
                Ok(ServerFrame::Message(message)) => member.early.push(*message),
                _ => return Err(BenchError::Unexpected(text.to_string())),
            }
        }
        member.link.wait_at_most(QUIET)?;
        Ok(member)
    }

    /// Works until the run is over or the consumer disconnects at random.
    fn work(mut self, dice: &mut SmallRng) -> Result<(), BenchError> {
        let early = std::mem::take(&mut self.early);
        for message in early {
            if self.handle(&message, dice)? {
                return Ok(());
            }
        }
        self.link.flush()?;
        loop {
            let Some(text) = self.link.try_text()? else {
                self.acknowledge_held()?;
                self.link.flush()?;
                if self.shared.done.load(Ordering::Relaxed) {
                    return Ok(());
                }
                continue;
            };
            match ServerFrame::parse(&text) {
                Ok(ServerFrame::Message(message)) => {
                    if self.handle(&message, dice)? {
                        return Ok(());
                    }
                }
                // The lease expired because this consumer was slow: another member gets the event.
                Ok(ServerFrame::Error(error)) if error.code == ErrorCode::UnknownOffset => {
                    add(&self.shared.counts.late_acks, 1);
                }
                _ => return Err(BenchError::Unexpected(text.to_string())),
            }
        }
    }

    /// Handles an event. Returns whether to disconnect now.
    fn handle(&mut self, message: &Message, dice: &mut SmallRng) -> Result<bool, BenchError> {
        let number = (0..TOPICS).find(|number| topic(*number) == message.topic.as_str());
        let Some(number) = number else { return Err(BenchError::Unexpected(message.topic.to_string())) };
        let (partition, offset) = (message.partition.0, message.offset.0);
        let trouble = self.shared.trouble.load(Ordering::Relaxed);
        if trouble && dice.random_bool(DAWDLE) {
            add(&self.shared.counts.slow_spells, 1);
            // Sends pending answers first, so that only this event is delayed.
            self.link.flush()?;
            thread::sleep(Duration::from_millis(dice.random_range(DAWDLE_MS)));
        }
        if !self.one_by_one {
            self.held.entry((number, partition)).or_default().push(offset);
            self.held_count += 1;
            if self.held_count >= ACK_EVERY {
                self.acknowledge_held()?;
                self.link.flush()?;
            }
            return Ok(false);
        }
        if trouble && dice.random_bool(VANISH) {
            add(&self.shared.counts.disconnects, 1);
            return Ok(true);
        }
        let is_poison = message.envelope.payload.as_str().contains(POISON);
        if is_poison || (trouble && dice.random_bool(REFUSE)) {
            add(&self.shared.counts.nacks, 1);
            let delay_ms = dice.random_range(REFUSE_DELAY_MS);
            self.answer(
                "NACK",
                number,
                partition,
                offset,
                &format!(",\"reason\":\"dice\",\"delay_ms\":{delay_ms}"),
            )?;
        } else {
            self.answer("ACK", number, partition, offset, "")?;
            self.finish(number, partition, offset);
        }
        self.link.flush()?;
        Ok(false)
    }

    /// Acknowledges the highest offset of each partition, which includes the lower ones of this connection.
    fn acknowledge_held(&mut self) -> Result<(), BenchError> {
        self.held_count = 0;
        for ((number, partition), offsets) in std::mem::take(&mut self.held) {
            if let Some(highest) = offsets.iter().max() {
                self.answer("ACK", number, partition, *highest, "")?;
            }
            for offset in offsets {
                self.finish(number, partition, offset);
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        kind: &str,
        number: usize,
        partition: u32,
        offset: u64,
        more: &str,
    ) -> Result<(), BenchError> {
        let (topic, group) = (topic(number), &self.group);
        self.link.feed(format!(
            "{{\"type\":\"{kind}\",\"topic\":\"{topic}\",\"partition\":{partition},\"group\":\"{group}\",\"offset\":{offset}{more}}}"
        ))
    }

    fn finish(&self, number: usize, partition: u32, offset: u64) {
        if self.shared.ledger.finish(self.of, number, partition as usize, offset) {
            add(&self.shared.counts.handled, 1);
        }
    }
}
