//! Reading events for a group: from the in-memory tail of the log if that reaches back far enough, else from the store.

use millrace_model::{Now, Offset, Partition, never};

use crate::bus::Bus;
use crate::groups::cursor::OpenState;
use crate::groups::group::CursorRef;
use crate::groups::sticky::KeyHash;
use crate::groups::table::Located;
use crate::interface::effect::Effect;
use crate::interface::input::{ReadOutcome, Token};
use crate::lifecycle::pending::PendingEffect;
use crate::topics::topic::TopicId;

/// Reading goes on when fewer than this many events wait to be sent.
const FETCHED_LOW: usize = 128;

impl Bus {
    /// Reads more events for a cursor. Does nothing while enough events wait to be sent, or a read is under way.
    pub(crate) fn fetch(&mut self, now: Now, at: CursorRef) {
        let limits = &self.limits;
        let over_total = self.groups.fetched_bytes() >= limits.fetched_bytes_total_max;
        let Some(Located { topic, filter, cursor, .. }) =
            self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return;
        };
        let Some(log) = topic.logs.get(at.partition as usize) else {
            never!(self.broken, "{at:?} has a cursor and no log");
            return;
        };
        let enough = cursor.read_ahead.is_full(limits) || cursor.read_ahead.len() >= FETCHED_LOW;
        if enough || (over_total && !cursor.read_ahead.is_empty()) || cursor.read_ahead.is_reading() {
            return;
        }
        let before = cursor.read_ahead.next();
        let skipped = cursor.skip_to(log.start.0);
        self.counters.skipped += skipped;
        let from = Offset(cursor.read_ahead.next());
        if from >= log.next || !cursor.may_send(from) {
            if skipped > 0 {
                self.flush_soon(now, at);
            }
            return;
        }
        let at_tail = log.tail_from(Offset(before)).map(|events| {
            for event in events {
                // Even beyond the total bound each cursor may hold one event, so that every group makes progress.
                if cursor.read_ahead.is_full(limits) || (over_total && !cursor.read_ahead.is_empty()) {
                    break;
                }
                let wanted = filter.is_empty() || filter.matches(event);
                self.counters.filtered += u64::from(!wanted);
                cursor.read(event, wanted);
            }
        });
        if at_tail.is_some() {
            return self.note_progress(now, at, before);
        }
        let (events_max, bytes_max) =
            (if over_total { 1 } else { limits.fetched_max }, limits.fetched_bytes_max);
        let stream = topic.key.stream(Partition(at.partition));
        let token = self.pending.begin(PendingEffect::Read { cursor: at });
        cursor.read_ahead.begin_page(token);
        if skipped > 0 {
            self.flush_soon(now, at);
        }
        self.effects.push(Effect::Read { token, stream, from, events_max, bytes_max });
    }

    /// Schedules a flush if a filter or a hole in the log skipped offsets: that moves the commit, which has to be
    /// written some time.
    fn note_progress(&mut self, now: Now, at: CursorRef, before: u64) {
        let Some(cursor) = self.groups.must_cursor_mut(at, &self.broken) else { return };
        let read = cursor.read_ahead.next() - before;
        if read > cursor.read_ahead.len() as u64 || cursor.read_ahead.is_empty() {
            self.flush_soon(now, at);
        }
    }

    fn flush_soon(&mut self, now: Now, at: CursorRef) {
        let flush_at = now.mono + self.limits.delivered_flush_ms;
        let Some(cursor) = self.groups.must_cursor_mut(at, &self.broken) else { return };
        if cursor.flush.due_at().is_none() {
            cursor.flush.request_by(flush_at);
            self.wake_at(at, flush_at);
        }
    }

    pub(crate) fn page(&mut self, now: Now, token: Token, page: ReadOutcome) {
        match self.pending.complete(token) {
            Some(PendingEffect::Read { cursor }) => self.page_read(now, token, cursor, page),
            Some(PendingEffect::Compact) => self.compaction_read(now, token, page),
            Some(PendingEffect::Refetch { cursor, offset }) => self.refetched(now, cursor, offset, page),
            Some(other) => never!(self.broken, "a page is the answer to {other:?}"),
            // Given up when the store failed.
            None => {}
        }
    }

    fn page_read(&mut self, now: Now, token: Token, at: CursorRef, page: ReadOutcome) {
        let retry_ms = self.limits.read_retry_ms;
        let fetched_before = self.groups.fetched_bytes_of(at.group);
        let Some(Located { filter, cursor, .. }) = self.groups.locate(&mut self.topics, at) else {
            return;
        };
        if !cursor.read_ahead.end_page(token) {
            return;
        }
        self.agenda.deliver(at.group);
        let Some(page) = page else {
            cursor.read_ahead.retry_page_at(now.mono + retry_ms);
            return self.wake_at(at, now.mono + retry_ms);
        };
        let before = cursor.read_ahead.next();
        for event in &page.events {
            let wanted = filter.is_empty() || filter.matches(event);
            self.counters.filtered += u64::from(!wanted);
            cursor.read(event, wanted);
        }
        cursor.skip_to(page.through.0 + 1);
        self.groups.account_fetched(at.group, fetched_before);
        self.note_progress(now, at, before);
    }

    /// Reads a single event again. Returns false when enough such reads are under way: the end of one of them wakes the
    /// group again.
    pub(crate) fn refetch(&mut self, at: CursorRef, offset: u64) -> bool {
        let Some(Located { topic, cursor, .. }) = self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return false;
        };
        if !cursor.begin_refetch(offset) {
            return false;
        }
        let stream = topic.key.stream(Partition(at.partition));
        let token = self.pending.begin(PendingEffect::Refetch { cursor: at, offset });
        let from = Offset(offset);
        self.effects.push(Effect::Read {
            token,
            stream,
            from,
            events_max: 1,
            bytes_max: self.limits.fetched_bytes_max,
        });
        true
    }

    fn refetched(&mut self, now: Now, at: CursorRef, offset: u64, page: ReadOutcome) {
        let (seed, retry_ms) = (self.seed, self.limits.read_retry_ms);
        self.agenda.deliver(at.group);
        let Some(Located { filter, cursor, .. }) = self.groups.locate(&mut self.topics, at) else { return };
        cursor.read_ahead.end_refetch();
        if cursor.window.get(offset).is_none_or(|open| open.state() != OpenState::Refetching) {
            return;
        }
        let Some(page) = page else {
            let until = now.mono + retry_ms;
            cursor.refetch_at(offset, until);
            return self.wake_at(at, until);
        };
        match page.events.into_iter().find(|event| event.offset.0 == offset) {
            // The filter may have changed while the body was not in memory.
            Some(event) if filter.is_empty() || filter.matches(&event) => {
                cursor.window.put_body(offset, event, |key| KeyHash::of(seed, key));
                self.requeue(now, at, offset, None, None);
            }
            found => {
                cursor.complete(offset);
                cursor.flush.request();
                self.agenda.flush(at);
                // An event that was not found was removed by retention.
                let count =
                    if found.is_some() { &mut self.counters.filtered } else { &mut self.counters.skipped };
                *count += 1;
            }
        }
    }

    /// Drops from the in-memory tails the events that every group at the tail has read.
    pub(crate) fn trim_tails(&mut self, topic: TopicId) {
        let Some((topic, tails)) = self.topics.with_tails(topic) else {
            never!(self.broken, "there is no topic {topic:?} to trim");
            return;
        };
        for (log, partition) in topic.logs.iter_mut().zip(0usize..) {
            let Some(first) = log.tail_start() else { continue };
            let groups = topic.groups.values().filter_map(|id| self.groups.get(*id));
            let at_tail = groups
                .filter(|group| !group.members.is_empty())
                .filter_map(|group| Some(group.cursors.get(partition)?.read_ahead.next()))
                .filter(|next| *next >= first);
            let needed = Offset(at_tail.min().unwrap_or(u64::MAX));
            log.trim_tail(needed, &self.limits, tails);
        }
    }
}
