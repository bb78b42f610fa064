//! Acknowledgements, refusals by consumers, and credits.

use millrace_model::{AckMode, Group, Now, Partition, TopicKey};

use crate::bus::Bus;
use crate::delivery::dead_letter::{REASON_BYTES_MAX, truncate};
use crate::groups::cursor::{Open, OpenState};
use crate::groups::group::CursorRef;
use crate::groups::members::Member;
use crate::groups::table::Located;
use crate::interface::effect::Effect;
use crate::interface::input::{Ack, ConnId, GiveBack, Nack};
use crate::interface::note::{DeliveryEnd, Note};
use crate::interface::reply::{BusError, Reply, ReplyTo};

impl Bus {
    /// Returns the connection and the cursor that its request is about, if the connection is a member of the group.
    fn member_cursor(
        &self,
        to: ReplyTo,
        topic: &TopicKey,
        group: &Group,
        partition: Partition,
    ) -> Result<(ConnId, CursorRef), BusError> {
        let ReplyTo::Conn { conn, .. } = to else {
            return Err(BusError::NeedsConnection);
        };
        let id = self
            .conns
            .get(conn)
            .and_then(|connection| connection.subscription(&(topic.clone(), group.clone())))
            .ok_or_else(|| BusError::NotAMember { topic: topic.clone(), group: group.clone() })?;
        let partitions = self.groups.get(id).map_or(0, |group| group.cursors.len() as u32);
        if partition.0 >= partitions {
            return Err(BusError::UnknownPartition { topic: topic.clone(), partition, partitions });
        }
        Ok((conn, CursorRef { group: id, partition: partition.0 }))
    }

