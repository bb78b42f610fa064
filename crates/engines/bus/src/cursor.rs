//! How far one group is in one stream: what it was sent, what it holds, what is done.
//!
//! Every offset below `read_next` is in exactly one place: in `fetched` (read, not sent), in `open` (sent, not done),
//! or nowhere, which means done. So the commit is never stored while running: it is one less than the lowest offset
//! that is somewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_model::{AHEAD_MAX, CursorRow, Event, Filter, Mono, Offset, Timestamp, TryRow};

mod keyed;
mod writing;

pub(crate) use keyed::KeyQueues;
pub(crate) use writing::InFlush;

use crate::input::{ConnId, Token};
use crate::reply::ReplyTo;
use crate::sticky::KeyHash;

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
    /// When it was written, if that is known: rows from before this was kept do not say.
    pub(crate) durable_since: Option<Timestamp>,
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
    /// Done beyond the commit only because a higher offset was acked. Its consumer may still refuse it.
    implicit: BTreeMap<u64, Implicit>,
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
    /// How many deliveries there were: each gets the next number.
    deliveries: u64,
    /// While the group is sticky.
    pub(crate) keyed: Option<KeyQueues>,
}

/// What must be known of an event that was acked by a higher offset, should its consumer refuse it all the same.
#[derive(Clone, Copy, Debug)]
struct Implicit {
    by: ConnId,
    attempts: u32,
    key: Option<KeyHash>,
}

#[derive(Debug, Default)]
struct Prior {
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
    /// Attempts so far, the delivery under way included.
    pub(crate) attempts: u32,
    pub(crate) state: OpenState,
    /// The number of its latest delivery.
    delivered: u64,
    /// The number of the oldest delivery that an ack of `last` may mean: its latest one, or an earlier one that timed out
    /// unanswered on the same connection.
    ackable: u64,
    /// The number of the newest delivery, of any offset, when this one was last refused.
    refused: u64,
    /// The latest delivery was refused or given back, so no ack can mean it any more.
    answered: bool,
    /// Why the last delivery failed, for the dead letter.
    pub(crate) reason: Option<String>,
    /// Who had it last: somebody else is preferred. `None` = nobody yet, since the server started.
    pub(crate) last: Option<ConnId>,
    /// Persisted with the attempts when it has to wait over a restart.
    pub(crate) not_before: Option<Timestamp>,
    /// Its key, while the group is sticky. Of an event whose body was let go of always, because the group may become so.
    pub(crate) key: Option<KeyHash>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenState {
    Leased {
        conn: ConnId,
        deadline: Mono,
    },
    /// Listed in `ready`.
    Ready,
    /// Never sent, because a lower event of its key is unfinished.
    Parked,
    /// Its key belongs to a member that has no room. Listed in the cursor's `keyed`.
    Awaiting {
        member: ConnId,
    },
    Waiting {
        until: Mono,
    },
    /// Listed in `to_bury`.
    Burying,
    /// Its event is being read again.
    Refetching,
}

impl Open {
    pub(crate) fn new(event: Option<Arc<Event>>, attempts: u32, state: OpenState) -> Open {
        Open {
            event,
            attempts,
            state,
            delivered: 0,
            ackable: 0,
            refused: 0,
            answered: false,
            reason: None,
            last: None,
            not_before: None,
            key: None,
        }
    }

    pub(crate) fn from_fetched(fetched: Fetched, state: OpenState) -> Open {
        let Fetched { event, attempts, not_before, reason } = fetched;
        Open { reason, not_before, ..Open::new(Some(event), attempts, state) }
    }

    /// Of its body, if that is in memory.
    fn kept_bytes(&self) -> Option<usize> {
        self.event.as_ref().map(|event| event.body.bytes())
    }

    pub(crate) fn is_leased_to(&self, conn: ConnId) -> bool {
        matches!(self.state, OpenState::Leased { conn: holder, .. } if holder == conn)
    }

    /// Attempts that have ended. The delivery under way is none before it fails.
    pub(crate) fn attempts_ended(&self) -> u32 {
        let under_way = matches!(self.state, OpenState::Leased { .. });
        self.attempts.saturating_sub(u32::from(under_way))
    }
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
        cursor.durable_since = row.updated;
        cursor.tries_stored = tries.keys().copied().collect();
        // A crash may have left rows of what is done: the next flush deletes them.
        cursor.tries_dirty = tries.range(..=committed).map(|(offset, _)| *offset).collect();
        cursor.prior = Prior { done: row.ahead.iter().map(|bit| committed + 1 + bit).collect(), tries };
        cursor.flushed = Some(row);
        cursor
    }

