//! Random histories of claims, run on the store under test and on the memory store side by side.
//!
//! At the end every retained event must be in exactly one place for each handler: finished or claimed. The handler
//! [`ORDERED`] always claims in order of keys: none of its events may be held beside another one of the same key, or
//! before an earlier one has ended. The other handlers change their order at random.

use std::collections::BTreeSet;

use millrace_model::{Batch, ClaimRow, HandlerOrder, Op, Outcome, Space, Stream, Ticket, keys};

use crate::Subject;
use crate::build::{
    ack, append_keyed, batch, claim_of, drop_topic, handler, release, remove, stream, topic, trim,
};
use crate::model::Draw;
use crate::subject::WHOLE;
use millrace_store::{KeyRange, MemoryStore};

const TOPIC: &str = "claimed";
const HANDLERS: [&str; 3] = ["h", "mod::path:g", ORDERED];
const ORDERED: &str = "ordered";
const KEYS: [Option<&str>; 4] = [None, Some("a"), Some("b"), Some("c")];
const PARTITIONS: u64 = 3;

pub(super) fn random_claims_match_the_memory_store(subject: &mut Subject) {
    for seed in 0..3 {
        check_claims_against_memory(subject, seed, 150);
        subject.done(batch(1_000_000, vec![drop_topic(TOPIC)]));
        subject.maintain_all(100);
    }
}

/// Runs `steps` random steps on both stores. Panics at the first difference.
pub fn check_claims_against_memory(subject: &mut Subject, seed: u64, steps: usize) {
    let memory = Subject::new(Box::new(MemoryStore::new()), |store| store);
    let mut draw = Draw(seed);
    let (mut now, mut held): (u64, Vec<Ticket>) = (1000, Vec::new());
    for step in 0..steps {
        // No two steps share a moment: only its time tells how an event of a dropped topic has ended.
        now += 2 + draw.below(20);
        match draw.below(12) {
            0 => subject.reopen(),
            1 => {
                let done = subject.store().maintain(1 + draw.below(20) as usize);
                assert!(done.is_ok(), "step {step}: {done:?}");
            }
            _ => {
                let batches: Vec<Batch> =
                    (0..1 + draw.below(3)).map(|at| random_batch(&mut draw, now, &held, at == 0)).collect();
                let outcomes = told(subject.commit(&batches));
                assert_eq!(outcomes, told(memory.commit(&batches)), "outcomes of step {step}");
                for outcome in outcomes {
                    if let Outcome::Done(done) = outcome {
                        held.extend(done.claimed.into_iter().map(|one| one.ticket));
                    }
                }
            }
        }
        // Lanes are not compared: how far a lane has come past a hole depends on the pages that a store reads.
        assert_eq!(subject.table(Space::Claims), memory.table(Space::Claims), "claims after step {step}");
        keys_in_order(subject, step);
    }
    settle(subject, now + 10_000);
    settle(&memory, now + 10_000);
    assert_eq!(subject.table(Space::Claims), memory.table(Space::Claims));
    subject.maintain_all(50);
    for of in HANDLERS {
        one_place_each(subject, of);
    }
}

/// Returns the outcomes without `more`, which is only a hint: a store need not know that only holes follow.
fn told(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    for outcome in &mut outcomes {
        if let Outcome::Done(done) = outcome {
            done.more = false;
        }
    }
    outcomes
}

