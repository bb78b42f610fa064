//! A consumer: subscribes, and mostly acks what it receives. Sometimes it acks late, twice, never, or for somebody
//! else.

use std::collections::BTreeMap;

use millrace_bus::{Ack, BusError, ConnId, From, GiveBack, Input, Nack, Reply, ReplyTo, Request, Subscribe};
use millrace_model::{Event, Filter, Group, Offset, Partition, Timestamp, TopicKey};

use super::{Desk, Note};
use crate::dice::Dice;
use crate::fault::Fault;
use crate::place::Seat;
use crate::plan::GroupPlan;

const CONNECT: Note = Note(0);
const MISCHIEF: Note = Note(1);
const DRAIN: Note = Note(2);
const FIRST_ERRAND: u64 = 16;

#[derive(Debug)]
pub(crate) struct Consumer {
    dice: Dice,
    /// The groups it subscribes to, all over one connection.
    plans: Vec<GroupPlan>,
    pub conn: Option<ConnId>,
    /// Subscriptions that are not answered yet, with the index in `plans` that they are for.
    subscribing: BTreeMap<ReplyTo, usize>,
    window: u32,
    /// `None` = no credit mode; otherwise how many credits it gives at a time.
    credits: Option<u64>,
    disconnect: u64,
    ack_timeout_ms: u64,
    /// Acks and nacks that it will send later, by the number of their note.
    errands: BTreeMap<u64, (ConnId, Request)>,
    next_errand: u64,
    /// Events that it received and neither acked nor nacked: a reformed consumer makes up for them.
    neglected: Vec<(ConnId, Place)>,
}

#[derive(Clone, Debug)]
struct Place {
    topic: TopicKey,
    group: Group,
    partition: Partition,
    offset: Offset,
}

impl Consumer {
    pub(crate) fn new(
        mut dice: Dice,
        plans: Vec<GroupPlan>,
        disconnect: u64,
        ack_timeout_ms: u64,
    ) -> Consumer {
        let window = dice.between(1, 8) as u32;
        let credits = dice.chance(200).then(|| dice.between(1, 5));
        Consumer {
            dice,
            plans,
            conn: None,
            subscribing: BTreeMap::new(),
            window,
            credits,
            disconnect,
            ack_timeout_ms,
            errands: BTreeMap::new(),
            next_errand: FIRST_ERRAND,
            neglected: Vec::new(),
        }
    }

    pub(crate) fn well_behaved(dice: Dice, plan: GroupPlan) -> Consumer {
        Consumer { credits: None, ..Consumer::new(dice, vec![plan], 0, 0) }
    }

    pub(crate) fn wake(&mut self, desk: &mut Desk, note: Note) {
        match note {
            CONNECT => self.connect(desk),
            MISCHIEF if !desk.calm => self.mischief(desk),
            MISCHIEF => {}
            DRAIN => self.conn.into_iter().for_each(|conn| desk.tell(Input::Drained { conn })),
            Note(errand) => {
                let found = self.errands.remove(&errand);
                if let Some((conn, request)) = found.filter(|(conn, _)| self.conn == Some(*conn)) {
                    desk.send(conn, request);
                }
            }
        }
    }

    fn connect(&mut self, desk: &mut Desk) {
        if self.conn.is_some() {
            return;
        }
        if !desk.up {
            return desk.wake_in(50, CONNECT);
        }
        let conn = desk.open();
        self.conn = Some(conn);
        if let Some(credits) = self.credits {
            desk.send(conn, Request::Flow { credits });
        }
        for which in 0..self.plans.len() {
            let reset = !desk.calm && self.dice.chance(40);
            self.subscribe(desk, conn, which, reset);
        }
        let pause_ms = self.dice.between(20, 400);
        desk.wake_in(pause_ms, MISCHIEF);
    }

