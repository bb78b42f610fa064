//! Records which group has finished which event: one bit per event and group, kept outside the server so that its
//! claims can be checked.

use parking_lot::{Mutex, MutexGuard};

use super::{GROUPS, PARTITIONS, TOPICS, group, topic};
use crate::bus::server::BenchServer;
use crate::error::BenchError;

const PAGE: u64 = 1000;

/// A set of offsets.
#[derive(Clone, Debug, Default)]
struct Marks(Vec<u64>);

impl Marks {
    /// Returns whether the offset is new.
    fn set(&mut self, offset: u64) -> bool {
        let (word, bit) = ((offset / 64) as usize, 1 << (offset % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    fn has(&self, offset: u64) -> bool {
        self.0.get((offset / 64) as usize).is_some_and(|word| word & (1 << (offset % 64)) != 0)
    }

    fn offsets(&self) -> impl Iterator<Item = u64> {
        let bits = |(at, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| at as u64 * 64 + bit)
        };
        self.0.iter().enumerate().flat_map(bits)
    }
}

pub(crate) struct Ledger {
    /// Published events that the server has confirmed, by topic and partition.
    confirmed: Vec<Mutex<Marks>>,
    /// Events acknowledged, or found among the dead letters, by group, topic and partition.
    done: Vec<Mutex<Marks>>,
}

/// Confirmed events that a group has neither acknowledged nor dead-lettered.
#[derive(Debug, Default)]
pub(crate) struct Stranded {
    pub(crate) count: u64,
    /// A few of them, to help to find the reason.
    pub(crate) some: Vec<String>,
}

const NAMED_MAX: usize = 5;

impl Ledger {
    pub(crate) fn new() -> Ledger {
        let streams = TOPICS * PARTITIONS;
        let empty = |count: usize| (0..count).map(|_| Mutex::default()).collect();
        Ledger { confirmed: empty(streams), done: empty(streams * GROUPS) }
    }

    pub(crate) fn confirm(&self, topic: usize, partition: usize, offset: u64) {
        if let Some(marks) = self.confirmed.get(topic * PARTITIONS + partition) {
            lock(marks).set(offset);
        }
    }

    /// Returns whether the event was not finished before.
    pub(crate) fn finish(&self, group: usize, topic: usize, partition: usize, offset: u64) -> bool {
        let place = (group * TOPICS + topic) * PARTITIONS + partition;
        self.done.get(place).is_some_and(|marks| lock(marks).set(offset))
    }

    /// Marks the dead letters as finished. Every dead letter names its event and group.
    pub(crate) fn read_dead_letters(&self, server: &BenchServer) -> Result<(), BenchError> {
        for number in 0..TOPICS {
            let mut from = 1;
            loop {
                let path = format!("/dead-letters?topic={}&from={from}&limit={PAGE}", topic(number));
                // A topic without dead letters has no such page.
                let Ok(page) = server.document(&path) else { break };
                let events = page["events"].as_array().map_or(&[][..], Vec::as_slice);
                for event in events {
                    let header = |name: &str| event["headers"][name].as_str();
                    let count = |name: &str| header(name)?.parse::<u64>().ok();
                    let of = (0..GROUPS).find(|at| header("x-dlq-group") == Some(&group(*at)));
                    let (Some(of), Some(partition), Some(offset)) =
                        (of, count("x-dlq-partition"), count("x-dlq-offset"))
                    else {
                        return Err(BenchError::Unexpected(event.to_string()));
                    };
                    self.finish(of, number, partition as usize, offset);
                }
                match page["next"].as_u64() {
                    Some(next) if !events.is_empty() => from = next,
                    _ => break,
                }
            }
        }
        Ok(())
    }

    pub(crate) fn stranded(&self) -> Stranded {
        let mut stranded = Stranded::default();
        for (stream, confirmed) in self.confirmed.iter().enumerate() {
            let confirmed = lock(confirmed);
            for of in 0..GROUPS {
                let done = lock(&self.done[of * TOPICS * PARTITIONS + stream]);
                for offset in confirmed.offsets().filter(|offset| !done.has(*offset)) {
                    stranded.count += 1;
                    if stranded.some.len() < NAMED_MAX {
                        let (topic, partition) = (topic(stream / PARTITIONS), stream % PARTITIONS);
                        stranded.some.push(format!("{topic}/{partition} offset {offset} in {}", group(of)));
                    }
                }
            }
        }
        stranded
    }
}

/// Lag and events in flight as the server reports them, summed over all groups.
pub(crate) fn left(server: &BenchServer) -> Result<(u64, u64), BenchError> {
    let (mut lag, mut inflight) = (0, 0);
    for number in 0..TOPICS {
        let page = server.document(&format!("/topics/{}/offsets", topic(number)))?;
        let partitions = page["partitions"].as_array().map_or(&[][..], Vec::as_slice);
        for partition in partitions {
            for of in (0..GROUPS).map(group) {
                let at = &partition["groups"][of.as_str()];
                let count = |name: &str| {
                    at[name]
                        .as_u64()
                        .ok_or_else(|| BenchError::Unexpected(format!("no {name} of {of}: {partition}")))
                };
                lag += count("lag")?;
                inflight += count("inflight")?;
            }
        }
    }
    Ok((lag, inflight))
}

fn lock(marks: &Mutex<Marks>) -> MutexGuard<'_, Marks> {
    marks.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_one_group_has_not_finished_is_stranded_there() {
        let ledger = Ledger::new();
        for offset in [1, 64, 200] {
            ledger.confirm(3, 1, offset);
            for of in 0..GROUPS {
                if (of, offset) != (7, 64) {
                    assert!(ledger.finish(of, 3, 1, offset));
                }
            }
        }
        assert!(!ledger.finish(0, 3, 1, 200), "it was finished before");
        let stranded = ledger.stranded();
        assert_eq!((stranded.count, stranded.some), (1, vec!["soak.3/1 offset 64 in group-7".to_owned()]));
    }

    #[test]
    fn what_was_never_confirmed_strands_nobody() {
        let ledger = Ledger::new();
        ledger.finish(0, 0, 0, 9);
        assert_eq!(ledger.stranded().count, 0);
    }
}
