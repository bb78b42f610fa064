//! The traffic as seen from outside: connections, memberships, deliveries, acks. Recorded without looking into the
//! engine.
//!
//! Where the engine is free to decide (an ack that comes when the lease just ran out), this record knows that it does
//! not know: such a lease is not `certain`, such an ack is `Maybe`. Checkers report only what is certain.

use std::collections::{BTreeMap, BTreeSet};

use millrace_bus::{ConnId, Reply, ReplyTo, Request, Subscribe};
use millrace_model::{AckMode, Offset, TopicKey};

use crate::place::{Seat, Spot};

#[derive(Clone, Debug, Default)]
pub(crate) struct Conn {
    /// The turn of the engine in which it was closed. Decisions of that very turn may still name it.
    pub closed_in_turn: Option<u64>,
    /// `None` = not in credit mode.
    pub credits: Option<u64>,
    pub congested: bool,
    pub members: BTreeMap<Seat, Member>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// The two differ while a subscription that changes the window is not answered.
    pub window_min: u32,
    pub window_max: u32,
    pub mode: AckMode,
    /// False until the subscription is answered.
    pub active: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub conn: ConnId,
    pub until_ms: u64,
    pub certain: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Acked {
    #[default]
    No,
    Maybe,
    Yes,
}

/// An event as one group has met it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    /// Deliveries ever, and those since the running server was started. The latter count only those that are attempts.
    pub sends: u32,
    pub sends_this_life: u32,
    pub lease: Option<Lease>,
    pub acked: Acked,
    pub not_before_ms: u64,
    /// A stop of the server cut the last delivery short, so that it does not count.
    pub cut_short: bool,
    /// A NACK came when the event was perhaps completed already: it may begin anew.
    pub asked_back: bool,
    /// The event was given back when its lease had perhaps ended already: that delivery may count or not.
    pub miscounted: bool,
    /// Deliveries ever that were given back and so were no attempts.
    pub given_back: u32,
    /// Positions in the order of all deliveries of the world: of this event's latest delivery, of its oldest unanswered
    /// delivery to `last`, and of the newest delivery of any event when this event was last refused.
    pub order: u64,
    pub ackable: u64,
    pub refused: u64,
    pub answered: bool,
    pub last: Option<ConnId>,
}

/// How a connection leaves a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    Lost,
    Willing,
}

impl Item {
    /// The delivery in progress was no attempt.
    pub(crate) fn give_back(&mut self) {
        self.sends_this_life = self.sends_this_life.saturating_sub(1);
        self.given_back += 1;
        self.lease = None;
        self.answered = true;
    }

    /// Attempts that may have ended by now: without deliveries that were given back, and without the one in progress.
    pub(crate) fn attempts_ended_max(&self, now_ms: u64) -> u32 {
        let under_way = self.surely_held(now_ms).is_some() && self.acked == Acked::No;
        self.sends.saturating_sub(self.given_back + u32::from(under_way))
    }

    pub(crate) fn surely_held(&self, now_ms: u64) -> Option<Lease> {
        self.lease.filter(|lease| lease.certain && now_ms < lease.until_ms)
    }

    pub(crate) fn possibly_held(&self, now_ms: u64) -> Option<Lease> {
        self.lease.filter(|lease| now_ms <= lease.until_ms)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    pub conns: BTreeMap<ConnId, Conn>,
    pub deliveries: u64,
    pub items: BTreeMap<Spot, BTreeMap<Offset, Item>>,
    /// Requests that are not answered yet.
    pub asked: BTreeMap<ReplyTo, Request>,
    /// Groups that were moved in this life of the server: their counts may have begun anew.
    pub moved: BTreeSet<Seat>,
    /// The window of a subscription that does not ask for one.
    pub window_default: u32,
}

impl Traffic {
    pub(crate) fn item(&self, spot: &Spot, offset: Offset) -> Option<&Item> {
        self.items.get(spot)?.get(&offset)
    }

    pub(crate) fn held_by(&self, conn: ConnId, seat: &Seat, held: impl Fn(&Item) -> Option<Lease>) -> usize {
        let first = seat.spot(millrace_model::Partition(0));
        let spots = self.items.range(first..).take_while(|(spot, _)| spot.seat == *seat);
        spots
            .flat_map(|(_, items)| items.values())
            .filter(|item| held(item).is_some_and(|lease| lease.conn == conn))
            .count()
    }

    /// Whether a request to move the group, or to delete its topic, is not answered yet.
    pub(crate) fn is_moving(&self, seat: &Seat) -> bool {
        let mut moved = self.asked.values().filter_map(moves);
        moved.any(|moved| moved == *seat) || self.is_dropping(&seat.topic)
    }

    pub(crate) fn is_dropping(&self, topic: &TopicKey) -> bool {
        self.asked
            .values()
            .any(|request| matches!(request, Request::DeleteTopic { topic: of } if of == topic))
    }

    /// The topic is deleted: a later topic with its name is another one. How often events were sent is kept, because a
    /// crash may bring the topic back.
    pub(crate) fn forget_topic(&mut self, topic: &TopicKey) {
        let items = self.items.iter_mut().filter(|(spot, _)| spot.seat.topic == *topic);
        for item in items.flat_map(|(_, items)| items.values_mut()) {
            *item = Item { sends: item.sends, given_back: item.given_back, ..Item::default() };
        }
        for conn in self.conns.values_mut() {
            conn.members.retain(|seat, _| seat.topic != *topic);
        }
    }

