//! How far one group is in one stream: what it was sent, what it holds, what is done.
//!
//! Every offset below `read_next` is in exactly one place: in `fetched` (read, not sent), in `open` (sent or held back,
//! not done), or nowhere, which means done. So the commit is never stored while running: it is one less than the lowest
//! offset that is somewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_model::{AHEAD_MAX, AttemptRow, CursorRow, Event, Filter, Mono, Offset, Timestamp};

mod keyed;
mod writing;

pub(crate) use keyed::KeyQueues;
pub(crate) use writing::InFlush;

use crate::groups::sticky::KeyHash;
use crate::interface::input::{ConnId, Token};
use crate::interface::reply::ReplyTo;

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
    pub(crate) to_dead_letter: VecDeque<u64>,
    /// Every event up to here has left `fetched` or is done. In a sticky group some may be held back in `open`, unsent.
    pub(crate) sent_through: u64,
    /// The durable commit.
    pub(crate) durable: Offset,
    /// When `durable` was written; `None` if it was written by a version that did not record the time.
    pub(crate) durable_since: Option<Timestamp>,
    /// A read under way; its answer is ignored if the cursor was moved meanwhile.
    pub(crate) reading: Option<Token>,
    pub(crate) retry_at: Option<Mono>,
    /// How many reads of single events are under way (see `refetch` in `fetch.rs`).
    pub(crate) refetching: usize,
    /// History of offsets that are not read yet: from the store's rows, or from before `unfetch`.
    prior: Prior,
    /// Offsets whose row in the table of tries is out of date.
    tries_dirty: BTreeSet<u64>,
    tries_stored: BTreeSet<u64>,
    /// Events that are done, beyond the commit, only because a higher offset was acked. Their consumer may still refuse
    /// them.
    implicit: BTreeMap<u64, Implicit>,
    /// Something, such as an ack, is to be written as soon as possible.
    pub(crate) flush_now: bool,
    /// The cursor is to be written by this time: a delivery failed, or offsets were skipped.
    pub(crate) flush_at: Option<Mono>,
    pub(crate) flushing: Option<Token>,
    flushed: Option<CursorRow>,
    pub(crate) in_flush: InFlush,
    /// The store refused the last flush as too large: the next one is not tried before this time.
    pub(crate) refused_until: Option<Mono>,
    /// Set when the store refuses a flush as too large: each flush then takes as little as it can, until nothing is
    /// left.
    pub(crate) small_batches: bool,
    /// Requests that are answered when the next flush is durable.
    pub(crate) confirms: Vec<ReplyTo>,
    /// When this cursor is registered to be woken.
    pub(crate) wake: Option<Mono>,
    /// How many deliveries there were: each gets the next number.
    deliveries: u64,
    /// Order per key; `Some` while the group is sticky.
    pub(crate) keyed: Option<KeyQueues>,
}

/// State of an event that was acked by a higher offset, kept in case its consumer still refuses it.
#[derive(Clone, Copy, Debug)]
struct Implicit {
    by: ConnId,
    attempts: u32,
    key: Option<KeyHash>,
}

#[derive(Debug, Default)]
struct Prior {
    done: BTreeSet<u64>,
    tries: BTreeMap<u64, AttemptRow>,
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
    /// `None` when the event was dropped from memory and must be read again before it can be sent.
    pub(crate) event: Option<Arc<Event>>,
    /// Attempts so far, the delivery under way included.
    pub(crate) attempts: u32,
    pub(crate) state: OpenState,
    /// The number of the event's latest delivery.
    delivered: u64,
    /// The number of the oldest delivery that an ack of `last` may mean: its latest one, or an earlier one that timed
    /// out unanswered on the same connection.
    ackable: u64,
    /// The number of the newest delivery, of any offset, when this one was last refused.
    refused: u64,
    /// The latest delivery was refused or given back, so no ack can mean it any more.
    answered: bool,
    /// Why the last delivery failed, for the dead letter.
    pub(crate) reason: Option<String>,
    /// The connection that had the event last: another one is preferred. `None` = it was not delivered since the server
    /// started.
    pub(crate) last: Option<ConnId>,
    /// When the event may be sent again, in elapsed time. Stored with the attempts, so that the event also waits over a
    /// restart.
    pub(crate) not_before: Option<Timestamp>,
    /// The event's key, while the group is sticky. Always set for an event that was dropped from memory, because the
    /// group may become sticky later.
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
    /// The event's key belongs to a member that has no room. Listed in the cursor's `keyed`.
    Awaiting {
        member: ConnId,
    },
    Waiting {
        until: Mono,
    },
    /// To become a dead letter; listed in `to_dead_letter`.
    Burying,
    /// The event is being read again.
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

    /// Bytes of the event's body, if it is in memory.
    fn kept_bytes(&self) -> Option<usize> {
        self.event.as_ref().map(|event| event.body.bytes())
    }

    pub(crate) fn is_leased_to(&self, conn: ConnId) -> bool {
        matches!(self.state, OpenState::Leased { conn: holder, .. } if holder == conn)
    }

    /// Attempts that have ended. The delivery under way is not one before it fails.
    pub(crate) fn attempts_ended(&self) -> u32 {
        let under_way = matches!(self.state, OpenState::Leased { .. });
        self.attempts.saturating_sub(u32::from(under_way))
    }
}

