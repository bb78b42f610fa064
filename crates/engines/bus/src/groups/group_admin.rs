//! Administration of the groups of a topic: listing them with their positions, and deleting one.

use millrace_model::{Group, Now, Offset, Op, Space, TopicKey, keys, never};

use crate::bus::Bus;
use crate::groups::group::{GroupId, GroupState};
use crate::interface::effect::Effect;
use crate::interface::reply::{BusError, GroupDetail, GroupView, GroupsView, Reply, ReplyTo};
use crate::lifecycle::pending::PendingEffect;
use crate::topics::topic::Topic;

/// Rows deleted by one batch; keys of the largest size then fill 4 MiB.
const DELETES_PER_BATCH_MAX: usize = 4096;

impl Bus {
    pub(crate) fn list_groups(&mut self, to: ReplyTo, topic: TopicKey) -> Result<(), BusError> {
        let id = self.topics.known(&topic)?;
        let Some(state) = self.topics.get(id) else {
            return Err(BusError::UnknownTopic(topic));
        };
        let groups = state.groups.values().filter_map(|id| self.groups.get(*id));
        // A group whose first position is not durable yet is not listed: no subscriber was promised it.
        let groups = groups.filter(|group| group.has_position).map(|group| detail(state, group)).collect();
        self.reply(to, Reply::Groups(GroupsView { topic, groups }));
        Ok(())
    }

    /// Deletes a group that has no members: a subscription must not lose its group.
    pub(crate) fn delete_group(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        group: Group,
    ) -> Result<(), BusError> {
        let topic_id = self.topics.known(&topic)?;
        let found = self.topics.get(topic_id).and_then(|state| state.groups.get(&group).copied());
        let Some((id, state)) = found.and_then(|id| Some((id, self.groups.get(id)?))) else {
            return Err(BusError::UnknownGroup { topic, group });
        };
        if !state.has_position || !state.members.is_empty() {
            // A group without a durable position has at least one subscriber waiting for it.
            let members = state.members.len().max(1);
            return Err(BusError::GroupHasMembers { topic, group, members });
        }
        if let Some(state) = self.topics.get_mut(topic_id) {
            state.groups.remove(&group);
        }
        let mut ops = Vec::new();
        self.forget_group(id, &BusError::GroupGone, &mut ops);
        let ops = self.commit_most(now, ops);
        self.commit(now, self.limits.durability, ops, PendingEffect::GroupDelete { to, topic, group });
        Ok(())
    }

    /// Commits all but the last batch's worth of deletions, and returns the rest.
    pub(crate) fn commit_most(&mut self, now: Now, mut ops: Vec<Op>) -> Vec<Op> {
        while ops.len() > DELETES_PER_BATCH_MAX {
            let rest = ops.split_off(DELETES_PER_BATCH_MAX);
            self.commit(now, self.limits.durability, std::mem::replace(&mut ops, rest), PendingEffect::Row);
        }
        ops
    }

    /// Removes a group. Adds the deletion of its rows to `ops`, and tells its members and waiting requests why
    /// (`gone`).
    pub(crate) fn forget_group(&mut self, id: GroupId, gone: &BusError, ops: &mut Vec<Op>) {
        let Some(group) = self.groups.remove(id) else {
            never!(self.broken, "there is no group {id:?} to remove");
            return;
        };
        self.totals.cursors_gone(group.made_by.as_ref(), group.cursors.len() as u64);
        for (cursor, partition) in group.cursors.iter().zip(0..) {
            let stream = group.stream(partition);
            ops.push(Op::Delete { space: Space::Cursors, key: keys::cursor(&stream, &group.name) });
            for offset in cursor.stored_attempts() {
                let key = keys::attempt(&stream, &group.name, Offset(offset));
                ops.push(Op::Delete { space: Space::Attempts, key });
            }
            for to in cursor.flush.confirms() {
                self.refuse(*to, gone.clone());
            }
        }
        // The group's row is deleted last: a crash between two batches leaves a group without some positions, never
        // positions without a group.
        ops.push(Op::Delete { space: Space::Groups, key: keys::group(&group.key, &group.name) });
        for (to, subscribe) in &group.waiters {
            self.refuse_join(*to, subscribe, gone.clone());
        }
        for (conn, member) in group.members.iter() {
            if let Some(connection) = self.conns.get_mut(conn) {
                self.totals.window_changed(connection.agent(), member.window(), 0);
                connection.unsubscribe(&(group.key.clone(), group.name.clone()));
                let (error, group) = (gone.clone(), Some(group.name.clone()));
                self.effects.push(Effect::Notice { conn, error, group });
            }
        }
    }
}

pub(super) fn detail(topic: &Topic, group: &GroupState) -> GroupDetail {
    let partitions = topic.bounds().zip(&group.cursors).map(|(log, cursor)| {
        let lag = log.next.before().0.saturating_sub(cursor.flush.durable().0);
        let inflight = cursor.window.leases().count() as u64;
        let (committed, updated) = (cursor.flush.durable(), cursor.flush.durable_since());
        (log.partition, GroupView { committed, updated, lag, inflight })
    });
    GroupDetail {
        group: group.name.clone(),
        members: group.members.len(),
        paused: group.paused,
        created: group.created,
        filter: group.filter.clone(),
        partitions: partitions.collect(),
    }
}
