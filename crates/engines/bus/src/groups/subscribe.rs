//! Joining and leaving a group.

use millrace_model::{Actor, Group, Mono, Now, Op, Partition, TopicKey, never};

use crate::bus::Bus;
use crate::delivery::dead_letter::{DISCONNECTED, TIMED_OUT};
use crate::groups::connection::Connection;
use crate::groups::cursor::Cursor;
use crate::groups::group::{CursorRef, GroupId, GroupState};
use crate::groups::members::Member;
use crate::interface::input::{ConnId, From, Subscribe};
use crate::interface::reply::{BusError, Reply, ReplyTo};
use crate::lifecycle::pending::{AfterSeek, PendingSeek};

/// How a member leaves its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The member's connection is gone.
    Lost,
    /// The member unsubscribed, or the server told it to leave: nothing it holds has failed.
    Willing,
}

impl Bus {
    pub(crate) fn subscribe(&mut self, now: Now, to: ReplyTo, subscribe: Subscribe) -> Result<(), BusError> {
        self.subscribe_in_turn(now, to, subscribe, false)
    }

    /// `waited` says that this subscription has let earlier ones go first and is next.
    pub(crate) fn subscribe_in_turn(
        &mut self,
        now: Now,
        to: ReplyTo,
        subscribe: Subscribe,
        waited: bool,
    ) -> Result<(), BusError> {
        let ReplyTo::Conn { conn, .. } = to else {
            return Err(BusError::NeedsConnection);
        };
        // Nobody is left to subscribe.
        let Some(connection) = self.conns.get(conn) else { return Ok(()) };
        if waited {
            let Some(by) = connection.by() else { return Ok(()) };
            // The access lists may have changed while the subscription waited, and it may be about to move the group
            // (`reset`).
            self.permit_member(by, &subscribe.topic, &subscribe.group)?;
        }
        let key = (subscribe.topic.clone(), subscribe.group.clone());
        let max = self.limits.subscriptions_per_connection_max;
        if !connection.has_subscription(&key) && connection.subscriptions() >= max {
            return Err(BusError::LimitReached { what: "subscriptions per connection", max: max as u64 });
        }
        let window = subscribe.max_inflight.unwrap_or(self.limits.max_inflight);
        if window > self.limits.max_inflight_max {
            let (found, max) = (u64::from(window), u64::from(self.limits.max_inflight_max));
            return Err(BusError::OutOfRange { what: "max_inflight", found, max });
        }
        self.totals.window_fits(&self.limits, connection.agent(), u64::from(self.wider(conn, &subscribe)))?;
        if !self.topics.contains(&subscribe.topic) {
            // Checked before the topic is created: a refusal must not leave a topic behind without its row.
            self.totals.cursors_fit(&self.limits, connection.sharer().as_ref(), 1)?;
        }
        let mut ops = Vec::new();
        let topic = self.topic_or_create(&subscribe.topic, &mut ops)?;
        let known = self.topics.get(topic).and_then(|topic| topic.groups.get(&subscribe.group)).copied();
        match known {
            Some(group) => self.subscribe_to_existing(now, (to, conn), group, subscribe, waited),
            None => self.subscribe_to_new(now, to, topic, subscribe, ops),
        }
    }

    fn subscribe_to_existing(
        &mut self,
        now: Now,
        (to, conn): (ReplyTo, ConnId),
        group: GroupId,
        subscribe: Subscribe,
        waited: bool,
    ) -> Result<(), BusError> {
        let Some(state) = self.groups.must_mut(group, &self.broken) else {
            return Ok(());
        };
        let others = state.members.conns().filter(|member| *member != conn).count();
        let max = self.limits.members_per_group_max;
        if !state.members.contains(conn) && others + state.waiters.len() >= max {
            return Err(BusError::LimitReached { what: "members per group", max: max as u64 });
        }
        // Each connection has one subscription to a group under way at a time: a later frame must not overtake an
        // earlier one.
        let key = (subscribe.topic.clone(), subscribe.group.clone());
        let in_turn = self.conns.get(conn).is_some_and(|connection| connection.is_joining(&key));
        if !state.has_position || (in_turn && !waited) {
            state.waiters.push((to, subscribe.clone()));
            self.begin_join(conn, &subscribe);
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
            self.begin_join(conn, &subscribe);
            let then = AfterSeek::Join { to, subscribe };
            self.seek_cursors(now, PendingSeek { group, cursors, from, next: Vec::new(), then }, Vec::new());
            return Ok(());
        }
        if state.filter != subscribe.filter {
            self.begin_join(conn, &subscribe);
            let then = AfterSeek::Join { to, subscribe };
            let seek = PendingSeek { group, cursors: Vec::new(), from: From::Latest, next: Vec::new(), then };
            self.seek_cursors(now, seek, Vec::new());
            return Ok(());
        }
        self.join(now, to, group, &subscribe);
        Ok(())
    }