    pub(crate) fn ack(&mut self, now: Now, to: ReplyTo, ack: Ack) -> Result<(), BusError> {
        let (conn, at) = self.member_cursor(to, &ack.topic, &ack.group, ack.partition)?;
        let Some(Located { topic, name, members, cursor, .. }) =
            self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return Ok(());
        };
        if ack.offset.0 > cursor.window.sent_through() {
            let why = "it was never delivered to this group";
            let Ack { topic, partition, group, offset, .. } = ack;
            return Err(BusError::UnknownOffset { topic, group, partition, offset, why });
        }
        if cursor.window.get(ack.offset.0).is_some_and(|open| !open.was_sent()) {
            let why = "it was not delivered to this group since the server started";
            let Ack { topic, partition, group, offset, .. } = ack;
            return Err(BusError::UnknownOffset { topic, group, partition, offset, why });
        }
        let asked = members.get(conn).and_then(Member::ack_mode);
        let ack_mode = asked.or(topic.config.ack_mode).unwrap_or(self.limits.ack_mode);
        let lower = match ack_mode {
            AckMode::Cumulative => cursor.window.completed_below(ack.offset.0, conn),
            AckMode::Individual => Vec::new(),
        };
        let mut ended: Vec<_> =
            lower.iter().map(|offset| cursor.complete_implicitly(*offset, conn)).collect();
        // An ack does not take back an event on its way to the dead letters: its copy and its completion are one batch.
        if cursor.window.get(ack.offset.0).is_some_and(|open| open.state() != OpenState::ToDeadLetter) {
            ended.push(cursor.complete(ack.offset.0));
        }
        if ack.confirm && ended.is_empty() && ack.offset <= cursor.flush.durable() {
            self.reply(to, Reply::Acked);
            return Ok(());
        }
        if ack.confirm {
            cursor.flush.confirm(to);
        }
        if !ended.is_empty() || ack.confirm {
            cursor.flush.request();
            self.agenda.flush(at);
        }
        let events = ended.len() as u64;
        self.counters.acked += events;
        for ended in ended.into_iter().flatten() {
            members.released(ended.lease.conn);
            self.ack_times.add(now.mono.0.saturating_sub(ended.lease.since.0));
            if self.limits.note_traced_deliveries
                && let Some(note) = ended.note(now, name, DeliveryEnd::Acked)
            {
                self.effects.push(Effect::Note(note));
            }
        }
        if self.limits.note_acks
            && events > 0
            && let Some(place) = self.noted_place(at, ack.offset.0)
        {
            self.note(Note::Acked { at: place, agent: self.agent_of(conn), events });
        }
        self.agenda.deliver(at.group);
        Ok(())
    }

    pub(crate) fn nack(&mut self, now: Now, to: ReplyTo, nack: Nack) -> Result<(), BusError> {
        let (conn, at) = self.member_cursor(to, &nack.topic, &nack.group, nack.partition)?;
        let unknown = |nack: Nack, why| {
            let Nack { topic, partition, group, offset, .. } = nack;
            Err(BusError::UnknownOffset { topic, group, partition, offset, why })
        };
        if let Some(ms) = nack.delay_ms.filter(|ms| *ms > self.limits.delay_ms_max) {
            let max = self.limits.delay_ms_max;
            return Err(BusError::OutOfRange { what: "delay_ms", found: ms, max });
        }
        let Some(cursor) = self.groups.must_cursor_mut(at, &self.broken) else {
            return Ok(());
        };
        if nack.offset.0 > cursor.window.sent_through() {
            return unknown(nack, "it was never delivered to this group");
        }
        if nack.offset <= cursor.committed() {
            return unknown(nack, "it is already committed");
        }
        match cursor.window.get(nack.offset.0).map(Open::state) {
            Some(OpenState::Leased(lease)) if lease.conn == conn => {}
            Some(OpenState::Leased(_)) => return unknown(nack, "another member holds it"),
            Some(_) => return unknown(nack, "its delivery has already ended"),
            None if cursor.reopen(nack.offset.0, conn) => {}
            None => return unknown(nack, "it is already done"),
        }
        let mut reason = nack.reason.unwrap_or_else(|| "refused by the consumer".to_owned());
        truncate(&mut reason, self.limits.reason_bytes_max.min(REASON_BYTES_MAX));
        self.counters.nacked += 1;
        if self.limits.note_acks
            && let Some(place) = self.noted_place(at, nack.offset.0)
        {
            self.note(Note::Nacked { at: place, agent: self.agent_of(conn), reason: reason.clone() });
        }
        if let Some(cursor) = self.groups.must_cursor_mut(at, &self.broken) {
            cursor.window.refuse(nack.offset.0);
        }
        self.requeue(now, at, nack.offset.0, Some(&reason), nack.delay_ms);
        self.agenda.deliver(at.group);
        if nack.confirm {
            self.reply(to, Reply::Nacked);
        }
        Ok(())
    }

    /// Takes back a delivery that its member did not look at, as if it had not been delivered. The next delivery
    /// prefers another member.
    pub(crate) fn give_back(&mut self, now: Now, to: ReplyTo, given: GiveBack) -> Result<(), BusError> {
        let (conn, at) = self.member_cursor(to, &given.topic, &given.group, given.partition)?;
        let offset = given.offset.0;
        let Some(Located { members, cursor, .. }) =
            self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return Ok(());
        };
        if !cursor.window.get(offset).is_some_and(|open| open.is_leased_to(conn)) {
            let GiveBack { topic, partition, group, offset } = given;
            let why = "this connection does not hold it";
            return Err(BusError::UnknownOffset { topic, group, partition, offset, why });
        }
        members.released(conn);
        self.note_given_back(now, at, offset);
        if let Some(cursor) = self.groups.must_cursor_mut(at, &self.broken) {
            cursor.give_back(offset);
        }
        self.agenda.deliver(at.group);
        Ok(())
    }

    /// Adds delivery credits. The first FLOW switches the connection to credit mode; a FLOW of 0 takes back the credits
    /// that are left.
    pub(crate) fn flow(&mut self, to: ReplyTo, credits: u64) -> Result<(), BusError> {
        let ReplyTo::Conn { conn, .. } = to else {
            return Err(BusError::NeedsConnection);
        };
        let Some(connection) = self.conns.get_mut(conn) else {
            return Ok(());
        };
        connection.add_credits(credits, self.limits.credits_max);
        self.agenda.deliver_all(connection.groups());
        self.reply(to, Reply::FlowAdded);
        Ok(())
    }
}