    fn subscribe(&mut self, desk: &mut Desk, conn: ConnId, which: usize, reset: bool) {
        let Some(GroupPlan { seat, mut filter, mode, sticky, .. }) = self.plans.get(which).cloned() else {
            return;
        };
        let from = match self.dice.below(8) {
            0..4 => Some(From::Earliest),
            4 => Some(From::Latest),
            5 => Some(From::Offset(Offset(self.dice.below(20)))),
            6 => Some(From::Timestamp(Timestamp(desk.wall.0.saturating_sub(self.dice.below(3000))))),
            _ => None,
        };
        if reset {
            desk.count(Fault::Reset);
        }
        if !desk.calm && self.dice.chance(20) {
            desk.count(Fault::FilterConflict);
            filter = Filter { key: Some("k3".to_owned()), header: None };
        }
        let subscribe = Subscribe {
            topic: seat.topic,
            group: seat.group,
            from: if reset { from.or(Some(From::Earliest)) } else { from },
            reset,
            max_inflight: self.dice.chance(900).then_some(self.window),
            ack_mode: Some(mode),
            sticky,
            filter,
        };
        self.subscribing.insert(desk.send(conn, Request::Subscribe(subscribe)), which);
    }

    /// Does something for no reason that the server could know.
    fn mischief(&mut self, desk: &mut Desk) {
        let Some(conn) = self.conn else { return };
        let pause_ms = self.dice.between(20, 400);
        desk.wake_in(pause_ms, MISCHIEF);
        if let Some(credits) = self.credits {
            desk.send(conn, Request::Flow { credits });
        }
        if self.dice.chance(self.disconnect) {
            desk.count(Fault::Disconnect);
            return self.leave(desk);
        }
        let which = self.dice.below(self.plans.len() as u64) as usize;
        let Some(seat) = self.plans.get(which).map(|plan| plan.seat.clone()) else { return };
        match self.dice.below(40) {
            0 => {
                desk.count(Fault::Congested);
                desk.tell(Input::Congested { conn });
                let pause_ms = self.dice.between(10, 1000);
                desk.wake_in(pause_ms, DRAIN);
            }
            1 => {
                desk.count(Fault::Unsubscribe);
                desk.send(conn, Request::Unsubscribe { topic: seat.topic, group: seat.group });
                self.subscribe(desk, conn, which, false);
            }
            2 => {
                self.window = self.dice.between(1, 8) as u32;
                self.subscribe(desk, conn, which, false);
            }
            3 => self.subscribe(desk, conn, which, true),
            4 if self.credits.is_some() => {
                desk.send(conn, Request::Flow { credits: 0 });
            }
            4..8 => self.stray(desk, conn, seat),
            _ => {}
        }
    }

    /// Sends an ack or nack out of the blue: beyond the tail, for another member's event, for a group that is not its
    /// own.
    fn stray(&mut self, desk: &mut Desk, conn: ConnId, seat: Seat) {
        desk.count(Fault::StrayAck);
        let mut place = Place {
            topic: seat.topic,
            group: seat.group,
            partition: Partition(self.dice.below(5) as u32),
            offset: Offset(self.dice.below(if self.dice.clone().chance(200) { 100_000 } else { 40 })),
        };
        if let Some(stranger) = Group::new("nobody").ok().filter(|_| self.dice.chance(100)) {
            place.group = stranger;
        }
        // A stray ack of another member's event may be accepted. That hides no loss from the checkers: their record
        // knows of the ack.
        let request = match self.dice.below(10) {
            0..6 => self.ack(place),
            6..9 => self.nack(place),
            _ => give_back(place),
        };
        desk.send(conn, request);
    }

