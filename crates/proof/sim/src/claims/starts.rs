//! Which runs have started, as the world saw it, compared with the attempts that rows count.

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::{Batch, ClaimRow, ClaimState, Done, FinishedRow, Op, RunMark, Space, Suspicion, keys};

use super::record::violation;
use super::verdict::place_of_claim;
use crate::check::Violation;

/// A process and which of its lives: it starts anew after every end.
pub(crate) type Life = (usize, u64);

#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// By place (`stream/offset/handler`): how often the handler was called.
    begun: BTreeMap<String, u32>,
    /// Runs of suspected events (decision 0034) whose mark became durable before they start. If the process dies in
    /// between, the run counts as an attempt.
    announced: BTreeMap<String, BTreeSet<Life>>,
    /// How many announced runs were lost before the handler was called, because their process died (see decision 0034).
    lost: BTreeMap<String, u32>,
    /// The attempts that the row of a place counted last.
    counted: BTreeMap<String, u32>,
    /// Runs whose handler was called, with the life that called it.
    called: BTreeSet<(Life, String)>,
    /// The mark in the open claim of a place.
    marks: BTreeMap<String, RunMark>,
}

impl Starts {
    /// A handler was called.
    pub(crate) fn began(&mut self, life: Life, place: String) {
        *self.begun.entry(place.clone()).or_default() += 1;
        self.forget(life, &place);
        self.called.insert((life, place));
    }

    fn forget(&mut self, life: Life, place: &str) {
        if let Some(lives) = self.announced.get_mut(place) {
            lives.remove(&life);
        }
    }

    fn announce(&mut self, life: Life, place: &str) {
        self.announced.entry(place.to_owned()).or_default().insert(life);
    }

    /// A batch of this life has become durable.
    pub(crate) fn applied(&mut self, life: Life, batch: &Batch, done: &Done) -> Result<(), Violation> {
        for op in &batch.ops {
            match op {
                Op::Put { space: Space::Claims, key, value } => {
                    if let (Some(place), Ok(row)) = (place_of_claim(key), ClaimRow::decode(key, value)) {
                        self.put(life, &place, &row)?;
                    }
                }
                Op::Put { space: Space::Finished, key, value } => {
                    if let Ok(row) = FinishedRow::decode(key, value) {
                        self.attempts(key, row.attempts)?;
                    }
                }
                _ => {}
            }
        }
        for claimed in &done.claimed {
            let ticket = &claimed.ticket;
            let place = keys::finished(&ticket.stream, ticket.offset, &ticket.handler);
            self.marks.insert(place.clone(), ticket.row.run);
            self.taken(&place, ticket.row.attempts);
            self.attempts(&place, ticket.row.attempts)?;
        }
        Ok(())
    }

    fn put(&mut self, life: Life, place: &str, row: &ClaimRow) -> Result<(), Violation> {
        let before = self.marks.insert(place.to_owned(), row.run).unwrap_or_default();
        self.counted.insert(place.to_owned(), row.attempts);
        if row.state == ClaimState::Waiting {
            self.forget(life, place);
        } else if row.run > RunMark::Claimed && before <= RunMark::Claimed {
            match row.suspicion {
                Suspicion::None if !self.called.contains(&(life, place.to_owned())) => {
                    let detail = format!("{place} is marked as started, and was not");
                    return Err(violation("attempts_are_runs", detail));
                }
                Suspicion::None => {}
                Suspicion::Possible | Suspicion::Likely => self.announce(life, place),
            }
        }
        self.attempts(place, row.attempts)
    }

    /// A claim of the place was made. If its attempts went up, a lease was lost; if a run of the place was announced,
    /// that run is the lost one and is taken off the list, so that it does not excuse another attempt when the same
    /// life claims the place again.
    fn taken(&mut self, place: &str, attempts: u32) {
        let before = self.counted.insert(place.to_owned(), attempts).unwrap_or_default();
        if attempts > before
            && let Some(lives) = self.announced.get_mut(place)
            && lives.pop_first().is_some()
        {
            *self.lost.entry(place.to_owned()).or_default() += 1;
        }
    }

    /// There are never more attempts than runs that were called, or were announced and killed before the call.
    fn attempts(&self, place: &str, attempts: u32) -> Result<(), Violation> {
        let begun = self.begun.get(place).copied().unwrap_or_default();
        let announced = self.announced.get(place).map_or(0, BTreeSet::len) as u32;
        let cut_short = announced + self.lost.get(place).copied().unwrap_or_default();
        if attempts > begun + cut_short {
            let detail = format!("{place} has {attempts} attempts, {begun} runs and {cut_short} cut short");
            return Err(violation("attempts_are_runs", detail));
        }
        Ok(())
    }
}
