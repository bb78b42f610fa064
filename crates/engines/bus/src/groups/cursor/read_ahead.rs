//! Reading ahead: the events that one group has read from one stream and not sent yet, the read under way, and the
//! history of offsets that are still to be read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_model::{AttemptRow, Event, Filter, Mono, Timestamp};

use crate::groups::group::CursorRef;
use crate::interface::input::Token;
use crate::limits::BusLimits;

/// Reads of single events that one cursor may have under way, for events that are to be sent and are no longer in
/// memory.
const REFETCHES_MAX: usize = 16;

/// An event that was read and not sent, with its stored history.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) event: Arc<Event>,
    pub(crate) attempts: u32,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) reason: Option<String>,
}

impl Fetched {
    pub(crate) fn offset(&self) -> u64 {
        self.event.offset.0
    }
}

#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// The next offset to be read from the log.
    next: u64,
    fetched: VecDeque<Fetched>,
    bytes: usize,
    /// A read under way; its answer is ignored if the cursor was moved meanwhile.
    reading: Option<Token>,
    retry_at: Option<Mono>,
    /// How many reads of single events are under way (see `refetch` in `fetch.rs`).
    refetches: usize,
    /// History of offsets that are not read yet: from the store's rows, or from before `unread`.
    prior: Prior,
}

#[derive(Debug, Default)]
struct Prior {
    done: BTreeSet<u64>,
    attempts: BTreeMap<u64, AttemptRow>,
}

impl ReadAhead {
    pub(super) fn at(next: u64) -> ReadAhead {
        ReadAhead { next, ..ReadAhead::default() }
    }

    pub(super) fn restore(next: u64, done: BTreeSet<u64>, attempts: BTreeMap<u64, AttemptRow>) -> ReadAhead {
        ReadAhead { next, prior: Prior { done, attempts }, ..ReadAhead::default() }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.fetched.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fetched.is_empty()
    }

    pub(crate) fn first(&self) -> Option<&Fetched> {
        self.fetched.front()
    }

    /// Whether the event was read and not sent.
    pub(crate) fn has(&self, offset: u64) -> bool {
        self.fetched.binary_search_by_key(&offset, Fetched::offset).is_ok()
    }

