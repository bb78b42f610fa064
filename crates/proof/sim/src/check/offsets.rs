//! Offsets are dense and in order, the event at an offset never changes, and time never falls within a stream.

use std::collections::BTreeMap;

use millrace_model::{Offset, Op, Outcome, Stream, Timestamp};

use super::Checker;
use crate::facts::Facts;
use crate::seen::Seen;

pub(super) struct Offsets;

impl Checker for Offsets {
    fn name(&self) -> &'static str {
        "offsets_dense"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Durable { batch, outcome: Outcome::Done(done), .. } = seen else { return Ok(()) };
        let mut ends: BTreeMap<&Stream, (Offset, Timestamp)> = BTreeMap::new();
        let mut appended = done.appended.iter();
        for op in &batch.ops {
            if !matches!(op, Op::Append(_) | Op::Delay(_)) {
                continue;
            }
            let done = appended.next().ok_or("a commit told of fewer appends than its batch has")?;
            let Op::Append(append) = op else { continue };
            let log = facts.ledger.logs.get(&append.stream);
            if done.duplicate {
                // The first of two equal ids may be in this very batch, which is not in the ledger yet.
                continue;
            }
            let before = log.map_or((Offset::FIRST, Timestamp(0)), |log| (log.next, log.last_ts));
            let (next, last_ts) = ends.entry(&append.stream).or_insert(before);
            if done.offset != *next {
                return Err(format!("{} got offset {} where {next} was next", append.stream, done.offset));
            }
            if done.ts < *last_ts {
                return Err(format!(
                    "{} fell from ts {} to {} at {next}",
                    append.stream, last_ts.0, done.ts.0
                ));
            }
            (*next, *last_ts) = (next.next(), done.ts);
        }
        match appended.next() {
            Some(_) => Err("a commit told of more appends than its batch has".to_owned()),
            None => Ok(()),
        }
    }
}
