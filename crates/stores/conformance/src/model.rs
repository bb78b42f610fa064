//! Random histories, run on the store under test and on the memory store side by side.

use millrace_model::{Batch, Check, Op, Space, Stream, Timestamp};

use crate::Subject;
use crate::build::{absent, append, append_id, checked, delete, drop_topic, equals, put, stream, trim};
use millrace_store::{KeyRange, MemoryStore, ReadLimit, Retention};

/// Something done to a store from outside.
#[derive(Clone, Debug)]
pub enum HistoryStep {
    Commit(Vec<Batch>),
    Maintain(usize),
    Reopen,
}

const TOPICS: u64 = 4;
const PARTITIONS: u64 = 3;
const KEYS: u64 = 6;
const IDS: u64 = 12;

pub(super) fn random_histories_match_the_memory_store(subject: &mut Subject) {
    check_against_memory(subject, &steps_from_seed(1, 300));
}

/// Returns a history that depends on nothing but its arguments. Its clock mostly advances and at times steps back.
pub fn steps_from_seed(seed: u64, count: usize) -> Vec<HistoryStep> {
    let mut draw = Draw(seed);
    let mut now = 1000;
    (0..count)
        .map(|_| match draw.below(20) {
            0 => HistoryStep::Reopen,
            1..=3 => HistoryStep::Maintain(1 + draw.below(40) as usize),
            _ => HistoryStep::Commit(
                (0..1 + draw.below(4)).map(|_| random_batch(&mut draw, &mut now)).collect(),
            ),
        })
        .collect()
}

fn random_batch(draw: &mut Draw, now: &mut u64) -> Batch {
    *now = if draw.below(15) == 0 { now.saturating_sub(draw.below(30)) } else { *now + draw.below(10) };
    let checks = (0..draw.below(8) / 6).map(|_| random_check(draw)).collect();
    let ops = (0..draw.below(7)).map(|_| random_op(draw)).collect();
    Batch { nonce: draw.next(), ..checked(*now, checks, ops) }
}

fn random_check(draw: &mut Draw) -> Check {
    let (space, key) = (random_space(draw), draw.below(KEYS).to_string());
    match draw.below(2) {
        0 => absent(space, &key),
        _ => equals(space, &key, &draw.below(3).to_string()),
    }
}

fn random_op(draw: &mut Draw) -> Op {
    let s = random_stream(draw);
    match draw.below(30) {
        0 => drop_topic(s.topic.topic()),
        1..=2 => trim(&s, draw.below(60)),
        3..=6 => put(random_space(draw), &draw.below(KEYS).to_string(), &draw.below(3).to_string()),
        7 => delete(random_space(draw), &draw.below(KEYS).to_string()),
        8..=13 => append_id(&s, &draw.below(IDS).to_string(), "brought", 50),
        _ => append(&s, &"x".repeat(draw.below(40) as usize)),
    }
}

fn random_stream(draw: &mut Draw) -> Stream {
    stream(&format!("random{}", draw.below(TOPICS)), draw.below(PARTITIONS) as u32)
}

fn random_space(draw: &mut Draw) -> Space {
    Space::ALL[draw.below(Space::ALL.len() as u64) as usize]
}

/// Runs the history on the store under test and on a memory store. Panics at the first difference.
pub fn check_against_memory(subject: &mut Subject, steps: &[HistoryStep]) {
    let memory = Subject::new(Box::new(MemoryStore::new()), |store| store);
    let mut draw = Draw(7);
    for (at, step) in steps.iter().enumerate() {
        match step {
            HistoryStep::Commit(batches) => {
                assert_eq!(subject.commit(batches), memory.commit(batches), "outcomes of step {at}");
            }
            HistoryStep::Maintain(rows_max) => {
                let done = subject.store().maintain(*rows_max);
                assert!(done.is_ok(), "step {at}: {done:?}");
            }
            HistoryStep::Reopen => subject.reopen(),
        }
        compare_one(subject, &memory, &random_stream(&mut draw), &mut draw, at);
    }
    subject.maintain_all(25);
    for _ in 0..2 {
        assert_eq!(subject.streams(), memory.streams());
        for space in Space::ALL {
            assert_eq!(subject.table(space), memory.table(space));
        }
        for bounds in memory.streams() {
            compare_one(subject, &memory, &bounds.stream, &mut draw, steps.len());
        }
        subject.reopen();
    }
}

fn compare_one(subject: &Subject, memory: &Subject, s: &Stream, draw: &mut Draw, at: usize) {
    let limit = ReadLimit { events_max: 1 + draw.below(50) as usize, bytes_max: draw.below(5000) as usize };
    let from = draw.below(50);
    assert_eq!(
        subject.page(s, from, limit),
        memory.page(s, from, limit),
        "page {from} of {s} after step {at}"
    );
    let ts = 900 + draw.below(1500);
    assert_eq!(subject.seek(s, ts), memory.seek(s, ts), "seek {ts} in {s} after step {at}");
    let rule = Retention { older_than: Some(Timestamp(ts)), bytes_max: Some(draw.below(500)) };
    let (given, expected) = (subject.retention_start(s, rule), memory.retention_start(s, rule));
    assert_eq!(given, expected, "{rule:?} of {s} after step {at}");
    let range = KeyRange { from: draw.below(KEYS).to_string(), to: Some(draw.below(KEYS).to_string()) };
    let space = random_space(draw);
    assert_eq!(subject.rows(space, &range, 3), memory.rows(space, &range, 3), "{space:?} after step {at}");
}

/// Random numbers by splitmix64: small, seedable, and the same on every machine.
pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
