//! Joining and leaving a group.

use millrace_model::{Action, Group, Now, Op, Partition, TopicKey};

use crate::bus::Bus;
use crate::cursor::Cursor;
use crate::group::{CursorRef, GroupId, GroupState, Member};
use crate::input::{ConnId, From, Subscribe};
use crate::pending::{AfterPlacement, Placement};
use crate::reply::{BusError, Reply, ReplyTo};
use crate::sabotage::Sabotage;

impl Bus {
    pub(crate) fn subscribe(&mut self, now: Now, to: ReplyTo, subscribe: Subscribe) -> Result<(), BusError> {
        let ReplyTo::Conn { conn, .. } = to else {
            return Err(BusError::NeedsConnection);
        };
        let Some(connection) = self.conns.get(&conn) else {
            return Ok(());
        };
        let key = (subscribe.topic.clone(), subscribe.group.clone());
        let max = self.limits.subscriptions_per_connection_max;
        if !connection.subscriptions.contains_key(&key) && connection.subscriptions.len() >= max {
            return Err(BusError::LimitReached { what: "subscriptions per connection", max: max as u64 });
        }
        let window = subscribe.max_inflight.unwrap_or(self.limits.max_inflight);
        if window > self.limits.max_inflight_max {
            let (found, max) = (u64::from(window), u64::from(self.limits.max_inflight_max));
            return Err(BusError::OutOfRange { what: "max_inflight", found, max });
        }
        let mut ops = Vec::new();
        let topic = self.topic_or_create(&subscribe.topic, &mut ops)?;
        let known = self.topics.get(&topic).and_then(|topic| topic.groups.get(&subscribe.group)).copied();
        match known {
            Some(group) => self.subscribe_to_existing(now, to, conn, group, subscribe),
            None => self.subscribe_to_new(now, to, topic, subscribe, ops),
        }
    }

    fn subscribe_to_existing(
        &mut self,
        now: Now,
        to: ReplyTo,
        conn: ConnId,
        group: GroupId,
        subscribe: Subscribe,
    ) -> Result<(), BusError> {
        let Some(state) = self.groups.get_mut(&group) else {
            return Ok(());
        };
        let others = state.members.keys().filter(|member| **member != conn).count();
        let max = self.limits.members_per_group_max;
        if !state.members.contains_key(&conn) && others + state.waiters.len() >= max {
            return Err(BusError::LimitReached { what: "members per group", max: max as u64 });
        }
        if !state.placed {
            state.waiters.push((to, subscribe));
            return Ok(());
        }
        let (topic, name) = (state.key.clone(), state.name.clone());
        if state.filter != subscribe.filter && others > 0 {
            return Err(BusError::FilterConflict { topic, group: name, existing: state.filter.clone() });
        }
        if subscribe.reset {
            if state.is_busy(None, Some(conn)) {
                return Err(BusError::GroupBusy { topic, group: name });
            }
            let from = subscribe.from.unwrap_or(From::Latest);
            let partitions = state.cursors.len() as u32;
            let cursors = (0..partitions).map(|partition| CursorRef { group, partition }).collect();
            let then = AfterPlacement::Join { to, subscribe };
            self.place(now, Placement { group, cursors, from, next: Vec::new(), then }, Vec::new());
            return Ok(());
        }
        if state.filter != subscribe.filter {
            let then = AfterPlacement::Join { to, subscribe };
            let placement =
                Placement { group, cursors: Vec::new(), from: From::Latest, next: Vec::new(), then };
            self.place(now, placement, Vec::new());
            return Ok(());
        }
        self.join(to, group, &subscribe);
        Ok(())
    }

    fn subscribe_to_new(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: crate::topic::TopicId,
        subscribe: Subscribe,
        ops: Vec<Op>,
    ) -> Result<(), BusError> {
        let Some(state) = self.topics.get_mut(&topic) else {
            return Ok(());
        };
        let max = self.limits.groups_per_topic_max;
        if state.groups.len() >= max {
            return Err(BusError::LimitReached { what: "groups per topic", max: max as u64 });
        }
        self.groups_made += 1;
        let group = GroupId(self.groups_made);
        state.groups.insert(subscribe.group.clone(), group);
        let name = subscribe.group.clone();
        let mut made = GroupState::new(topic, state.key.clone(), name, subscribe.filter.clone(), now.wall);
        // Where they stand does not matter yet: nothing is delivered before the group is placed.
        made.cursors = state.logs.iter().map(|log| Cursor::at(log.next)).collect();
        self.groups.insert(group, made);
        let partitions = self.topics.get(&topic).map_or(0, |topic| topic.logs.len() as u32);
        let cursors = (0..partitions).map(|partition| CursorRef { group, partition }).collect();
        let from = subscribe.from.unwrap_or(From::Latest);
        let then = AfterPlacement::Join { to, subscribe };
        self.place(now, Placement { group, cursors, from, next: Vec::new(), then }, ops);
        Ok(())
    }

