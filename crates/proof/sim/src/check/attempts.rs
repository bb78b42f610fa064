//! Attempt counts are true. The count in a delivery is the durable count when the server started plus the sends since
//! then that were not given back. The count that becomes durable is no higher than the attempts that have ended, than
//! the sends that happened, and than the topic allows.

use millrace_model::{AttemptRow, CursorRow, Offset, Op, Space};

use super::Checker;
use crate::facts::{Facts, spot_of};
use crate::ledger::{cursor_rows, is_done};
use crate::place::Spot;
use crate::seen::Seen;

pub(super) struct Attempts;

impl Checker for Attempts {
    fn name(&self) -> &'static str {
        "attempts_true"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Delivered { group, event, attempts, .. } => {
                delivered(facts, &spot_of(group, event), event.offset, *attempts)
            }
            Seen::Wanted { batch, .. } => {
                for (spot, row) in cursor_rows(batch) {
                    let implied = |offset| says_nothing_else(batch, &spot, offset);
                    delivered_mark(facts, &spot, &row, implied)?;
                }
                for op in &batch.ops {
                    let Op::Put { space: Space::Attempts, key, value } = op else { continue };
                    let Some((spot, offset)) = Spot::parse_attempt(key) else { continue };
                    let claimed = AttemptRow::decode(key, value).map_or(0, |row| row.attempts);
                    let item = facts.traffic.item(&spot, offset);
                    let ended = item.map_or(0, |item| item.attempts_ended_max(facts.now_ms));
                    if claimed > ended {
                        return Err(format!(
                            "{spot} at {offset} has {claimed} durable attempts, {ended} have ended"
                        ));
                    }
                }
                Ok(())
            }
            Seen::Started => started(facts),
            _ => Ok(()),
        }
    }
}

fn delivered(facts: &Facts, spot: &Spot, offset: Offset, attempts: u32) -> Result<(), String> {
    let item = facts.traffic.item(spot, offset).cloned().unwrap_or_default();
    let (sends, this_life) = (item.sends, item.sends_this_life);
    let expected = facts.ledger_at_start.durable_attempts(spot, offset) + this_life + 1;
    let begun_anew = item.asked_back
        || item.miscounted
        || facts.traffic.moved.contains(&spot.seat)
        || facts.traffic.is_moving(&spot.seat);
    if attempts > sends + 1 || (attempts != expected && !begun_anew) {
        return Err(format!(
            "{spot} at {offset} says attempt {attempts}, it is {expected} ({} in all)",
            sends + 1
        ));
    }
    let max = facts.attempts_max(&spot.seat.topic);
    if attempts > max && !spot.seat.topic.is_dead_letter() {
        return Err(format!("{spot} at {offset} was delivered {attempts} times, {max} are allowed"));
    }
    Ok(())
}

fn says_nothing_else(batch: &millrace_model::Batch, spot: &Spot, offset: Offset) -> bool {
    !batch.ops.iter().any(|op| match op {
        Op::Put { space: Space::Attempts, key, .. } => {
            Spot::parse_attempt(key).as_ref() == Some(&(spot.clone(), offset))
        }
        _ => false,
    })
}

/// Every event up to the cursor's `delivered` mark counts as delivered once, unless the batch says otherwise about it:
/// so each of them must have been sent.
fn delivered_mark(
    facts: &Facts,
    spot: &Spot,
    new: &CursorRow,
    implied: impl Fn(Offset) -> bool,
) -> Result<(), String> {
    let old = facts.ledger.cursor(spot);
    let stream = spot.stream();
    let (start, next) = facts.ledger.bounds(&stream);
    if facts.traffic.is_moving(&spot.seat) {
        return Ok(());
    }
    let first = old.delivered.max(new.committed).max(start.before()).0 + 1;
    for offset in (first..=new.delivered.0).map(Offset).filter(|offset| *offset < next) {
        let sent = facts.traffic.item(spot, offset).is_some_and(|item| item.sends > 0);
        let known = facts.ledger.tries.contains_key(&(spot.clone(), offset)) || !implied(offset);
        let passed =
            is_done(new, offset) || facts.may_be_filtered(&spot.seat, facts.ledger.event(&stream, offset));
        if !(sent || known || passed) {
            return Err(format!("{spot} counts {offset} as delivered, it was never sent"));
        }
    }
    Ok(())
}

/// A server never starts with more attempts of an event than there were deliveries that count.
fn started(facts: &Facts) -> Result<(), String> {
    for (spot, items) in &facts.traffic.items {
        let row = facts.ledger.cursor(spot);
        for (offset, item) in items.iter().filter(|(offset, _)| !is_done(&row, **offset)) {
            let sends = item.sends.saturating_sub(item.given_back + u32::from(item.cut_short));
            let known = facts.ledger.durable_attempts(spot, *offset);
            if known > sends {
                return Err(format!(
                    "{spot} at {offset} starts with {known} attempts after {sends} sends that count"
                ));
            }
        }
    }
    Ok(())
}