impl Cursor {
    /// Returns a cursor that has done everything before `next`.
    pub(crate) fn at(next: Offset) -> Cursor {
        let next = next.0.max(1);
        Cursor { read_next: next, sent_through: next - 1, durable: Offset(next - 1), ..Cursor::default() }
    }

    /// Restores a cursor from its rows.
    pub(crate) fn restore(row: CursorRow, tries: BTreeMap<u64, AttemptRow>) -> Cursor {
        let committed = row.committed.0;
        let mut cursor = Cursor::at(row.committed.next());
        cursor.durable_since = row.updated;
        cursor.tries_stored = tries.keys().copied().collect();
        // A crash may have left rows of events that are done: the next flush deletes them.
        cursor.tries_dirty = tries.range(..=committed).map(|(offset, _)| *offset).collect();
        cursor.prior = Prior { done: row.ahead.iter().map(|bit| committed + 1 + bit).collect(), tries };
        cursor.flushed = Some(row);
        cursor
    }

    /// Moves the cursor and forgets its former state. Rows of tries are deleted by the next flush.
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

    /// Adds an event that was just read to `fetched`, unless the event is done already or the group's filter turned it
    /// away (`wanted` is false).
    pub(crate) fn take(&mut self, event: &Arc<Event>, wanted: bool) {
        let offset = event.offset.0;
        self.read_next = offset + 1;
        let known = self.prior.tries.remove(&offset);
        // Lower entries belong to events that are no longer in the log, so they are dropped too.
        let mut done = false;
        while let Some(first) = self.prior.done.first().copied().filter(|first| *first <= offset) {
            self.prior.done.remove(&first);
            done = first == offset;
        }
        if done || !wanted {
            self.tries_changed(offset);
            return;
        }
        let AttemptRow { attempts, not_before, reason } = known.unwrap_or_default();
        self.fetched_bytes += event.body.bytes();
        self.fetched.push_back(Fetched { event: event.clone(), attempts, not_before, reason });
    }

    /// Skips to `offset`, because the log has nothing below it any more. Returns how many offsets were never read.
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

    /// Drops the events that were read and not sent, as if they had not been read. Called when the group has no members
    /// left.
    pub(crate) fn unfetch(&mut self) {
        let Some(first) = self.fetched.front().map(|fetched| fetched.event.offset.0) else { return };
        // Beyond `end` nothing was acked. Offsets that were skipped there, perhaps far more than can be remembered, are
        // skipped again.
        let end = self.committed().0 + 1 + AHEAD_MAX;
        let mut done = first;
        for fetched in self.fetched.drain(..) {
            let offset = fetched.event.offset.0;
            self.prior.done.extend(done..offset.min(end));
            done = offset + 1;
            let Fetched { attempts, not_before, reason, .. } = fetched;
            if attempts != 0 || not_before.is_some() || reason.is_some() {
                self.prior.tries.insert(offset, AttemptRow { attempts, not_before, reason });
            }
        }
        self.prior.done.extend(done..self.read_next.min(end));
        self.fetched_bytes = 0;
        self.read_next = first;
        self.reading = None;
    }

    /// Applies a new filter: events that were read before, are not leased and do not match it count as done.
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

    /// Leases an event to a connection.
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

    /// Marks an event as done. Returns the connection that held it.
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

    /// Marks an event as done because its holder acked a higher offset. Returns that holder.
    pub(crate) fn complete_implicitly(&mut self, offset: u64, conn: ConnId) -> Option<ConnId> {
        let Open { attempts, key, .. } = *self.open.get(&offset)?;
        self.implicit.insert(offset, Implicit { by: conn, attempts, key });
        self.complete(offset)
    }

    /// Undoes an implicit completion that the commit has not passed. Returns false if there was none by this
    /// connection.
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

    /// Returns the connection's leases in offset order, with their deadlines.
    pub(crate) fn leased_to(&self, conn: ConnId) -> Vec<(u64, Mono)> {
        let leases = self.open.iter().filter_map(|(offset, open)| match open.state {
            OpenState::Leased { conn: holder, deadline } if holder == conn => Some((*offset, deadline)),
            _ => None,
        });
        leases.collect()
    }

    /// Returns the lower offsets that a cumulative ack of `offset` completes too: those that the connection holds and
    /// received before `offset`. Left out are events that were delivered again after `offset`, and events that were
    /// refused since `offset` was first delivered: the ack may have been sent before such an event came again.
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

    /// Records that the consumer could not handle the event (NACK).
    pub(crate) fn refuse(&mut self, offset: u64) {
        if let Some(open) = self.open.get_mut(&offset) {
            open.answered = true;
            open.refused = self.deliveries;
        }
    }

    /// Makes an event ready again without counting an attempt: the delivery under way reached nobody, or nobody worked
    /// on it.
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

    /// Gives back all leases when the server stops: a delivery that the server itself cut short is no attempt.
    pub(crate) fn give_back_all(&mut self) {
        let leased: Vec<u64> = self.leases().map(|(offset, _)| offset).collect();
        for offset in leased {
            self.give_back(offset);
        }
    }

    /// Returns the earliest moment at which a lease ends, a wait ends, or something must be written or read again.
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
