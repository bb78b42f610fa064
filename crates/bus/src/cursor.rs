//! How far one group is in one stream: what it was sent, what it holds, what is done.
//!
//! Every offset below `read_next` is in exactly one place: in `fetched` (read, not sent), in `open` (sent, not done),
//! or nowhere, which means done. So the commit is never stored while running: it is one less than the lowest offset
//! that is somewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_model::{AHEAD_MAX, CursorRow, Event, Filter, Mono, Offset, Timestamp, TryRow};

mod writing;

pub(crate) use writing::InFlush;

use crate::input::{ConnId, Token};
use crate::reply::ReplyTo;

#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The next offset to be read from the log.
    pub(crate) read_next: u64,
    pub(crate) fetched: VecDeque<Fetched>,
    pub(crate) fetched_bytes: usize,
    pub(crate) open: BTreeMap<u64, Open>,
    /// Offsets in `open` that may be sent again now.
    pub(crate) ready: BTreeSet<u64>,
    /// Offsets in `open` that the next flush turns into dead letters.
    pub(crate) to_bury: VecDeque<u64>,
    /// Everything up to here was sent at least once or is done.
    pub(crate) sent_through: u64,
    /// The durable commit.
    pub(crate) durable: Offset,
    /// A read under way; its answer is ignored if the cursor was moved meanwhile.
    pub(crate) reading: Option<Token>,
    pub(crate) retry_at: Option<Mono>,
    /// Single events being read again.
    pub(crate) refetching: usize,
    /// From before a restart, for offsets that were not read again yet.
    prior: Prior,
    /// Offsets whose row in the table of tries is out of date.
    tries_dirty: BTreeSet<u64>,
    tries_stored: BTreeSet<u64>,
    /// Done beyond the commit only because a higher offset was acked: by whom, and after how many attempts. Its
    /// consumer may still refuse it.
    implicit: BTreeMap<u64, (ConnId, u32)>,
    /// An ack wants to be durable.
    pub(crate) flush_now: bool,
    /// A delivery wants to be written down by then.
    pub(crate) flush_at: Option<Mono>,
    pub(crate) flushing: Option<Token>,
    flushed: Option<CursorRow>,
    pub(crate) in_flush: InFlush,
    /// The store refused the last flush as too large: no other one before this.
    pub(crate) refused_until: Option<Mono>,
    /// Since then each flush takes as little as it can, until nothing is left.
    pub(crate) cautious: bool,
    /// Who is told when the next flush is durable.
    pub(crate) confirms: Vec<ReplyTo>,
    /// When this cursor is registered to be woken.
    pub(crate) wake: Option<Mono>,
}

#[derive(Debug, Default)]
struct Prior {
    delivered: u64,
    done: BTreeSet<u64>,
    tries: BTreeMap<u64, TryRow>,
}

