//! Reading events for a group: from the in-memory tail of the log if that reaches back far enough, else from the store.

use millrace_model::{Now, Offset};

use crate::bus::Bus;
use crate::groups::cursor::OpenState;
use crate::groups::group::{CursorRef, GroupState};
use crate::groups::sticky::KeyHash;
use crate::interface::effect::Effect;
use crate::interface::input::{ReadOutcome, Token};
use crate::lifecycle::pending::Pending;
use crate::topics::topic::TopicId;

/// Reading goes on when fewer than this many events wait to be sent.
const FETCHED_LOW: usize = 128;
/// Reads of single events that one cursor may have under way, for events that are to be sent and are no longer in
/// memory.
const REFETCHES_MAX: usize = 16;

impl Bus {
    /// Reads more events for a cursor. Does nothing while enough events wait to be sent, or a read is under way.
    pub(crate) fn fetch(&mut self, now: Now, at: CursorRef) {
        let limits = &self.limits;
        let crowded = self.fetched_bytes >= limits.fetched_bytes_total_max;
        let Some(group) = self.groups.get_mut(&at.group) else {
            return;
        };
        let Some(log) = self.topics.get(&group.topic).and_then(|topic| topic.logs.get(at.partition as usize))
        else {
            return;
        };
        let Some(cursor) = group.cursors.get_mut(at.partition as usize) else {
            return;
        };
        let enough = cursor.fetched.len() >= FETCHED_LOW.min(limits.fetched_max)
            || cursor.fetched_bytes >= limits.fetched_bytes_max;
        if enough
            || (crowded && !cursor.fetched.is_empty())
            || cursor.reading.is_some()
            || cursor.retry_at.is_some()
        {
            return;
        }
        let before = cursor.read_next;
        let skipped = cursor.skip_to(log.start.0);
        self.counters.skipped += skipped;
        let (log_next, may_read) = (log.next.0, cursor.may_send(Offset(cursor.read_next)));
        if cursor.read_next >= log_next || !may_read {
            if skipped > 0 {
                self.flush_soon(now, at);
            }
            return;
        }
        let at_tail = log.tail_from(Offset(before)).map(|events| {
            for event in events {
                let full = cursor.fetched.len() >= limits.fetched_max
                    || cursor.fetched_bytes >= limits.fetched_bytes_max;
                // Even beyond the total bound each cursor may hold one event, so that every group makes progress.
                if full || (crowded && !cursor.fetched.is_empty()) {
                    break;
                }
                let wanted = group.filter.is_empty() || group.filter.matches(event);
                self.counters.filtered += u64::from(!wanted);
                cursor.take(event, wanted);
            }
        });
        if at_tail.is_some() {
            return self.note_progress(now, at, before);
        }
        let from = Offset(cursor.read_next);
        let (events_max, bytes_max) =
            (if crowded { 1 } else { limits.fetched_max }, limits.fetched_bytes_max);
        let stream = group.stream(at.partition);
        let token = self.token();
        if skipped > 0 {
            self.flush_soon(now, at);
        }
        if let Some(cursor) = self.cursor_mut(at) {
            cursor.reading = Some(token);
        }
        self.pending.insert(token, Pending::Read { cursor: at });
        self.effects.push(Effect::Read { token, stream, from, events_max, bytes_max });
    }

    /// Schedules a flush if a filter or a hole in the log skipped offsets: that moves the commit, which has to be
    /// written some time.
    fn note_progress(&mut self, now: Now, at: CursorRef, before: u64) {
        let Some(cursor) = self.cursor_mut(at) else { return };
        if cursor.read_next - before > cursor.fetched.len() as u64 || cursor.fetched.is_empty() {
            self.flush_soon(now, at);
        }
    }

    fn flush_soon(&mut self, now: Now, at: CursorRef) {
        let flush_at = now.mono + self.limits.delivered_flush_ms;
        let Some(cursor) = self.cursor_mut(at) else { return };
        if cursor.flush_at.is_none() {
            cursor.flush_at = Some(flush_at);
            self.wake_at(at, flush_at);
        }
    }

