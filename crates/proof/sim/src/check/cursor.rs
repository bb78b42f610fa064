//! A group's durable commit never passes an unfinished offset, and never moves back except by seek.

use std::collections::{BTreeMap, BTreeSet};

use millrace_bus::{Input, Request};
use millrace_model::{Batch, CursorRow, Offset, Op};

use super::Checker;
use super::dead_letter::dead_lettered;
use crate::facts::Facts;
use crate::ledger::{cursor_rows, dropped, is_done};
use crate::place::{Seat, Spot};
use crate::seen::Seen;
use crate::traffic::{Acked, seat_of};

/// A row is judged when the engine asks for its commit, against the row it asked for before: commits become durable in
/// the order they are asked for, so a row that is right then cannot become wrong later.
#[derive(Default)]
pub(super) struct Cursors {
    /// Groups for which a first position was asked for, until the server ends.
    beginning: BTreeSet<Seat>,
    wanted: BTreeMap<Spot, CursorRow>,
}

impl Checker for Cursors {
    fn name(&self) -> &'static str {
        "commit_passes_finished_only"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Told { input: Input::Request { request: Request::Subscribe(subscribe), .. } } => {
                let seat = seat_of(subscribe);
                if !facts.ledger.groups.contains_key(&seat) || facts.traffic.is_dropping(&seat.topic) {
                    self.beginning.insert(seat);
                }
            }
            Seen::Wanted { batch, .. } => {
                for topic in dropped(batch) {
                    self.wanted.retain(|spot, _| spot.seat.topic != *topic);
                }
                for (spot, row) in cursor_rows(batch) {
                    let begins =
                        self.beginning.contains(&spot.seat) && !facts.ledger.groups.contains_key(&spot.seat);
                    let old = self.wanted.insert(spot.clone(), row.clone());
                    if !begins && !facts.traffic.is_moving(&spot.seat) {
                        let old = old.unwrap_or_else(|| facts.ledger.cursor(&spot));
                        passes_finished_only(facts, batch, &spot, &old, &row)?;
                    }
                }
            }
            Seen::Ended { .. } => *self = Cursors::default(),
            _ => {}
        }
        Ok(())
    }
}

fn passes_finished_only(
    facts: &Facts,
    batch: &Batch,
    spot: &Spot,
    old: &CursorRow,
    new: &CursorRow,
) -> Result<(), String> {
    if new.committed < old.committed {
        return Err(format!("{spot} moved back from {} to {} without a seek", old.committed, new.committed));
    }
    let ahead = new.ahead.iter().map(|bit| new.committed.0 + 1 + bit);
    for offset in (old.committed.0 + 1..=new.committed.0).chain(ahead).map(Offset) {
        if !is_done(old, offset) {
            is_finished(facts, batch, spot, offset)?;
        }
    }
    let forgotten = old.ahead.iter().map(|bit| Offset(old.committed.0 + 1 + bit)).find(|offset| {
        let asked_back = facts.traffic.item(spot, *offset).is_some_and(|item| item.asked_back);
        let event = facts.ledger.event(&spot.stream(), *offset);
        !is_done(new, *offset) && !asked_back && !facts.may_be_filtered(&spot.seat, event)
    });
    forgotten.map_or(Ok(()), |offset| Err(format!("{spot} forgot that {offset} was acked")))
}

fn is_finished(facts: &Facts, batch: &Batch, spot: &Spot, offset: Offset) -> Result<(), String> {
    let stream = spot.stream();
    let trimmed_to = batch.ops.iter().filter_map(|op| match op {
        Op::Trim { stream: of, start } if *of == stream => Some(*start),
        _ => None,
    });
    let (start, next) = facts.ledger.bounds(&stream);
    let start = trimmed_to.fold(start, Offset::max);
    if offset >= next {
        return Err(format!("{spot} has {offset} done, which is beyond the tail"));
    }
    let event = facts.ledger.event(&stream, offset);
    let acked = facts.traffic.item(spot, offset).is_some_and(|item| item.acked != Acked::No);
    let finished = acked
        || offset < start
        || facts.may_be_filtered(&spot.seat, event)
        || dead_lettered(batch, spot).any(|letter| letter == offset);
    finished.then_some(()).ok_or(format!("{spot} has {offset} done, which nobody acked or dead-lettered"))
}