    pub(super) fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        self.fetched.iter().map(Fetched::offset)
    }

    /// Whether so many events wait to be sent that reading pauses.
    pub(crate) fn is_full(&self, limits: &BusLimits) -> bool {
        self.fetched.len() >= limits.fetched_max || self.bytes >= limits.fetched_bytes_max
    }

    /// Whether a page is being read, or a read that failed is to be tried again later.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some() || self.retry_at.is_some()
    }

    pub(crate) fn begin_page(&mut self, token: Token) {
        self.reading = Some(token);
    }

    /// Ends the read under way. Returns false if `token` is not that read: the cursor was moved since it began.
    pub(crate) fn end_page(&mut self, token: Token) -> bool {
        let current = self.reading == Some(token);
        if current {
            self.reading = None;
        }
        current
    }

    pub(crate) fn retry_page_at(&mut self, when: Mono) {
        self.retry_at = Some(when);
    }

    pub(super) fn retry_at(&self) -> Option<Mono> {
        self.retry_at
    }

    /// Lets reading go on if the pause after a failed read is over.
    pub(super) fn wake(&mut self, now: Mono) {
        self.retry_at = self.retry_at.filter(|at| *at > now);
    }

    /// Counts a read of a single event. Returns false if enough of them are under way.
    pub(super) fn begin_refetch(&mut self) -> bool {
        let may = self.refetches < REFETCHES_MAX;
        self.refetches += usize::from(may);
        may
    }

    /// Ends a read of a single event, which may have begun before the cursor was moved and is then not counted.
    pub(crate) fn end_refetch(&mut self) {
        self.refetches = self.refetches.saturating_sub(1);
    }

    /// Adds an event that was just read, unless the event is done already or the group's filter turned it away
    /// (`wanted` is false). Returns whether it was added.
    pub(super) fn push(&mut self, event: &Arc<Event>, wanted: bool) -> bool {
        let offset = event.offset.0;
        self.next = offset + 1;
        let known = self.prior.attempts.remove(&offset);
        // Lower entries belong to events that are no longer in the log, so they are dropped too.
        let mut done = false;
        while let Some(first) = self.prior.done.first().copied().filter(|first| *first <= offset) {
            self.prior.done.remove(&first);
            done = first == offset;
        }
        if done || !wanted {
            return false;
        }
        let AttemptRow { attempts, not_before, reason } = known.unwrap_or_default();
        self.bytes += event.body.bytes();
        self.fetched.push_back(Fetched { event: event.clone(), attempts, not_before, reason });
        true
    }

    pub(super) fn pop(&mut self) -> Option<Fetched> {
        let fetched = self.fetched.pop_front()?;
        self.bytes -= fetched.event.body.bytes();
        Some(fetched)
    }

    /// Skips to `offset`. Returns how many offsets were never read, and those of them that had a history.
    pub(super) fn skip_to(&mut self, offset: u64) -> (u64, Vec<u64>) {
        let skipped = offset.saturating_sub(self.next);
        let mut gone = Vec::new();
        if skipped > 0 {
            self.next = offset;
            gone = self.prior.attempts.range(..offset).map(|(at, _)| *at).collect();
            for at in &gone {
                self.prior.attempts.remove(at);
            }
            self.prior.done = self.prior.done.split_off(&offset);
        }
        (skipped, gone)
    }

    /// Drops the events that were read and not sent, as if they had not been read. Offsets from `end` on are not
    /// remembered as done: nothing was acked there, and offsets that were skipped there, perhaps far more than can be
    /// remembered, are skipped again.
    pub(super) fn unread(&mut self, end: u64) {
        let Some(first) = self.fetched.front().map(Fetched::offset) else { return };
        let mut done = first;
        for fetched in self.fetched.drain(..) {
            let offset = fetched.offset();
            self.prior.done.extend(done..offset.min(end));
            done = offset + 1;
            let Fetched { attempts, not_before, reason, .. } = fetched;
            if attempts != 0 || not_before.is_some() || reason.is_some() {
                self.prior.attempts.insert(offset, AttemptRow { attempts, not_before, reason });
            }
        }
        self.prior.done.extend(done..self.next.min(end));
        self.bytes = 0;
        self.next = first;
        self.reading = None;
    }

    /// Drops the events that do not match a new filter, and forgets the read under way.
    pub(super) fn refilter(&mut self, filter: &Filter) {
        self.reading = None;
        self.fetched.retain(|fetched| filter.matches(&fetched.event));
        self.bytes = self.fetched.iter().map(|fetched| fetched.event.body.bytes()).sum();
    }

    /// The read of a page that is under way.
    pub(crate) fn token(&self) -> Option<Token> {
        self.reading
    }

    /// Checks the events read ahead: they lie above `sent`, the highest offset of the window.
    pub(super) fn check(&self, at: CursorRef, sent: u64) {
        let (mut bytes, mut last) = (0, sent);
        for fetched in &self.fetched {
            assert!(last < fetched.offset(), "offset {} of {at:?} is out of order", fetched.offset());
            last = fetched.offset();
            bytes += fetched.event.body.bytes();
        }
        assert!(last < self.next, "{at:?} has read offset {last} before {}", self.next);
        assert_eq!(self.bytes, bytes, "bytes that {at:?} has read ahead");
        let done = self.prior.done.first();
        assert!(done.is_none_or(|done| *done >= self.next), "{at:?} has read {done:?} and remembers it");
        assert!(self.refetches <= REFETCHES_MAX, "{at:?} reads too many single events");
    }

    /// Offsets that are not read yet and known to be done.
    pub(super) fn done_before_read(&self) -> impl Iterator<Item = u64> + '_ {
        self.prior.done.range(self.next..).copied()
    }
}