    pub(crate) fn page(&mut self, now: Now, token: Token, page: ReadOutcome) {
        match self.pending.remove(&token) {
            Some(Pending::Read { cursor }) => self.page_read(now, token, cursor, page),
            Some(Pending::Compact) => self.compaction_read(now, token, page),
            Some(Pending::Refetch { cursor, offset }) => self.refetched(now, cursor, offset, page),
            _ => {}
        }
    }

    fn page_read(&mut self, now: Now, token: Token, at: CursorRef, page: ReadOutcome) {
        let retry_ms = self.limits.read_retry_ms;
        let fetched_before = self.groups.get(&at.group).map_or(0, GroupState::fetched_bytes);
        let Some(group) = self.groups.get_mut(&at.group) else {
            return;
        };
        let Some(cursor) = group.cursors.get_mut(at.partition as usize) else {
            return;
        };
        if cursor.reading != Some(token) {
            return;
        }
        cursor.reading = None;
        self.to_deliver.insert(at.group);
        let Some(page) = page else {
            cursor.retry_at = Some(now.mono + retry_ms);
            return self.wake_at(at, now.mono + retry_ms);
        };
        let before = cursor.read_next;
        for event in &page.events {
            let wanted = group.filter.is_empty() || group.filter.matches(event);
            self.counters.filtered += u64::from(!wanted);
            cursor.take(event, wanted);
        }
        cursor.skip_to(page.through.0 + 1);
        self.account_fetched(at.group, fetched_before);
        self.note_progress(now, at, before);
    }

    /// Reads a single event again. Returns false when enough such reads are under way: the end of one of them wakes the
    /// group again.
    pub(crate) fn refetch(&mut self, at: CursorRef, offset: u64) -> bool {
        if self.cursor_mut(at).is_none_or(|cursor| cursor.refetching >= REFETCHES_MAX) {
            return false;
        }
        let Some(stream) = self.groups.get(&at.group).map(|group| group.stream(at.partition)) else {
            return false;
        };
        let token = self.token();
        if let Some(cursor) = self.cursor_mut(at) {
            cursor.ready.remove(&offset);
            cursor.refetching += 1;
            if let Some(open) = cursor.open.get_mut(&offset) {
                open.state = OpenState::Refetching;
            }
        }
        self.pending.insert(token, Pending::Refetch { cursor: at, offset });
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
        self.to_deliver.insert(at.group);
        let Some(group) = self.groups.get_mut(&at.group) else { return };
        let filter = &group.filter;
        let Some(cursor) = group.cursors.get_mut(at.partition as usize) else { return };
        cursor.refetching = cursor.refetching.saturating_sub(1);
        let Some(open) = cursor.open.get_mut(&offset).filter(|open| open.state == OpenState::Refetching)
        else {
            return;
        };
        let Some(page) = page else {
            let until = now.mono + retry_ms;
            open.state = OpenState::Waiting { until };
            return self.wake_at(at, until);
        };
        match page.events.into_iter().find(|event| event.offset.0 == offset) {
            // The filter may have changed while the body was not in memory.
            Some(event) if filter.is_empty() || filter.matches(&event) => {
                cursor.take_again(offset, event, |key| KeyHash::of(seed, key));
                self.requeue(now, at, offset, None, None);
            }
            found => {
                cursor.complete(offset);
                cursor.flush_now = true;
                self.to_flush.insert(at);
                // An event that was not found was removed by retention.
                let count =
                    if found.is_some() { &mut self.counters.filtered } else { &mut self.counters.skipped };
                *count += 1;
            }
        }
    }

    /// Drops from the in-memory tails the events that every group at the tail has read.
    pub(crate) fn trim_tails(&mut self, topic: TopicId) {
        let Some(topic) = self.topics.get_mut(&topic) else { return };
        for (log, partition) in topic.logs.iter_mut().zip(0usize..) {
            let Some(first) = log.tail.front().map(|event| event.offset.0) else { continue };
            let groups = topic.groups.values().filter_map(|id| self.groups.get(id));
            let at_tail = groups
                .filter(|group| !group.members.is_empty())
                .filter_map(|group| Some(group.cursors.get(partition)?.read_next))
                .filter(|next| *next >= first);
            let needed = Offset(at_tail.min().unwrap_or(u64::MAX));
            self.tail_bytes -= log.tail_bytes;
            log.trim_tail(needed, &self.limits);
            self.tail_bytes += log.tail_bytes;
        }
    }
}