    pub(crate) fn ask(&mut self, to: ReplyTo, request: &Request) {
        if let (ReplyTo::Conn { conn, .. }, Request::Subscribe(subscribe)) = (to, request) {
            self.ask_subscribe(conn, subscribe);
        }
        if to != ReplyTo::Nobody {
            self.asked.insert(to, request.clone());
        }
    }

    fn ask_subscribe(&mut self, conn: ConnId, subscribe: &Subscribe) {
        let window = subscribe.max_inflight.unwrap_or(self.window_default);
        let mode = subscribe.ack_mode.unwrap_or_default();
        let new = Member { window_min: window, window_max: window, mode, active: false };
        let members = &mut self.conns.entry(conn).or_default().members;
        let member = members.entry(seat_of(subscribe)).or_insert(new);
        member.window_min = member.window_min.min(window);
        member.window_max = member.window_max.max(window);
    }

    pub(crate) fn answer(&mut self, to: ReplyTo, reply: &Reply) {
        let Some(request) = self.asked.remove(&to) else { return };
        let refused = matches!(reply, Reply::Refused(_));
        if let (ReplyTo::Conn { conn, .. }, Request::Subscribe(subscribe)) = (to, &request) {
            let seat = seat_of(subscribe);
            let window = subscribe.max_inflight.unwrap_or(self.window_default);
            let Some(members) = self.conns.get_mut(&conn).map(|conn| &mut conn.members) else { return };
            if !refused {
                let mode = subscribe.ack_mode.unwrap_or_default();
                members.insert(seat, Member { window_min: window, window_max: window, mode, active: true });
            } else if members.get(&seat).is_some_and(|member| !member.active) {
                members.remove(&seat);
            }
        }
    }

    /// The group has another position in this partition from now on, whatever it was sent before.
    pub(crate) fn move_group(&mut self, spot: &Spot) {
        for item in self.items.get_mut(spot).into_iter().flat_map(BTreeMap::values_mut) {
            item.lease = item.lease.map(|lease| Lease { certain: false, ..lease });
            item.acked = Acked::No;
            item.not_before_ms = 0;
            (item.last, item.refused) = (None, 0);
        }
        self.moved.insert(spot.seat.clone());
    }

    pub(crate) fn close(&mut self, conn: ConnId, departure: Departure, turn: u64, now_ms: u64) {
        if let Some(found) = self.conns.get_mut(&conn) {
            found.closed_in_turn = Some(turn);
        }
        self.release(conn, None, departure, now_ms);
        self.asked.retain(|to, request| {
            // A move that was begun may still be carried out.
            !matches!(to, ReplyTo::Conn { conn: of, .. } if *of == conn) || moves(request).is_some()
        });
    }

    /// Frees what the connection held, in one group or in all. If the connection was lost, the lowest event of each
    /// partition was an attempt and all others are given back.
    pub(crate) fn release(&mut self, conn: ConnId, seat: Option<&Seat>, departure: Departure, now_ms: u64) {
        for (_, items) in self.items.iter_mut().filter(|(spot, _)| seat.is_none_or(|seat| spot.seat == *seat))
        {
            let (mut blamed, mut unclear) = (departure == Departure::Willing, false);
            for item in items.values_mut().filter(|item| item.lease.is_some_and(|lease| lease.conn == conn)) {
                let surely = item.surely_held(now_ms).is_some();
                if surely && blamed && !unclear {
                    item.give_back();
                } else if !surely || unclear {
                    // The engine decides whether the event was still held, and whether it was the lowest that was.
                    item.miscounted = true;
                    unclear = departure == Departure::Lost;
                }
                item.lease = None;
                blamed = true;
            }
        }
    }

    /// The server has ended: no connection, no lease, no unwritten ack outlives it.
    pub(crate) fn forget_server(&mut self) {
        self.conns.clear();
        self.asked.clear();
        self.moved.clear();
        for item in self.items.values_mut().flat_map(BTreeMap::values_mut) {
            let Item { sends, given_back, cut_short, .. } = *item;
            *item = Item { sends, given_back, cut_short, ..Item::default() };
        }
    }

    pub(crate) fn forget_cuts(&mut self) {
        self.items.values_mut().flat_map(BTreeMap::values_mut).for_each(|item| item.cut_short = false);
    }

    /// A stop does not count the deliveries that it cuts short.
    pub(crate) fn cut_short(&mut self, now_ms: u64) {
        for item in self.items.values_mut().flat_map(BTreeMap::values_mut) {
            item.cut_short |= item.surely_held(now_ms).is_some() && item.acked == Acked::No;
        }
    }
}

pub(crate) fn seat_of(subscribe: &Subscribe) -> Seat {
    Seat { topic: subscribe.topic.clone(), group: subscribe.group.clone() }
}

/// The group that this request moves, as an exception to the rule that commits only go forward.
pub(crate) fn moves(request: &Request) -> Option<Seat> {
    match request {
        Request::Subscribe(subscribe) if subscribe.reset => Some(seat_of(subscribe)),
        Request::SeekGroup { topic, group, .. } => Some(Seat { topic: topic.clone(), group: group.clone() }),
        _ => None,
    }
}
