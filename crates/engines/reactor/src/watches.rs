//! The watch table: watches by id, the handles they are on, and the queue of watches that are ready.
//!
//! Each watched handle is registered with the poller once, as a *source* (`sources.rs`), whatever the number of watches
//! on it. `reports.rs` holds everything that changes the readiness of a source.

use std::collections::{BTreeMap, BTreeSet};

use crate::handles::HandleNumber;
use crate::messages::{PollEvent, RequestError, WatchId};
use crate::poller::Poller;
use crate::readiness::Readiness;
use crate::ready::{ReadyQueue, Ticket};
use crate::slab::{Slab, SlabKey};
use crate::sources::{Source, SourceKind};

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) id: WatchId,
    pub(crate) source: SlabKey,
    pub(crate) interest: Readiness,
    /// Set while the watch is in the ready queue.
    pub(crate) ticket: Option<Ticket>,
}

#[derive(Debug)]
pub(crate) struct WatchTable {
    pub(crate) watches: Slab<Watch>,
    pub(crate) by_id: BTreeMap<WatchId, SlabKey>,
    pub(crate) sources: Slab<Source>,
    /// Sources whose handle has not ended.
    pub(crate) by_handle: BTreeMap<HandleNumber, SlabKey>,
    /// By handle number: how many sources of ended handles with this number still have watches.
    pub(crate) ended: BTreeMap<HandleNumber, usize>,
    pub(crate) ready: ReadyQueue,
    pub(crate) round: u64,
    /// Polled sources that were reported since the last round with [`crate::Coverage::All`]. May hold keys of removed
    /// sources, which are skipped.
    pub(crate) reported: Vec<SlabKey>,
    /// Polled sources whose registration is outdated, because the poller refused to change it.
    pub(crate) refused: BTreeSet<SlabKey>,
    /// The number of sources that the operating system polls.
    pub(crate) polled: usize,
    /// How many watches were looked at by reports and deliveries: the work that readiness causes.
    pub(crate) examined: u64,
    watches_max: usize,
}

impl WatchTable {
    pub(crate) fn new(watches_max: usize) -> WatchTable {
        WatchTable {
            watches: Slab::new(),
            by_id: BTreeMap::new(),
            sources: Slab::new(),
            by_handle: BTreeMap::new(),
            ended: BTreeMap::new(),
            ready: ReadyQueue::default(),
            round: 0,
            reported: Vec::new(),
            refused: BTreeSet::new(),
            polled: 0,
            examined: 0,
            watches_max,
        }
    }

    pub(crate) fn add(
        &mut self,
        id: WatchId,
        handle: HandleNumber,
        interest: Readiness,
        poller: &mut impl Poller,
    ) -> Result<(), RequestError> {
        if self.by_id.contains_key(&id) {
            return Err(RequestError::WatchIdInUse);
        }
        let max = self.watches_max;
        if self.watches.len() >= max {
            return Err(RequestError::TooManyWatches { max });
        }
        let source = self.source_with(handle, interest, poller).map_err(|_| RequestError::NotWatchable)?;
        let watch = self.watches.insert(Watch { id, source, interest, ticket: None });
        self.by_id.insert(id, watch);
        let Some(source) = self.sources.get_mut(source) else { return Ok(()) };
        source.watches.insert(watch);
        source.count(interest, |count| count + 1);
        // The known state of a polled source may be outdated; the round of the next POLL reports it.
        if source.kind == SourceKind::Computed {
            self.enqueue(watch);
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: WatchId, poller: &mut impl Poller) -> Result<(), RequestError> {
        let key = self.by_id.remove(&id).ok_or(RequestError::UnknownWatch)?;
        let Some(watch) = self.watches.remove(key) else { return Ok(()) };
        if let Some(ticket) = watch.ticket {
            self.ready.remove(ticket);
        }
        let Some(source) = self.sources.get_mut(watch.source) else { return Ok(()) };
        let before = source.interest();
        source.watches.remove(&key);
        source.count(watch.interest, |count| count - 1);
        let is_unused = source.watches.is_empty();
        if is_unused {
            self.drop_source(watch.source, poller);
        } else if source.interest() != before {
            let after = source.interest();
            // A poller that fails here keeps reporting more than the watches ask for. No watch sees that, but it ends
            // waits.
            if self.change_interest(watch.source, after, poller).is_err() {
                self.refused.insert(watch.source);
            }
        }
        Ok(())
    }

    /// Takes the watch that has been ready for longest, and returns its event. `None`: no watch is ready.
    pub(crate) fn take_ready(&mut self) -> Option<PollEvent> {
        let key = self.ready.pop()?;
        self.examined += 1;
        let watch = self.watches.get_mut(key)?;
        watch.ticket = None;
        let source = self.sources.get(watch.source)?;
        let readiness = source.state.reported_to(watch.interest);
        let event = PollEvent::Ready { watch_id: watch.id, handle: source.handle.get(), readiness };
        if source.kind == SourceKind::Computed {
            watch.ticket = Some(self.ready.push(key));
        }
        Some(event)
    }

    /// Whether a watch is on this handle number, whether its handle is open or ended.
    pub(crate) fn watches_handle(&self, handle: HandleNumber) -> bool {
        self.by_handle.contains_key(&handle) || self.ended.contains_key(&handle)
    }

    pub(crate) fn clear(&mut self, poller: &mut impl Poller) {
        while let Some((_, source)) = self.by_handle.pop_first() {
            self.deregister(source, poller);
        }
        *self = WatchTable { examined: self.examined, ..WatchTable::new(self.watches_max) };
    }

    /// Puts a new watch into the ready queue if it has something to report.
    fn enqueue(&mut self, key: SlabKey) {
        let Some(watch) = self.watches.get_mut(key) else { return };
        let Some(source) = self.sources.get(watch.source) else { return };
        self.examined += 1;
        watch.follow(key, source.state, &mut self.ready);
    }
}

impl Watch {
    /// Updates the ready queue for a state of the handle: the watch is in the queue if it has something to report.
    pub(crate) fn follow(&mut self, key: SlabKey, state: Readiness, ready: &mut ReadyQueue) {
        let has_report = !state.reported_to(self.interest).is_empty();
        match self.ticket {
            None if has_report => self.ticket = Some(ready.push(key)),
            Some(ticket) if !has_report => {
                ready.remove(ticket);
                self.ticket = None;
            }
            _ => {}
        }
    }
}