fn random_batch(draw: &mut Draw, now: u64, held: &[Ticket], is_first: bool) -> Batch {
    let s = stream(TOPIC, draw.below(PARTITIONS) as u32);
    let of = HANDLERS[draw.below(3) as usize];
    match draw.below(40) {
        0 => batch(now + 1, vec![drop_topic(TOPIC)]),
        1..=2 => batch(now, vec![trim(&s, draw.below(30))]),
        // Compaction only removes events that it has read, and those are never of the same commit.
        3..=4 if is_first => {
            let from = 1 + draw.below(30);
            batch(now, vec![remove(&s, &[from, from + 2, from + 3], from + 4)])
        }
        5..=14 => {
            let claim = claim_of(TOPIC, of, 1 + draw.below(9) as usize, now + 1 + draw.below(60));
            let bytes_max = if draw.below(4) == 0 { 300 } else { usize::MAX };
            let order = order_of(draw, of);
            batch(now, vec![Op::Claim(millrace_model::Claim { bytes_max, order, ..claim })])
        }
        // Expired tickets are used as well: the check in the batch must refuse them.
        15..=19 if !held.is_empty() => {
            let at = draw.below(held.len() as u64) as usize;
            ack(now, &held[at])
        }
        20..=23 if !held.is_empty() => {
            let at = draw.below(held.len() as u64) as usize;
            release(now, &held[at], now + draw.below(50))
        }
        _ => {
            let priority = [100, 100, 100, 7, 500, 2000][draw.below(6) as usize];
            // All events of a key are in one partition.
            let key = KEYS[draw.below(4) as usize];
            let s = key.map_or(s, |key| stream(TOPIC, u32::from(key.as_bytes()[0]) % PARTITIONS as u32));
            let ops = (0..1 + draw.below(3)).map(|n| append_keyed(&s, &format!("{now}-{n}"), key, priority));
            batch(now, ops.collect())
        }
    }
}

fn order_of(draw: &mut Draw, of: &str) -> HandlerOrder {
    match of == ORDERED || draw.below(3) == 0 {
        true => HandlerOrder::Key,
        false => HandlerOrder::Priority,
    }
}

/// Claims, as often as necessary, until every event is claimed or waits behind its key.
fn settle(subject: &Subject, now: u64) {
    for of in HANDLERS {
        let order = if of == ORDERED { HandlerOrder::Key } else { HandlerOrder::Priority };
        for round in 0.. {
            let claim = millrace_model::Claim { order, ..claim_of(TOPIC, of, 20, now + 1000) };
            let done = subject.all_done(batch(now, vec![Op::Claim(claim)]));
            if !done.more {
                break;
            }
            assert!(round < 10_000, "claims do not come to an end");
        }
    }
}

/// Asserts that before [`ORDERED`] was given an event, every earlier event of the same key had ended.
fn keys_in_order(subject: &Subject, step: usize) {
    let range = KeyRange::prefix(&keys::claims_of("suite", &handler(ORDERED)));
    let rows =
        subject.store().scan(Space::Claims, &range, usize::MAX).unwrap_or_else(|error| panic!("{error}"));
    for row in rows {
        let Some((_, s, offset)) = keys::claim_place(&row.key) else { panic!("{}", row.key) };
        let claim = ClaimRow::decode(&row.key, &row.value).unwrap_or_else(|error| panic!("{error}"));
        let events = subject.page(&s, 0, WHOLE).events;
        let Some(event) = events.iter().find(|event| event.offset == offset) else { continue };
        if claim.generation == 0 || event.body.key.is_none() {
            continue;
        }
        let earlier = events.iter().filter(|one| one.offset < offset && one.body.key == event.body.key);
        for one in earlier {
            let key = keys::finished(&s, one.offset, &handler(ORDERED));
            let ended = subject.rows(Space::Finished, &KeyRange::prefix(&key), 1);
            assert!(
                !ended.is_empty(),
                "step {step}: {s} {offset} was claimed before {} has ended",
                one.offset
            );
        }
    }
}

fn one_place_each(subject: &Subject, of: &str) {
    let rows = |space, range: KeyRange| {
        let rows = subject.store().scan(space, &range, usize::MAX);
        rows.unwrap_or_else(|error| panic!("{error}"))
    };
    let mut claimed = BTreeSet::new();
    for row in rows(Space::Claims, KeyRange::prefix(&keys::claims_of("suite", &handler(of)))) {
        let place = keys::claim_place(&row.key).map(|(_, stream, offset)| (stream, offset));
        assert!(claimed.insert(place), "{} is claimed twice", row.key);
    }
    for partition in 0..PARTITIONS {
        let s: Stream = topic(TOPIC).stream(millrace_model::Partition(partition as u32));
        for event in subject.page(&s, 0, WHOLE).events {
            let key = keys::finished(&s, event.offset, &handler(of));
            let finished = rows(Space::Finished, KeyRange::prefix(&key)).iter().any(|row| row.key == key);
            let open = claimed.contains(&Some((s.clone(), event.offset)));
            assert!(finished != open, "{s} {} for {of}: finished {finished}, claimed {open}", event.offset);
        }
    }
}