    /// Forgets where it was. Rows of tries are deleted by the next flush.
    pub(crate) fn seek(&mut self, next: Offset) {
        let mut moved = Cursor::at(next);
        moved.durable = self.durable;
        moved.durable_since = self.durable_since;
        moved.tries_dirty = std::mem::take(&mut self.tries_stored);
        moved.tries_stored = moved.tries_dirty.clone();
        moved.confirms = std::mem::take(&mut self.confirms);
        moved.flushing = self.flushing;
        moved.wake = self.wake;
        moved.keyed = self.keyed.as_ref().map(|_| KeyQueues::default());
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
        let TryRow { attempts, not_before, reason } = known.unwrap_or_default();
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
            if attempts != 0 || not_before.is_some() || reason.is_some() {
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
            let free = matches!(
                open.state,
                OpenState::Ready | OpenState::Parked | OpenState::Awaiting { .. } | OpenState::Waiting { .. }
            );
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
        self.deliveries += 1;
        if let Some(open) = self.open.get(&offset).filter(|open| open.last.is_none()) {
            let kept = open.kept_bytes();
            self.count_sent(kept);
        }
        if let Some(open) = self.open.get_mut(&offset) {
            open.attempts += 1;
            open.state = OpenState::Leased { conn, deadline };
            open.delivered = self.deliveries;
            if open.answered || open.last != Some(conn) {
                open.ackable = self.deliveries;
            }
            open.answered = false;
            open.last = Some(conn);
            open.not_before = None;
            if self.tries_stored.contains(&offset) {
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
        self.free_key(offset, &open);
        match open.state {
            OpenState::Leased { conn, .. } => Some(conn),
            _ => None,
        }
    }

    /// Done because its holder acked a higher offset.
    pub(crate) fn complete_implicitly(&mut self, offset: u64, conn: ConnId) -> Option<ConnId> {
        let Open { attempts, key, .. } = *self.open.get(&offset)?;
        self.implicit.insert(offset, Implicit { by: conn, attempts, key });
        self.complete(offset)
    }

    /// Undoes an implicit completion that the commit has not passed. False if there was none by this connection.
    pub(crate) fn reopen(&mut self, offset: u64, conn: ConnId) -> bool {
        let Some(Implicit { attempts, key, .. }) =
            self.implicit.get(&offset).copied().filter(|done| done.by == conn)
        else {
            return false;
        };
        let open = Open { last: Some(conn), key, ..Open::new(None, attempts, OpenState::Ready) };
        self.requeue_key(offset, key);
        self.open.insert(offset, open);
        self.implicit.remove(&offset);
        true
    }

    pub(crate) fn tries_changed(&mut self, offset: u64) {
        if self.tries_stored.contains(&offset) || self.open.get(&offset).is_some_and(writing::needs_row) {
            self.tries_dirty.insert(offset);
        }
    }

    /// What the connection holds, in offset order, and until when.
    pub(crate) fn leased_to(&self, conn: ConnId) -> Vec<(u64, Mono)> {
        let leases = self.open.iter().filter_map(|(offset, open)| match open.state {
            OpenState::Leased { conn: holder, deadline } if holder == conn => Some((*offset, deadline)),
            _ => None,
        });
        leases.collect()
    }

    /// Lower offsets that a cumulative ack of `offset` completes too: those the connection holds and received before
    /// `offset`. An event that came again after it is not among them, nor one that was refused since `offset` was first
    /// delivered: the ack may have been sent before that event came again.
    pub(crate) fn completed_below(&self, offset: u64, conn: ConnId) -> Vec<u64> {
        let Some(acked) = self.open.get(&offset).filter(|open| open.is_leased_to(conn)) else {
            return Vec::new();
        };
        let lower = self.open.range(..offset);
        let completed = lower.filter(|(_, open)| {
            open.is_leased_to(conn) && open.delivered < acked.delivered && open.refused < acked.ackable
        });
        completed.map(|(offset, _)| *offset).collect()
    }

    /// The consumer says that it could not handle the event.
    pub(crate) fn refuse(&mut self, offset: u64) {
        if let Some(open) = self.open.get_mut(&offset) {
            open.answered = true;
            open.refused = self.deliveries;
        }
    }

    /// The delivery under way reached nobody, or nobody worked on it: it was no attempt.
    pub(crate) fn give_back(&mut self, offset: u64) {
        if let Some(open) = self.open.get_mut(&offset) {
            open.attempts = open.attempts.saturating_sub(1);
            open.state = OpenState::Ready;
            open.answered = true;
            self.ready.insert(offset);
            self.tries_changed(offset);
        }
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = (u64, ConnId)> + '_ {
        self.open.iter().filter_map(|(offset, open)| match open.state {
            OpenState::Leased { conn, .. } => Some((*offset, conn)),
            _ => None,
        })
    }

    /// A delivery that the server itself cut short does not count.
    pub(crate) fn give_back_all(&mut self) {
        let leased: Vec<u64> = self.leases().map(|(offset, _)| offset).collect();
        for offset in leased {
            self.give_back(offset);
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
