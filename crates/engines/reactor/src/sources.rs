//! Sources: handles with at least one watch, each registered with the poller once.

use std::collections::BTreeSet;
use std::mem;

use crate::handles::HandleNumber;
use crate::poller::{NotWatchable, Poller, Registration, SourceToken, Trigger};
use crate::readiness::Readiness;
use crate::slab::SlabKey;
use crate::watches::WatchTable;

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) handle: HandleNumber,
    pub(crate) kind: SourceKind,
    /// The last reported state. For a polled source, it is as old as the round in `round`.
    pub(crate) state: Readiness,
    /// The last round that reported this source.
    pub(crate) round: u64,
    /// Whether the source is in [`WatchTable::reported`].
    pub(crate) is_listed: bool,
    pub(crate) watches: BTreeSet<SlabKey>,
    /// How many watches ask for each bit, in the order of [`Readiness::BITS`].
    interest_counts: [usize; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    Polled,
    /// Polled, but edge-triggered: the handle is in a state (hup, error) that no watch asks for and that the operating
    /// system would report without end. Becomes level-triggered again when the handle's state or the interest changes.
    EdgePolled,
    Computed,
    /// The handle has ended. Its watches stay until UNWATCH and report nothing.
    Ended,
}

impl Source {
    fn new(handle: HandleNumber) -> Source {
        Source {
            handle,
            // `registered` sets the kind once the poller has accepted the handle.
            kind: SourceKind::Ended,
            state: Readiness::NONE,
            round: 0,
            is_listed: false,
            watches: BTreeSet::new(),
            interest_counts: [0; 4],
        }
    }

    /// Returns the combined interest of the watches on this handle.
    pub(crate) fn interest(&self) -> Readiness {
        let asked = Readiness::BITS.into_iter().zip(self.interest_counts).filter(|(_, count)| *count > 0);
        asked.fold(Readiness::NONE, |all, (bit, _)| all | bit)
    }

    pub(crate) fn count(&mut self, interest: Readiness, change: impl Fn(usize) -> usize) {
        for (bit, count) in Readiness::BITS.into_iter().zip(&mut self.interest_counts) {
            if interest.contains(bit) {
                *count = change(*count);
            }
        }
    }
}

impl WatchTable {
    /// Returns the source of a handle, registered with the interest of its watches and with `interest`.
    pub(crate) fn source_with(
        &mut self,
        handle: HandleNumber,
        interest: Readiness,
        poller: &mut impl Poller,
    ) -> Result<SlabKey, NotWatchable> {
        if let Some(&key) = self.by_handle.get(&handle) {
            let before = self.sources.get(key).map(Source::interest).unwrap_or_default();
            if before | interest != before {
                self.change_interest(key, before | interest, poller)?;
            }
            return Ok(key);
        }
        let key = self.sources.insert(Source::new(handle));
        match poller.register(handle, SourceToken::of(key), interest) {
            Err(error) => {
                self.sources.remove(key);
                Err(error)
            }
            Ok(registration) => {
                self.registered(key, registration);
                self.by_handle.insert(handle, key);
                Ok(key)
            }
        }
    }

    pub(crate) fn change_interest(
        &mut self,
        key: SlabKey,
        interest: Readiness,
        poller: &mut impl Poller,
    ) -> Result<(), NotWatchable> {
        let Some(source) = self.sources.get_mut(key) else { return Ok(()) };
        if source.kind == SourceKind::Ended {
            return Ok(());
        }
        poller.modify(source.handle, SourceToken::of(key), interest, Trigger::Level)?;
        if source.kind == SourceKind::EdgePolled {
            source.kind = SourceKind::Polled;
        }
        Ok(())
    }

    /// Makes the poller report a polled source in every round (level) or only when its state changes (edge). If the
    /// poller refuses, the trigger stays as it was. A source that stays edge-triggered is tried again at the next
    /// round, because otherwise no round would report it.
    pub(crate) fn change_trigger(&mut self, key: SlabKey, trigger: Trigger, poller: &mut impl Poller) {
        let Some(source) = self.sources.get_mut(key) else { return };
        let kind = match trigger {
            Trigger::Level => SourceKind::Polled,
            Trigger::Edge => SourceKind::EdgePolled,
        };
        if source.kind == kind {
            return;
        }
        match poller.modify(source.handle, SourceToken::of(key), source.interest(), trigger) {
            Ok(()) => source.kind = kind,
            Err(NotWatchable) if trigger == Trigger::Level => {
                self.refused.insert(key);
            }
            Err(NotWatchable) => {}
        }
    }

    /// Repeats the changes of registration that the poller has refused.
    pub(crate) fn retry_refused(&mut self, poller: &mut impl Poller) {
        for key in mem::take(&mut self.refused) {
            let Some(interest) = self.sources.get(key).map(Source::interest) else { continue };
            if self.change_interest(key, interest, poller).is_err() {
                self.refused.insert(key);
            }
        }
    }

    /// Removes a source without watches.
    pub(crate) fn drop_source(&mut self, key: SlabKey, poller: &mut impl Poller) {
        self.deregister(key, poller);
        let Some(source) = self.sources.remove(key) else { return };
        if source.kind != SourceKind::Ended {
            self.by_handle.remove(&source.handle);
            return;
        }
        if let Some(count) = self.ended.get_mut(&source.handle) {
            *count -= 1;
            if *count == 0 {
                self.ended.remove(&source.handle);
            }
        }
    }

    /// Tells the poller to forget a source. The caller removes the source or sets its kind.
    pub(crate) fn deregister(&mut self, key: SlabKey, poller: &mut impl Poller) {
        let Some(source) = self.sources.get(key) else { return };
        match source.kind {
            SourceKind::Polled | SourceKind::EdgePolled => self.polled -= 1,
            SourceKind::Computed => {}
            SourceKind::Ended => return,
        }
        poller.deregister(source.handle, SourceToken::of(key));
    }

    fn registered(&mut self, key: SlabKey, registration: Registration) {
        let Some(source) = self.sources.get_mut(key) else { return };
        match registration {
            Registration::Polled => {
                source.kind = SourceKind::Polled;
                self.polled += 1;
            }
            Registration::Computed { now } => {
                source.kind = SourceKind::Computed;
                source.state = now;
            }
        }
    }
}
