//! Setting the position of a group: at its first subscription, by a reset, by a seek.

use millrace_model::{Filter, Group, Now, Offset, Op, Partition, Space, TopicKey, keys};

use crate::bus::Bus;
use crate::delivery::flush::{ATTEMPTS_BYTES_MAX, ATTEMPTS_PER_BATCH_MAX};
use crate::groups::group::{CursorRef, GroupId};
use crate::groups::table::Located;
use crate::interface::effect::Effect;
use crate::interface::input::{ConnId, From};
use crate::interface::reply::{BusError, Reply, ReplyTo};
use crate::lifecycle::pending::{AfterSeek, PendingEffect, PendingSeek};

impl Bus {
    /// Moves a group of which no member holds events.
    pub(crate) fn seek_group(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        group: Group,
        partition: Option<Partition>,
        from: From,
    ) -> Result<(), BusError> {
        let id = self.topics.known(&topic)?;
        let Some(state) = self.topics.must(id, &self.broken) else {
            return Ok(());
        };
        let partitions = state.logs.len() as u32;
        if let Some(partition) = partition.filter(|partition| partition.0 >= partitions) {
            return Err(BusError::UnknownPartition { topic, partition, partitions });
        }
        let Some(at) = state.groups.get(&group).copied() else {
            return Err(BusError::UnknownGroup { topic, group });
        };
        let only = partition.map(|partition| partition.0);
        if self.groups.get(at).is_some_and(|state| !state.has_position || state.is_busy(only, None)) {
            return Err(BusError::GroupBusy { topic, group });
        }
        let cursors = (0..partitions).filter(|partition| only.is_none_or(|only| only == *partition));
        let cursors = cursors.map(|partition| CursorRef { group: at, partition }).collect();
        let then = AfterSeek::Answer { to };
        self.seek_cursors(now, PendingSeek { group: at, cursors, from, next: Vec::new(), then }, Vec::new());
        Ok(())
    }

    /// Determines the new positions of the cursors; for a point in time the store must be searched.
    pub(crate) fn seek_cursors(&mut self, now: Now, mut seek: PendingSeek, ops: Vec<Op>) {
        if let From::Timestamp(ts) = seek.from {
            let streams = seek
                .cursors
                .iter()
                .filter_map(|at| Some(self.groups.get(at.group)?.stream(at.partition)))
                .collect();
            let token = self.pending.begin(PendingEffect::Seek(seek));
            self.effects.push(Effect::Seek { token, streams, ts });
            // The topic's row must not wait for the answer: publishers already rely on it.
            if !ops.is_empty() {
                self.commit(now, self.limits.durability, ops, PendingEffect::Row);
            }
            return;
        }
        seek.next = seek.cursors.iter().map(|at| self.position(*at, seek.from)).collect();
        self.write_positions(now, seek, ops);
    }

    /// Clamped to what the log holds: a group never starts in the future, where events would be skipped.
    fn position(&self, at: CursorRef, from: From) -> Offset {
        let log = self
            .groups
            .get(at.group)
            .and_then(|group| self.topics.get(group.topic))
            .and_then(|topic| topic.logs.get(at.partition as usize));
        // The group may have been deleted while the store was searched.
        let Some(log) = log else { return Offset::FIRST };
        match from {
            From::Earliest => log.start,
            // No `clamp`, which panics if the bounds are the wrong way round.
            From::Offset(offset) => offset.min(log.next).max(log.start),
            From::Latest | From::Timestamp(_) => log.next,
        }
    }

    pub(crate) fn seek_found(&mut self, now: Now, mut seek: PendingSeek, found: Option<Vec<Offset>>) {
        let Some(found) = found else {
            return self.seek_failed(now, &seek);
        };
        let clamped = seek.cursors.iter().zip(found);
        seek.next = clamped.map(|(at, offset)| self.position(*at, From::Offset(offset))).collect();
        self.write_positions(now, seek, Vec::new());
    }

    /// Refuses the seek, because the store could not be read: no subscription is better than one in the wrong
    /// place.
    fn seek_failed(&mut self, now: Now, seek: &PendingSeek) {
        let reason = BusError::Unreadable("it could not be searched by time".to_owned());
        self.refuse_seek(now, seek, reason.clone());
        if self.groups.get(seek.group).is_some_and(|state| state.has_position) {
            return;
        }
        // The topic may have been deleted while the store was searched.
        let Some(state) = self.groups.remove(seek.group) else { return };
        self.totals.cursors_gone(state.made_by.as_ref(), state.cursors.len() as u64);
        if let Some(topic) = self.topics.get_mut(state.topic) {
            topic.groups.remove(&state.name);
        }
        for (to, subscribe) in state.waiters {
            self.refuse_join(to, &subscribe, reason.clone());
        }
    }

    fn refuse_seek(&mut self, now: Now, seek: &PendingSeek, error: BusError) {
        match &seek.then {
            AfterSeek::Join { to, subscribe } => {
                self.refuse_join(*to, subscribe, error);
                self.wake_waiters(now, seek.group);
            }
            AfterSeek::Answer { to } => self.refuse(*to, error),
        }
    }