    fn begin_join(&mut self, conn: ConnId, subscribe: &Subscribe) {
        if let Some(connection) = self.conns.get_mut(conn) {
            connection.begin_join((subscribe.topic.clone(), subscribe.group.clone()));
        }
    }

    /// Ends a subscription that was under way, successful or not. Returns the UNSUBSCRIBE that waits for it.
    fn end_join(&mut self, to: ReplyTo, subscribe: &Subscribe) -> Option<ReplyTo> {
        let ReplyTo::Conn { conn, .. } = to else { return None };
        let key = (subscribe.topic.clone(), subscribe.group.clone());
        self.conns.get_mut(conn)?.end_join(&key)
    }

    pub(crate) fn refuse_join(&mut self, to: ReplyTo, subscribe: &Subscribe, error: BusError) {
        let leaving = self.end_join(to, subscribe);
        self.refuse(to, error);
        if let Some(to) = leaving {
            let (topic, group) = (subscribe.topic.clone(), subscribe.group.clone());
            self.refuse(to, BusError::NotAMember { topic, group });
        }
    }

    fn subscribe_to_new(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: crate::topics::topic::TopicId,
        subscribe: Subscribe,
        ops: Vec<Op>,
    ) -> Result<(), BusError> {
        let Some(state) = self.topics.must_mut(topic, &self.broken) else {
            return Ok(());
        };
        let max = self.limits.groups_per_topic_max;
        if state.groups.len() >= max {
            return Err(BusError::LimitReached { what: "groups per topic", max: max as u64 });
        }
        let by = match to {
            ReplyTo::Conn { conn, .. } => self.conns.get(conn).and_then(Connection::sharer),
            _ => None,
        };
        let cursors = state.logs.len() as u64;
        self.totals.cursors_fit(&self.limits, by.as_ref(), cursors)?;
        self.totals.cursors_made(by.as_ref(), cursors);
        let name = subscribe.group.clone();
        let mut created = GroupState::new(topic, state.key.clone(), name, subscribe.filter.clone(), now.wall);
        created.made_by = by;
        // The positions of these cursors do not matter yet: nothing is delivered before the group has its position.
        created.cursors = state.logs.iter().map(|log| Cursor::at(log.next)).collect();
        let group = self.groups.insert(created);
        state.groups.insert(subscribe.group.clone(), group);
        let partitions = state.logs.len() as u32;
        let cursors = (0..partitions).map(|partition| CursorRef { group, partition }).collect();
        let from = subscribe.from.unwrap_or(From::Latest);
        if let ReplyTo::Conn { conn, .. } = to {
            self.begin_join(conn, &subscribe);
        }
        let then = AfterSeek::Join { to, subscribe };
        self.seek_cursors(now, PendingSeek { group, cursors, from, next: Vec::new(), then }, ops);
        Ok(())
    }

