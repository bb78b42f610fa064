//! The poller of one guest: reports late, in part, in any order, twice, and about handles that are no longer watched.

use std::collections::{BTreeMap, BTreeSet};

use millrace_reactor::{
    Coverage, HandleNumber, NotWatchable, Poller, Readiness, Registration, ScriptedPoller, SourceReport,
    SourceToken, Trigger,
};

use super::sabotage::{self, Sabotage};
use crate::dice::Dice;

/// How many tokens of ended registrations are kept: reports about handles that are gone name one of them.
const OLD_TOKENS_MAX: usize = 8;

/// Counts the openings of handles: a handle's number may be used again for another opening.
pub(super) type Opening = u64;

#[derive(Debug, Default)]
pub(super) struct WorldPoller {
    scripted: ScriptedPoller,
    /// The opening that each handle number stands for now.
    open: BTreeMap<HandleNumber, Opening>,
    /// The state of each open handle that is polled.
    states: BTreeMap<HandleNumber, Readiness>,
    registered: BTreeMap<SourceToken, (HandleNumber, Opening)>,
    /// Registrations that were made or changed since the last round.
    changed: BTreeSet<SourceToken>,
    /// A handle is reported once after each change of its registration, with bits that nobody asked for. The poller
    /// over `mio` does so, because `mio` cannot be asked for hup alone.
    reports_unasked: bool,
    used: BTreeSet<SourceToken>,
    old: Vec<SourceToken>,
    /// A token that was used for two registrations, which is an error.
    pub(super) used_twice: Option<SourceToken>,
    sabotage: Option<Sabotage>,
}

/// The reports of one call of the operating system.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) reports: Vec<SourceReport>,
    pub(super) coverage: Coverage,
}

impl WorldPoller {
    pub(super) fn new(reports_unasked: bool, sabotage: Option<Sabotage>) -> WorldPoller {
        WorldPoller { reports_unasked, sabotage, ..WorldPoller::default() }
    }

    pub(super) fn open(&mut self, handle: HandleNumber, opening: Opening, is_computed: bool) {
        self.open.insert(handle, opening);
        match is_computed {
            true => self.scripted.add_computed(handle, Readiness::NONE),
            false => {
                self.states.insert(handle, Readiness::NONE);
                self.scripted.add_polled(handle, Readiness::NONE);
            }
        }
    }

    pub(super) fn ended(&mut self, handle: HandleNumber) {
        self.open.remove(&handle);
        self.states.remove(&handle);
        self.scripted.remove(handle);
    }

    pub(super) fn set(&mut self, handle: HandleNumber, state: Readiness) -> Option<SourceToken> {
        self.states.entry(handle).and_modify(|known| *known = state);
        self.scripted.set(handle, state)
    }

    /// From now on refuses registrations and changes, or accepts them again.
    pub(super) fn fail(&mut self, is_failing: bool) {
        self.scripted.is_failing = is_failing;
        self.scripted.calls.clear();
    }

    pub(super) fn is_failing(&self) -> bool {
        self.scripted.is_failing
    }

    pub(super) fn registrations(&self) -> usize {
        self.scripted.len()
    }

    pub(super) fn registered(&self) -> impl Iterator<Item = (SourceToken, HandleNumber)> {
        self.registered.iter().map(|(token, (handle, _))| (*token, *handle))
    }

    /// Returns the opening that a report with this token is about; `None` if it is no longer watched.
    pub(super) fn opening(&self, token: SourceToken) -> Option<Opening> {
        self.registered.get(&token).map(|(_, opening)| *opening)
    }

    pub(super) fn round(&mut self, dice: &mut Dice, is_calm: bool) -> Round {
        let reports_max = if !is_calm && dice.chance(150) { dice.between(1, 3) as usize } else { usize::MAX };
        let (mut reports, coverage) = self.scripted.round(reports_max);
        if self.reports_unasked && coverage == Coverage::All {
            for token in std::mem::take(&mut self.changed) {
                let handle = self.registered.get(&token).map(|(handle, _)| handle);
                let state = handle.and_then(|handle| self.states.get(handle)).copied().unwrap_or_default();
                if !state.is_empty() && reports.iter().all(|report| report.token != token) {
                    reports.push(SourceReport { token, state });
                }
            }
        }
        if !is_calm && dice.chance(300) {
            if let Some(report) = dice.pick(&reports).copied() {
                reports.push(report);
            }
            if let Some(token) = dice.pick(&self.old).copied() {
                let state = Readiness::from_bits(dice.below(16) as u32).unwrap_or_default();
                reports.push(SourceReport { token, state });
            }
            for at in (1..reports.len()).rev() {
                reports.swap(at, dice.below(at as u64 + 1) as usize);
            }
        }
        Round { reports, coverage }
    }

    pub(super) fn old_token(&self, dice: &mut Dice) -> Option<SourceToken> {
        dice.pick(&self.old).copied()
    }
}

impl Poller for WorldPoller {
    fn register(
        &mut self,
        handle: HandleNumber,
        token: SourceToken,
        interest: Readiness,
    ) -> Result<Registration, NotWatchable> {
        let registration = self.scripted.register(handle, token, interest)?;
        if !self.used.insert(token) {
            self.used_twice = Some(token);
        }
        self.registered.insert(token, (handle, self.open.get(&handle).copied().unwrap_or_default()));
        self.changed.insert(token);
        Ok(registration)
    }

    fn modify(
        &mut self,
        handle: HandleNumber,
        token: SourceToken,
        interest: Readiness,
        trigger: Trigger,
    ) -> Result<(), NotWatchable> {
        let is_same = self.scripted.interest(handle) == Some(interest);
        let Some(trigger) = sabotage::trigger(self.sabotage, trigger, is_same) else { return Ok(()) };
        self.scripted.modify(handle, token, interest, trigger)?;
        self.changed.insert(token);
        Ok(())
    }

    fn deregister(&mut self, handle: HandleNumber, token: SourceToken) {
        self.scripted.deregister(handle, token);
        self.registered.remove(&token);
        if self.old.len() == OLD_TOKENS_MAX {
            self.old.remove(0);
        }
        self.old.push(token);
    }
}