    /// Continues subscriptions that had to wait for an earlier one.
    fn wake_waiters(&mut self, now: Now, group: GroupId) {
        let Some(state) = self.groups.get_mut(group).filter(|state| state.has_position) else { return };
        for (to, subscribe) in std::mem::take(&mut state.waiters) {
            if let Err(error) = self.subscribe_in_turn(now, to, subscribe.clone(), true) {
                self.refuse_join(to, &subscribe, error);
            }
        }
    }

    fn write_positions(&mut self, now: Now, seek: PendingSeek, mut ops: Vec<Op>) {
        let except = match &seek.then {
            AfterSeek::Join { to: ReplyTo::Conn { conn, .. }, .. } => Some(*conn),
            _ => None,
        };
        if let Some(refused) = self.busy_meanwhile(&seek, except) {
            return self.refuse_seek(now, &seek, refused);
        }
        if let AfterSeek::Join { subscribe, .. } = &seek.then {
            self.set_filter(seek.group, &subscribe.filter, &mut ops);
        }
        // All cursors of a seek belong to its group.
        let fetched_before = self.groups.fetched_bytes_of(seek.group);
        for (at, next) in seek.cursors.iter().zip(&seek.next) {
            // The group may have been deleted while the store was searched: see `seek_durable`.
            let Some(Located { topic, name, members, cursor, .. }) =
                self.groups.locate(&mut self.topics, *at)
            else {
                continue;
            };
            let stream = topic.key.stream(Partition(at.partition));
            let given_back: Vec<ConnId> = cursor.window.leases().map(|(_, lease)| lease.conn).collect();
            cursor.seek(*next);
            let rows_max = ATTEMPTS_PER_BATCH_MAX / seek.cursors.len().max(1);
            for (offset, _) in cursor.take_attempt_changes(rows_max, ATTEMPTS_BYTES_MAX) {
                let key = keys::attempt(&stream, name, Offset(offset));
                ops.push(Op::Delete { space: Space::Attempts, key });
            }
            let (row, _) = cursor.begin_row(now.wall);
            if cursor.has_attempt_changes() {
                cursor.flush.request();
                self.agenda.flush(*at);
            }
            ops.push(Op::Put {
                space: Space::Cursors,
                key: keys::cursor(&stream, name),
                value: row.encode(),
            });
            for conn in given_back {
                members.released(conn);
            }
            self.agenda.deliver(at.group);
        }
        self.groups.account_fetched(seek.group, fetched_before);
        self.commit(now, self.limits.durability, ops, PendingEffect::Seek(seek));
    }

    fn busy_meanwhile(&self, seek: &PendingSeek, except: Option<ConnId>) -> Option<BusError> {
        seek.cursors.iter().find_map(|at| {
            let group = self.groups.get(at.group)?;
            let busy = group.is_busy(Some(at.partition), except);
            busy.then(|| BusError::GroupBusy { topic: group.key.clone(), group: group.name.clone() })
        })
    }

    /// Called when the new position is durable: answers the seek, or lets the subscriber join.
    pub(crate) fn seek_durable(&mut self, now: Now, seek: PendingSeek) {
        for (at, next) in seek.cursors.iter().zip(&seek.next) {
            if let Some(cursor) = self.groups.cursor_mut(*at) {
                let since = cursor.flush.row_since();
                cursor.flush.set_durable(next.before(), since);
            }
            self.agenda.deliver(at.group);
        }
        let moved: Vec<_> =
            seek.cursors.iter().map(|at| Partition(at.partition)).zip(seek.next.iter().copied()).collect();
        let group = seek.group;
        let Some(state) = self.groups.get_mut(group) else {
            return self.refuse_seek(now, &seek, BusError::GroupGone);
        };
        match seek.then {
            AfterSeek::Answer { to } => {
                let (topic, group) = (state.key.clone(), state.name.clone());
                self.reply(to, Reply::Sought { topic, group, partitions: moved });
            }
            AfterSeek::Join { to, subscribe } => {
                state.has_position = true;
                self.join(now, to, group, &subscribe);
                self.wake_waiters(now, group);
            }
        }
    }

    fn set_filter(&mut self, group: GroupId, filter: &Filter, ops: &mut Vec<Op>) {
        let fetched_before = self.groups.fetched_bytes_of(group);
        // The group may have been deleted while the store was searched.
        let Some(state) = self.groups.get_mut(group) else { return };
        if state.filter != *filter {
            state.filter = filter.clone();
            for (cursor, partition) in state.cursors.iter_mut().zip(0..) {
                cursor.refilter(filter);
                self.agenda.flush(CursorRef { group, partition });
            }
        }
        let row = state.row();
        ops.push(Op::Put {
            space: Space::Groups,
            key: keys::group(&state.key, &state.name),
            value: row.encode(),
        });
        self.groups.account_fetched(group, fetched_before);
    }
}