    pub(crate) fn delivered(&mut self, desk: &mut Desk, conn: ConnId, group: &Group, event: &Event) {
        let (topic, partition) = (event.stream.topic.clone(), event.stream.partition);
        let place = Place { topic, group: group.clone(), partition, offset: event.offset };
        if desk.calm {
            let (request, pause_ms) = (self.ack(place), self.dice.between(1, 5));
            return self.errand(desk, conn, request, pause_ms);
        }
        let think_ms = self.dice.below(120);
        match self.dice.below(20) {
            0 => {
                desk.count(Fault::Vanished);
                self.neglected.push((conn, place));
            }
            1 => {
                desk.count(Fault::LateAck);
                let pause_ms = self.ack_timeout_ms + self.dice.below(500);
                let request = self.ack(place);
                self.errand(desk, conn, request, pause_ms);
            }
            2 => {
                desk.count(Fault::DuplicateAck);
                let again_ms = think_ms + self.dice.below(300);
                let (first, second) = (self.ack(place.clone()), self.ack(place));
                self.errand(desk, conn, first, think_ms);
                self.errand(desk, conn, second, again_ms);
            }
            3 | 4 => {
                desk.count(Fault::Nack);
                let request = self.nack(place);
                self.errand(desk, conn, request, think_ms);
            }
            5 => {
                desk.count(Fault::GiveBack);
                let request = give_back(place);
                self.errand(desk, conn, request, think_ms);
            }
            _ => {
                let request = self.ack(place);
                self.errand(desk, conn, request, think_ms);
            }
        }
    }

    fn errand(&mut self, desk: &mut Desk, conn: ConnId, request: Request, in_ms: u64) {
        self.next_errand += 1;
        self.errands.insert(self.next_errand, (conn, request));
        desk.wake_in(in_ms, Note(self.next_errand));
    }

    fn ack(&mut self, Place { topic, group, partition, offset }: Place) -> Request {
        Request::Ack(Ack { topic, partition, group, offset, confirm: self.dice.chance(300) })
    }

    fn nack(&mut self, Place { topic, group, partition, offset }: Place) -> Request {
        let delay_ms = self.dice.chance(400).then(|| self.dice.below(800));
        let reason = self.dice.chance(500).then(|| "no luck".to_owned());
        Request::Nack(Nack {
            topic,
            partition,
            group,
            offset,
            reason,
            delay_ms,
            confirm: self.dice.chance(300),
        })
    }

    pub(crate) fn replied(&mut self, desk: &mut Desk, to: ReplyTo, reply: &Reply) {
        let Some(which) = self.subscribing.remove(&to) else { return };
        let (Reply::Refused(error), Some(conn)) = (reply, self.conn) else { return };
        match error {
            BusError::FilterConflict { existing, .. } => {
                // The first subscriber decides the filter, even if its choice was mischief.
                self.plans.get_mut(which).into_iter().for_each(|plan| plan.filter = existing.clone());
                self.subscribe(desk, conn, which, false);
            }
            BusError::GroupBusy { .. } => self.subscribe(desk, conn, which, false),
            _ => self.leave(desk),
        }
    }

    pub(crate) fn leave(&mut self, desk: &mut Desk) {
        if let Some(conn) = self.conn {
            // Now and then the server closes the connection instead of the client.
            desk.tell(if self.dice.chance(200) { Input::Evict { conn } } else { Input::Close { conn } });
        }
        self.dropped(desk);
    }

    pub(crate) fn dropped(&mut self, desk: &mut Desk) {
        self.conn = None;
        self.subscribing.clear();
        self.errands.clear();
        self.neglected.clear();
        let pause_ms = self.dice.between(1, 200);
        desk.wake_in(pause_ms, CONNECT);
    }

    /// From now on the consumer behaves: it reads, takes all it can get, and makes up for what it neglected or begins
    /// anew.
    pub(crate) fn reform(&mut self, desk: &mut Desk) {
        let generous = self.credits.is_some();
        self.credits = None;
        let Some(conn) = self.conn else { return };
        if self.dice.chance(400) {
            return self.leave(desk);
        }
        desk.tell(Input::Drained { conn });
        if generous {
            desk.send(conn, Request::Flow { credits: 1_000_000 });
        }
        let neglected = std::mem::take(&mut self.neglected);
        for (of, place) in neglected.into_iter().filter(|(of, _)| *of == conn) {
            if self.dice.chance(700) {
                let request = self.ack(place);
                self.errand(desk, of, request, 1);
            }
        }
    }
}

fn give_back(Place { topic, group, partition, offset }: Place) -> Request {
    Request::GiveBack(GiveBack { topic, partition, group, offset })
}
