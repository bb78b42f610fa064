//! Everything that changes the readiness of sources: rounds of the operating system's poller, states computed by
//! capabilities, handles that end.

use std::mem;

use crate::handles::HandleNumber;
use crate::poller::{Coverage, Poller, SourceReport, SourceToken, Trigger};
use crate::readiness::Readiness;
use crate::slab::SlabKey;
use crate::sources::SourceKind;
use crate::watches::WatchTable;

impl WatchTable {
    /// Applies the reports of one round. After a round with [`Coverage::All`], exactly the polled sources that it
    /// reported are ready.
    pub(crate) fn observe(&mut self, reports: &[SourceReport], coverage: Coverage, poller: &mut impl Poller) {
        self.round += 1;
        self.retry_refused(poller);
        for report in reports {
            self.observe_one(report.token.key(), report.state, poller);
        }
        match coverage {
            Coverage::All => self.forget_unreported(),
            Coverage::Partial => self.compact_reported(),
        }
    }

    /// Applies a state that a capability has computed for its source.
    pub(crate) fn set_readiness(&mut self, token: SourceToken, state: Readiness) {
        let key = token.key();
        if self.sources.get(key).is_some_and(|source| source.kind == SourceKind::Computed) {
            self.set_state(key, state);
        }
    }

    /// The handle has ended: its watches stay, but report nothing any more.
    pub(crate) fn end_handle(&mut self, handle: HandleNumber, poller: &mut impl Poller) {
        let Some(key) = self.by_handle.remove(&handle) else { return };
        self.deregister(key, poller);
        self.set_state(key, Readiness::NONE);
        if let Some(source) = self.sources.get_mut(key) {
            source.kind = SourceKind::Ended;
            *self.ended.entry(handle).or_default() += 1;
        }
    }

    /// Applies one report. A late report about a source that is gone changes nothing.
    fn observe_one(&mut self, key: SlabKey, state: Readiness, poller: &mut impl Poller) {
        let Some(source) = self.sources.get_mut(key) else { return };
        if !matches!(source.kind, SourceKind::Polled | SourceKind::EdgePolled) {
            return;
        }
        source.round = self.round;
        if !mem::replace(&mut source.is_listed, true) {
            self.reported.push(key);
        }
        let is_asked_for = !state.reported_to(source.interest()).is_empty();
        let is_endless = !(state & (Readiness::HUP | Readiness::ERROR)).is_empty();
        if is_asked_for {
            self.change_trigger(key, Trigger::Level, poller);
        } else if is_endless {
            self.change_trigger(key, Trigger::Edge, poller);
        }
        self.set_state(key, state);
    }

    fn set_state(&mut self, key: SlabKey, state: Readiness) {
        let Some(source) = self.sources.get_mut(key) else { return };
        source.state = state;
        for key in &source.watches {
            self.examined += 1;
            if let Some(watch) = self.watches.get_mut(*key) {
                watch.follow(*key, state, &mut self.ready);
            }
        }
    }

    /// Sources that an earlier round reported and this one did not are no longer ready. Takes one step for each source
    /// reported since the last complete round.
    fn forget_unreported(&mut self) {
        let mut reported = mem::take(&mut self.reported);
        reported.retain(|key| {
            let Some(source) = self.sources.get_mut(*key) else { return false };
            source.is_listed = source.round == self.round;
            let stays = source.is_listed;
            if !stays {
                self.set_state(*key, Readiness::NONE);
            }
            stays
        });
        self.reported = reported;
    }

    /// Keeps the list of reported sources within about twice the number of sources, even if no round covers all.
    fn compact_reported(&mut self) {
        if self.reported.len() > 2 * self.sources.len() + 64 {
            self.reported.retain(|key| self.sources.get(*key).is_some());
        }
    }
}
