//! Groups as operators see and stop them: the members, the events that they hold, the standing of a single event; and
//! the switch that holds a group's deliveries back.

use std::collections::BTreeMap;

use millrace_model::{Group, Mono, Now, Offset, Op, Partition, Space, TopicKey, keys};

use crate::bus::Bus;
use crate::groups::cursor::{Cursor, Open, OpenState};
use crate::groups::group::{GroupId, GroupState};
use crate::groups::group_admin::detail;
use crate::interface::input::ConnId;
use crate::interface::reply::{
    BusError, ConnectionView, EventStanding, GroupInspection, MemberView, OpenEvent, OpenEventState, Reply,
    ReplyTo, StandingState,
};
use crate::lifecycle::pending::PendingEffect;
use crate::topics::topic::Topic;

impl Bus {
    /// Holds a group's deliveries back, or lets them go on. Takes effect at once and is answered when it is durable: a
    /// crash in between leaves the group as it was.
    pub(crate) fn pause_group(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        group: Group,
        paused: bool,
    ) -> Result<(), BusError> {
        let id = self.positioned(&topic, &group)?;
        let Some(state) = self.groups.must_mut(id, &self.broken) else { return Ok(()) };
        state.paused = paused;
        let row = state.row();
        if !paused {
            self.agenda.deliver(id);
        }
        let put = Op::Put { space: Space::Groups, key: keys::group(&topic, &group), value: row.encode() };
        let pending = PendingEffect::GroupPause { to, topic, group, paused };
        self.commit(now, self.limits.durability, vec![put], pending);
        Ok(())
    }

    pub(crate) fn inspect_group(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        group: &Group,
        open_max: usize,
    ) -> Result<(), BusError> {
        let id = self.positioned(&topic, group)?;
        let Some((state, of)) =
            self.groups.get(id).and_then(|state| Some((state, self.topics.get(state.topic)?)))
        else {
            return Err(BusError::UnknownTopic(topic));
        };
        let ack_timeout_ms = of.ack_timeout_ms(&self.limits);
        let mut found = open_events(state, now.mono);
        let open: Vec<OpenEvent> = found.by_ref().take(open_max).collect();
        let more = found.next().is_some();
        drop(found);
        let inspection = GroupInspection {
            topic,
            detail: detail(of, state),
            ack_timeout_ms,
            members: self.member_views(state, ack_timeout_ms, now.mono),
            open,
            more,
        };
        self.reply(to, Reply::GroupInspected(Box::new(inspection)));
        Ok(())
    }

    fn member_views(&self, state: &GroupState, ack_timeout_ms: u64, now: Mono) -> Vec<MemberView> {
        // The first lease of a member to end is the one that began first: all leases of a topic are equally long,
        // unless the topic's time was changed meanwhile.
        let mut first_ends: BTreeMap<ConnId, u64> = BTreeMap::new();
        for (_, open) in state.cursors.iter().flat_map(|cursor| cursor.window.open_events()) {
            if let OpenState::Leased { conn, deadline } = open.state() {
                let left = deadline.0.saturating_sub(now.0);
                first_ends.entry(conn).and_modify(|first| *first = left.min(*first)).or_insert(left);
            }
        }
        let view = |(conn, member): (ConnId, &super::members::Member)| MemberView {
            conn,
            window: member.window(),
            inflight: member.inflight(),
            credits: self.conns.get(conn).and_then(|connection| connection.credits()),
            congested: self.conns.get(conn).is_some_and(|connection| connection.is_congested()),
            oldest_ms: first_ends.get(&conn).map(|left| ack_timeout_ms.saturating_sub(*left)),
        };
        state.members.iter().map(view).collect()
    }

    pub(crate) fn inspect_connections(&mut self, to: ReplyTo) {
        let views = self.conns.iter().map(|(conn, connection)| {
            let members = connection.groups().filter_map(|id| self.groups.get(id)?.members.get(conn));
            ConnectionView {
                conn,
                subscriptions: connection.subscriptions(),
                inflight: members.map(|member| u64::from(member.inflight())).sum(),
            }
        });
        let views = views.collect();
        self.reply(to, Reply::ConnectionsInspected(views));
    }

    pub(crate) fn event_standings(
        &mut self,
        to: ReplyTo,
        topic: TopicKey,
        partition: Partition,
        offset: Offset,
    ) -> Result<(), BusError> {
        let id = self.topics.known(&topic)?;
        let Some(state) = self.topics.get(id) else { return Err(BusError::UnknownTopic(topic)) };
        let partitions = state.logs.len() as u32;
        if partition.0 >= partitions {
            return Err(BusError::UnknownPartition { topic, partition, partitions });
        }
        let groups = groups_of(self, state).filter_map(|group| {
            let cursor = group.cursors.get(partition.0 as usize)?;
            Some(standing(group.name.clone(), cursor, offset.0))
        });
        let standings = groups.collect();
        self.reply(to, Reply::EventStandings(standings));
        Ok(())
    }

    /// Returns a group whose position is durable: before that, no subscriber was promised it.
    fn positioned(&self, topic: &TopicKey, group: &Group) -> Result<GroupId, BusError> {
        let id = self.topics.known(topic)?;
        let found = self.topics.get(id).and_then(|state| state.groups.get(group).copied());
        let found = found.filter(|id| self.groups.get(*id).is_some_and(|state| state.has_position));
        found.ok_or_else(|| BusError::UnknownGroup { topic: topic.clone(), group: group.clone() })
    }
}

fn groups_of<'a>(bus: &'a Bus, topic: &'a Topic) -> impl Iterator<Item = &'a GroupState> {
    topic.groups.values().filter_map(|id| bus.groups.get(*id)).filter(|group| group.has_position)
}

fn open_events(state: &GroupState, now: Mono) -> impl Iterator<Item = OpenEvent> + '_ {
    let partitions = state.cursors.iter().zip(0..);
    partitions.flat_map(move |(cursor, partition)| {
        let open = cursor.window.open_events();
        open.map(move |(offset, open)| OpenEvent {
            partition: Partition(partition),
            offset: Offset(offset),
            id: open.event().map(|event| event.id.clone()),
            attempts: open.attempts(),
            state: shown(open, now),
            reason: open.reason().map(str::to_owned),
        })
    })
}

fn shown(open: &Open, now: Mono) -> OpenEventState {
    match open.state() {
        OpenState::Leased { conn, deadline } => {
            OpenEventState::Leased { conn, left_ms: deadline.0.saturating_sub(now.0) }
        }
        OpenState::Waiting { until } => OpenEventState::Later { left_ms: until.0.saturating_sub(now.0) },
        OpenState::Ready
        | OpenState::Parked
        | OpenState::Awaiting { .. }
        | OpenState::ToDeadLetter
        | OpenState::Refetching => OpenEventState::Ready,
    }
}

fn standing(group: Group, cursor: &Cursor, offset: u64) -> EventStanding {
    if let Some(open) = cursor.window.get(offset) {
        let state = open.holder().map_or(StandingState::Waiting, StandingState::InFlight);
        return EventStanding {
            group,
            state,
            attempts: open.attempts(),
            reason: open.reason().map(str::to_owned),
        };
    }
    let waits = cursor.read_ahead.has(offset) || offset >= cursor.read_ahead.next();
    let state = if waits { StandingState::Waiting } else { StandingState::Done };
    EventStanding { group, state, attempts: 0, reason: None }
}