#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) event: Arc<Event>,
    pub(crate) attempts: u32,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) reason: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Open {
    /// Absent when the event was let go of and must be read again before it can be sent.
    pub(crate) event: Option<Arc<Event>>,
    /// Deliveries so far, the one under way included.
    pub(crate) attempts: u32,
    pub(crate) state: OpenState,
    /// Why the last delivery failed, for the dead letter.
    pub(crate) reason: Option<String>,
    /// Who had it last: somebody else is preferred.
    pub(crate) last: Option<ConnId>,
    /// Persisted with the attempts when it has to wait over a restart.
    pub(crate) not_before: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenState {
    Leased {
        conn: ConnId,
        deadline: Mono,
    },
    /// Listed in `ready`.
    Ready,
    Waiting {
        until: Mono,
    },
    /// Listed in `to_bury`.
    Burying,
    /// Its event is being read again.
    Refetching,
}

impl Cursor {
    /// A cursor that has done everything before `next`.
    pub(crate) fn at(next: Offset) -> Cursor {
        let next = next.0.max(1);
        Cursor { read_next: next, sent_through: next - 1, durable: Offset(next - 1), ..Cursor::default() }
    }

    /// As it was when the store was last written.
    pub(crate) fn restore(row: CursorRow, tries: BTreeMap<u64, TryRow>) -> Cursor {
        let committed = row.committed.0;
        let mut cursor = Cursor::at(row.committed.next());
        cursor.tries_stored = tries.keys().copied().collect();
        // A crash may have left rows of what is done: the next flush deletes them.
        cursor.tries_dirty = tries.range(..=committed).map(|(offset, _)| *offset).collect();
        cursor.prior = Prior {
            delivered: row.delivered.0,
            done: row.ahead.iter().map(|bit| committed + 1 + bit).collect(),
            tries,
        };
        cursor.flushed = Some(row);
        cursor
    }

    /// Forgets where it was. Rows of tries are deleted by the next flush.
    pub(crate) fn seek(&mut self, next: Offset) {
        let mut moved = Cursor::at(next);
        moved.durable = self.durable;
        moved.tries_dirty = std::mem::take(&mut self.tries_stored);
        moved.tries_stored = moved.tries_dirty.clone();
        moved.confirms = std::mem::take(&mut self.confirms);
        moved.flushing = self.flushing;
        moved.wake = self.wake;
        *self = moved;
    }

    pub(crate) fn committed(&self) -> Offset {
        let lowest = self.open.first_key_value().map_or(self.read_next, |(offset, _)| *offset);
        let lowest = self.fetched.front().map_or(lowest, |fetched| lowest.min(fetched.event.offset.0));
        Offset(lowest.min(self.read_next) - 1)
    }

    /// Whether another fresh event may be sent without passing the bound on acks ahead of the commit.
    pub(crate) fn may_send(&self, offset: Offset) -> bool {
        offset.0 <= self.committed().0 + AHEAD_MAX
    }

    /// Takes an event that was just read, unless it is done already or `wanted` turns it away.
    pub(crate) fn take(&mut self, event: &Arc<Event>, wanted: bool) {
        let offset = event.offset.0;
        self.read_next = offset + 1;
        let known = self.prior.tries.remove(&offset);
        // What lies below is not there to be read any more.
        let mut done = false;
        while let Some(first) = self.prior.done.first().copied().filter(|first| *first <= offset) {
            self.prior.done.remove(&first);
            done = first == offset;
        }
        if done || !wanted {
            self.tries_changed(offset);
            return;
        }
        let (attempts, not_before, reason) = match known {
            Some(row) => (row.attempts, row.not_before, row.reason),
            None => (u32::from(offset <= self.prior.delivered), None, None),
        };
        self.fetched_bytes += event.body.bytes();
        self.fetched.push_back(Fetched { event: event.clone(), attempts, not_before, reason });
    }

    /// The log has nothing below `offset` any more. Answers how many offsets were never looked at.
    pub(crate) fn skip_to(&mut self, offset: u64) -> u64 {
        let skipped = offset.saturating_sub(self.read_next);
        if skipped > 0 {
            self.read_next = offset;
            let gone: Vec<u64> = self.prior.tries.range(..offset).map(|(at, _)| *at).collect();
            for at in gone {
                self.prior.tries.remove(&at);
                self.tries_changed(at);
            }
            self.prior.done = self.prior.done.split_off(&offset);
        }
        skipped
    }

    /// Lets go of what was read and not sent, as if it had not been read: nobody is there to take it.
    pub(crate) fn unfetch(&mut self) {
        let Some(first) = self.fetched.front().map(|fetched| fetched.event.offset.0) else { return };
        // Beyond this nothing was acked: what was skipped there, perhaps far more than can be remembered, is skipped
        // again.
        let end = self.committed().0 + 1 + AHEAD_MAX;
        let mut done = first;
        for fetched in self.fetched.drain(..) {
            let offset = fetched.event.offset.0;
            self.prior.done.extend(done..offset.min(end));
            done = offset + 1;
            let Fetched { attempts, not_before, reason, .. } = fetched;
            if attempts != u32::from(offset <= self.prior.delivered)
                || not_before.is_some()
                || reason.is_some()
            {
                self.prior.tries.insert(offset, TryRow { attempts, not_before, reason });
            }
        }
        self.prior.done.extend(done..self.read_next.min(end));
        self.fetched_bytes = 0;
        self.read_next = first;
        self.reading = None;
    }

    /// What was read under another filter and is in nobody's hands is done if the new one does not want it.
    pub(crate) fn refilter(&mut self, filter: &Filter) {
        self.reading = None;
        self.fetched.retain(|fetched| filter.matches(&fetched.event));
        self.fetched_bytes = self.fetched.iter().map(|fetched| fetched.event.body.bytes()).sum();
        let unwanted = |open: &Open| {
            let free = matches!(open.state, OpenState::Ready | OpenState::Waiting { .. });
            free && open.event.as_ref().is_some_and(|event| !filter.matches(event))
        };
        let gone: Vec<u64> =
            self.open.iter().filter(|(_, open)| unwanted(open)).map(|(offset, _)| *offset).collect();
        for offset in gone {
            self.complete(offset);
        }
        self.flush_now = true;
    }

    pub(crate) fn pop_fetched(&mut self) -> Option<Fetched> {
        let fetched = self.fetched.pop_front()?;
        self.fetched_bytes -= fetched.event.body.bytes();
        self.sent_through = self.sent_through.max(fetched.event.offset.0);
        Some(fetched)
    }

    /// Puts an event in somebody's hands.
    pub(crate) fn lease(&mut self, offset: u64, conn: ConnId, deadline: Mono) {
        if let Some(open) = self.open.get_mut(&offset) {
            open.attempts += 1;
            open.state = OpenState::Leased { conn, deadline };
            open.last = Some(conn);
            open.not_before = None;
            if open.attempts >= 2 || self.tries_stored.contains(&offset) {
                self.tries_dirty.insert(offset);
            }
        }
        self.ready.remove(&offset);
    }

    /// Done. Answers who held it.
    pub(crate) fn complete(&mut self, offset: u64) -> Option<ConnId> {
        let open = self.open.remove(&offset)?;
        self.ready.remove(&offset);
        self.tries_changed(offset);
        match open.state {
            OpenState::Leased { conn, .. } => Some(conn),
            _ => None,
        }
    }

    /// Done because its holder acked a higher offset.
    pub(crate) fn complete_implicitly(&mut self, offset: u64, conn: ConnId) -> Option<ConnId> {
        let attempts = self.open.get(&offset)?.attempts;
        self.implicit.insert(offset, (conn, attempts));
        self.complete(offset)
    }

    /// Undoes an implicit completion that the commit has not passed. False if there was none by this connection.
    pub(crate) fn reopen(&mut self, offset: u64, conn: ConnId) -> bool {
        match self.implicit.get(&offset) {
            Some((by, attempts)) if *by == conn => {
                let (attempts, state) = (*attempts, OpenState::Ready);
                let open = Open { event: None, attempts, state, reason: None, last: None, not_before: None };
                self.open.insert(offset, open);
                self.implicit.remove(&offset);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn tries_changed(&mut self, offset: u64) {
        if self.tries_stored.contains(&offset) || self.open.get(&offset).is_some_and(writing::needs_row) {
            self.tries_dirty.insert(offset);
        }
    }

    pub(crate) fn offsets_leased_to(&self, conn: ConnId, below: u64) -> Vec<u64> {
        self.open
            .range(..below)
            .filter(
                |(_, open)| matches!(open.state, OpenState::Leased { conn: holder, .. } if holder == conn),
            )
            .map(|(offset, _)| *offset)
            .collect()
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = (u64, ConnId)> + '_ {
        self.open.iter().filter_map(|(offset, open)| match open.state {
            OpenState::Leased { conn, .. } => Some((*offset, conn)),
            _ => None,
        })
    }

    /// A delivery that the server itself cut short does not count.
    pub(crate) fn uncount_leases(&mut self) {
        let leased: Vec<u64> = self.leases().map(|(offset, _)| offset).collect();
        for offset in leased {
            if let Some(open) = self.open.get_mut(&offset) {
                open.attempts = open.attempts.saturating_sub(1);
                open.state = OpenState::Ready;
                self.ready.insert(offset);
                self.tries_dirty.insert(offset);
            }
        }
    }

    /// The earliest moment at which a lease ends, a wait ends, or something must be written or read again.
    pub(crate) fn next_wake(&self) -> Option<Mono> {
        let open = self.open.values().filter_map(|open| match open.state {
            OpenState::Leased { deadline, .. } => Some(deadline),
            OpenState::Waiting { until } => Some(until),
            _ => None,
        });
        let flush = self.flush_at.filter(|_| self.flushing.is_none());
        open.chain(flush).chain(self.refused_until).chain(self.retry_at).min()
    }
}