    pub(crate) fn join(&mut self, to: ReplyTo, group: GroupId, subscribe: &Subscribe) {
        let ReplyTo::Conn { conn, .. } = to else { return };
        // Again, because the topic's list may have changed while the group was placed.
        let by = self.conns.get(&conn).and_then(|connection| connection.by.as_deref());
        if let Err(error) = self.permit(by, Action::Subscribe, &subscribe.topic) {
            return self.refuse(to, error);
        }
        let Some(connection) = self.conns.get_mut(&conn) else {
            return;
        };
        let Some(state) = self.groups.get_mut(&group) else {
            return;
        };
        let window = subscribe.max_inflight.unwrap_or(self.limits.max_inflight).max(1);
        let inflight = state.members.get(&conn).map_or(0, |member| member.inflight);
        let newcomer =
            state.members.insert(conn, Member { window, inflight, ack_mode: subscribe.ack_mode }).is_none();
        connection.subscriptions.insert((subscribe.topic.clone(), subscribe.group.clone()), group);
        if let (true, Some(topic)) = (newcomer, self.topics.get_mut(&state.topic)) {
            topic.members += 1;
        }
        let partitions =
            state.cursors.iter().zip(0..).map(|(cursor, at)| (Partition(at), cursor.durable.next()));
        let reply = Reply::Subscribed {
            topic: subscribe.topic.clone(),
            group: subscribe.group.clone(),
            partitions: partitions.collect(),
        };
        self.to_pump.insert(group);
        self.reply(to, reply);
    }

    pub(crate) fn unsubscribe(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        group: Group,
    ) -> Result<(), BusError> {
        let ReplyTo::Conn { conn, .. } = to else {
            return Err(BusError::NeedsConnection);
        };
        let Some(connection) = self.conns.get_mut(&conn) else {
            return Ok(());
        };
        let Some(id) = connection.subscriptions.remove(&(topic.clone(), group.clone())) else {
            return Err(BusError::NotAMember { topic, group });
        };
        self.leave(now, conn, id);
        self.reply(to, Reply::Unsubscribed { topic, group });
        Ok(())
    }

    pub(crate) fn close(&mut self, now: Now, conn: ConnId) {
        let Some(connection) = self.conns.remove(&conn) else {
            return;
        };
        for group in connection.subscriptions.into_values() {
            self.leave(now, conn, group);
        }
    }

    /// What the member held is free at once, for anybody.
    pub(crate) fn leave(&mut self, now: Now, conn: ConnId, group: GroupId) {
        let keep = self.sabotaged(Sabotage::KeepLeasesOfClosed);
        let Some(state) = self.groups.get_mut(&group) else {
            return;
        };
        if state.members.remove(&conn).is_none() {
            return;
        }
        if let Some(topic) = self.topics.get_mut(&state.topic) {
            topic.members = topic.members.saturating_sub(1);
            if topic.members == 0 {
                self.tail_bytes -= topic.logs.iter_mut().map(crate::topic::Log::drop_tail).sum::<usize>();
            }
        }
        if keep {
            return;
        }
        let held: Vec<(u32, Vec<u64>)> = (0..)
            .zip(&state.cursors)
            .map(|(at, cursor)| (at, cursor.offsets_leased_to(conn, u64::MAX)))
            .collect();
        for (partition, offsets) in held {
            for offset in offsets {
                self.requeue(now, CursorRef { group, partition }, offset, "the connection closed", None);
            }
        }
        self.to_pump.insert(group);
    }

    pub(crate) fn set_congested(&mut self, conn: ConnId, congested: bool) {
        let Some(connection) = self.conns.get_mut(&conn) else {
            return;
        };
        connection.congested = congested;
        if !congested {
            self.to_pump.extend(connection.subscriptions.values());
        }
    }
}