    pub(crate) fn join(&mut self, now: Now, to: ReplyTo, group: GroupId, subscribe: &Subscribe) {
        let ReplyTo::Conn { conn, .. } = to else { return };
        // Checked again, because the topic's lists may have changed while the first position of the group was written.
        let Some(by) = self.conns.get(conn).and_then(Connection::by) else { return };
        if let Err(error) = self.permit_member(by, &subscribe.topic, &subscribe.group) {
            return self.refuse_join(to, subscribe, error);
        }
        // The window is checked again, too, because several subscriptions may have waited for the
        // positions of their groups.
        let wider = u64::from(self.wider(conn, subscribe));
        if let Some(connection) = self.conns.get(conn)
            && let Err(error) = self.totals.window_fits(&self.limits, connection.agent(), wider)
        {
            return self.refuse_join(to, subscribe, error);
        }
        let leaving = self.end_join(to, subscribe);
        // The connection may have been closed while the first position of the group was written.
        let Some(connection) = self.conns.get_mut(conn) else { return };
        let Some(state) = self.groups.must_mut(group, &self.broken) else { return };
        let window = self.limits.window_of(subscribe);
        let before = state.members.join(conn, window, subscribe.ack_mode, subscribe.sticky);
        self.totals.window_changed(connection.agent(), before.unwrap_or(0), window);
        // Shares the group's own names: each frame has copies of its own, and there may be many subscriptions.
        connection.subscribe((state.key.clone(), state.name.clone()), group);
        if let (None, Some(topic)) = (before, self.topics.get_mut(state.topic)) {
            topic.member_joined();
        }
        let partitions =
            state.cursors.iter().zip(0..).map(|(cursor, at)| (Partition(at), cursor.flush.durable().next()));
        let reply = Reply::Subscribed {
            topic: subscribe.topic.clone(),
            group: subscribe.group.clone(),
            partitions: partitions.collect(),
        };
        self.refresh_sticky(group);
        self.agenda.deliver(group);
        self.reply(to, reply);
        if let Some(to) = leaving {
            let left = self.unsubscribe(now, to, subscribe.topic.clone(), subscribe.group.clone());
            if left.is_err() {
                never!(self.broken, "{conn:?} has just joined {group:?} and is not a member");
            }
        }
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
        let Some(connection) = self.conns.get_mut(conn) else {
            return Ok(());
        };
        let key = (topic.clone(), group.clone());
        let agent = connection.agent().cloned();
        let member = connection.unsubscribe(&key);
        let overtakes = connection.overtake_join(&key, to);
        match member {
            Some(id) => self.leave(now, conn, agent.as_ref(), id, Departure::Willing),
            None if !overtakes => return Err(BusError::NotAMember { topic, group }),
            None => {}
        }
        if !overtakes {
            self.reply(to, Reply::Unsubscribed { topic, group });
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, now: Now, conn: ConnId, departure: Departure) {
        let Some(connection) = self.conns.close(conn) else {
            return;
        };
        for group in connection.groups() {
            self.leave(now, conn, connection.agent(), group, departure);
        }
    }

    /// Returns by how much this subscription would widen the connection's window.
    fn wider(&self, conn: ConnId, subscribe: &Subscribe) -> u32 {
        let topic = self.topics.named(&subscribe.topic);
        let group = topic.and_then(|topic| self.groups.get(*topic.groups.get(&subscribe.group)?));
        let now = group.and_then(|group| group.members.get(conn)).map_or(0, Member::window);
        self.limits.window_of(subscribe).saturating_sub(now)
    }

    /// Removes a member from its group. The events that it held are free at once, for any member. `agent` is the one
    /// as which it subscribed.
    pub(crate) fn leave(
        &mut self,
        now: Now,
        conn: ConnId,
        agent: Option<&Actor>,
        group: GroupId,
        departure: Departure,
    ) {
        let Some(state) = self.groups.must_mut(group, &self.broken) else { return };
        let Some(member) = state.members.leave(conn) else {
            never!(self.broken, "{conn:?} has a subscription and is not a member of {group:?}");
            return;
        };
        self.totals.window_changed(agent, member.window(), 0);
        if let Some((topic, tails)) = self.topics.with_tails(state.topic) {
            topic.member_left(tails);
        }
        let fetched_before = state.fetched_bytes();
        if state.members.is_empty() {
            state.cursors.iter_mut().for_each(Cursor::unread);
        }
        let held: Vec<_> =
            (0..).zip(&state.cursors).map(|(at, cursor)| (at, cursor.window.leased_to(conn))).collect();
        self.groups.account_fetched(group, fetched_before);
        for (partition, leases) in held {
            self.free(now, CursorRef { group, partition }, &leases, departure);
        }
        self.forget_key_member(group, conn);
        self.refresh_sticky(group);
        self.agenda.deliver(group);
    }

    /// Frees the events that a member held when it left. A consumer works on the lowest event it holds: if that event
    /// kills it, the others must not pay for it. So of a lost connection the lowest event counts as an attempt and the
    /// others are given back; of a member that left willingly all are given back. Leases that have expired count as
    /// attempts in any case.
    fn free(&mut self, now: Now, at: CursorRef, leases: &[(u64, Mono)], departure: Departure) {
        let mut blamed = departure == Departure::Willing;
        for (offset, deadline) in leases {
            if *deadline <= now.mono {
                self.counters.timed_out += 1;
                self.requeue(now, at, *offset, Some(TIMED_OUT), None);
            } else if !blamed {
                self.requeue(now, at, *offset, Some(DISCONNECTED), None);
            } else {
                self.note_given_back(now, at, *offset);
                if let Some(cursor) = self.groups.must_cursor_mut(at, &self.broken) {
                    cursor.give_back(*offset);
                    self.counters.given_back += 1;
                }
            }
            blamed = true;
        }
    }

    pub(crate) fn set_congested(&mut self, conn: ConnId, congested: bool) {
        let Some(connection) = self.conns.get_mut(conn) else {
            return;
        };
        connection.set_congested(congested);
        if !congested {
            self.agenda.deliver_all(connection.groups());
        }
    }
}
