//! Connects the world and its actors: who is woken, who is told what, and how their deeds are carried out.

use millrace_bus::{ConnId, Input, Reply, ReplyTo};
use millrace_model::{Event, Group};

use super::{Happening, World};
use crate::actor::consumer::Consumer;
use crate::actor::{ActorId, Deed, Note};
use crate::dice::Dice;

impl World {
    pub(super) fn hire_consumers(&mut self, seed: u64) {
        for group in self.plan.groups.clone() {
            for member in 0..group.members {
                let dice = Dice::new(seed, &format!("consumer {} {member}", group.seat));
                let mut plans = vec![group.clone()];
                let other =
                    self.dice.pick(&self.plan.groups).filter(|other| other.seat != group.seat).cloned();
                plans.extend(other.filter(|_| self.dice.chance(200)));
                let (disconnect, timeout_ms) = (self.plan.rates.disconnect, self.plan.limits.ack_timeout_ms);
                self.consumers.push(Consumer::new(dice, plans, disconnect, timeout_ms));
            }
        }
    }

    pub(super) fn hire_replacements(&mut self) {
        for group in self.plan.groups.clone() {
            let dice = Dice::new(self.dice.draw(), "replacement");
            self.consumers.push(Consumer::well_behaved(dice, group));
            let actor = ActorId(self.first_consumer().0 + self.consumers.len() - 1);
            self.schedule.at(self.clock.world_ms, Happening::Wake { actor, note: Note(0) });
        }
    }

    pub(super) fn wake(&mut self, actor: ActorId, note: Note) {
        self.desk.wall = self.clock.now().wall;
        self.desk.actor = actor;
        let first_consumer = self.first_consumer().0;
        if actor.0 == 0 {
            self.admin.wake(&mut self.desk, note);
        } else if let Some(publisher) = self.publishers.get_mut(actor.0 - 1) {
            publisher.wake(&mut self.desk);
        } else if let Some(consumer) = self.consumers.get_mut(actor.0 - first_consumer) {
            consumer.wake(&mut self.desk, note);
        }
    }

    pub(super) fn replied(&mut self, to: ReplyTo, reply: &Reply) {
        let actor = match to {
            ReplyTo::Conn { conn, .. } => self.owners.get(&conn).copied(),
            ReplyTo::Call { call } => self.callers.remove(&call),
            ReplyTo::Nobody => None,
        };
        let Some(actor) = actor.filter(|actor| actor.0 > 0) else { return };
        self.desk.wall = self.clock.now().wall;
        self.desk.actor = actor;
        let first_consumer = self.first_consumer().0;
        if let Some(publisher) = self.publishers.get_mut(actor.0 - 1) {
            publisher.replied(to, reply);
        } else if let Some(consumer) = self.consumers.get_mut(actor.0 - first_consumer) {
            consumer.replied(&mut self.desk, to, reply);
        }
    }

    pub(super) fn delivered(&mut self, conn: ConnId, group: &Group, event: &Event) {
        let first_consumer = self.first_consumer().0;
        let Some(actor) = self.owners.get(&conn).copied().filter(|actor| actor.0 >= first_consumer) else {
            return;
        };
        self.desk.actor = actor;
        if let Some(consumer) =
            self.consumers.get_mut(actor.0 - first_consumer).filter(|of| of.conn == Some(conn))
        {
            consumer.delivered(&mut self.desk, conn, group, event);
        }
    }

    /// A consumer is told that its topic is gone, and begins anew.
    pub(super) fn noticed(&mut self, conn: ConnId) {
        let first_consumer = self.first_consumer().0;
        let Some(actor) = self.owners.get(&conn).copied().filter(|actor| actor.0 >= first_consumer) else {
            return;
        };
        self.desk.actor = actor;
        if let Some(consumer) =
            self.consumers.get_mut(actor.0 - first_consumer).filter(|of| of.conn == Some(conn))
        {
            consumer.leave(&mut self.desk);
        }
    }

    pub(super) fn drop_everyone(&mut self) {
        self.desk.up = false;
        self.owners.clear();
        self.callers.clear();
        self.publishers.iter_mut().for_each(crate::actor::publisher::Publisher::dropped);
        let first_consumer = self.first_consumer().0;
        for (at, consumer) in self.consumers.iter_mut().enumerate() {
            self.desk.actor = ActorId(first_consumer + at);
            consumer.dropped(&mut self.desk);
        }
    }

    pub(super) fn reform_everyone(&mut self) {
        let first_consumer = self.first_consumer().0;
        for (at, consumer) in self.consumers.iter_mut().enumerate() {
            self.desk.actor = ActorId(first_consumer + at);
            consumer.reform(&mut self.desk);
        }
    }

    pub(super) fn do_deeds(&mut self) {
        for (actor, deed) in std::mem::take(&mut self.desk.deeds) {
            match deed {
                Deed::Tell(input) => {
                    match &*input {
                        Input::Open { conn, .. } => {
                            self.owners.insert(*conn, actor);
                        }
                        Input::Request { to: ReplyTo::Call { call }, .. } => {
                            self.callers.insert(*call, actor);
                        }
                        _ => {}
                    }
                    self.tell(*input);
                }
                Deed::WakeIn { ms, note } => {
                    self.schedule.at(self.clock.world_ms + ms, Happening::Wake { actor, note });
                }
                Deed::Count(fault) => self.faults.add(fault),
            }
        }
    }
}
