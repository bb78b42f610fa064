//! The knowledge that the checkers share: the ledger, the traffic, the time. A checker sees it as it was before the
//! contact that it is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_bus::{Ack, BusLimits, ConnId, GiveBack, Input, Nack, ReplyTo, Request};
use millrace_model::{AckMode, Batch, Event, Filter, Group, Now, Offset, Op, Outcome, TopicKey};

use crate::ledger::{Ledger, cursor_rows, dropped, group_rows};
use crate::place::{Seat, Spot};
use crate::plan::Plan;
use crate::seen::Seen;
use crate::traffic::{Acked, Conn, Departure, Item, Lease, Traffic};

#[derive(Debug)]
pub(crate) struct Facts {
    pub now_ms: u64,
    pub now: Now,
    /// The latest time that the wall clock ever showed.
    pub wall_max_ms: u64,
    /// The number of the running server, and whether the wall clock was far off when it started.
    pub life: u64,
    pub began_far_off: bool,
    /// Counts the engine's turns.
    pub turn: u64,
    pub limits: BusLimits,
    /// Groups all of whose members ask for order per key.
    pub sticky: BTreeSet<Seat>,
    pub ledger: Ledger,
    pub traffic: Traffic,
    /// The ledger as the running server found it.
    pub ledger_at_start: Ledger,
    /// The engine was told that the store failed, or to stop.
    pub ending: bool,
    pub read_failed_ms: Option<u64>,
    /// When another process last appended to a topic.
    pub neighbours_ms: BTreeMap<TopicKey, u64>,
    /// Every filter that a group had since the server was started: the first member of an empty group may change it.
    filters: BTreeMap<Seat, Vec<Filter>>,
    /// Every batch on the disk, by commit: after a loss the ledger is rebuilt from them.
    commits: Vec<Vec<(Batch, Outcome)>>,
}

impl Facts {
    pub(crate) fn new(plan: &Plan) -> Facts {
        let limits = plan.limits.clone();
        let sticky = plan.groups.iter().filter(|group| group.sticky);
        Facts {
            now_ms: 0,
            now: Now::default(),
            wall_max_ms: 0,
            life: 0,
            began_far_off: false,
            turn: 0,
            ledger: Ledger::default(),
            traffic: Traffic { window_default: limits.max_inflight, ..Traffic::default() },
            limits,
            sticky: sticky.map(|group| group.seat.clone()).collect(),
            ledger_at_start: Ledger::default(),
            ending: false,
            read_failed_ms: None,
            neighbours_ms: BTreeMap::new(),
            filters: BTreeMap::new(),
            commits: Vec::new(),
        }
    }

    pub(crate) fn tick(&mut self, world_ms: u64, now: Now) {
        self.now_ms = world_ms;
        self.now = now;
        self.wall_max_ms = self.wall_max_ms.max(now.wall.0);
    }

    pub(crate) fn begin_life(&mut self, far_off: bool) {
        self.life += 1;
        self.began_far_off = far_off;
    }

    pub(crate) fn begin_commit(&mut self) {
        self.commits.push(Vec::new());
    }

    /// Goes back to the first `kept` commits.
    pub(crate) fn keep_commits(&mut self, kept: usize) {
        if kept < self.commits.len() {
            self.commits.truncate(kept);
            self.ledger = Ledger::default();
            for (batch, outcome) in self.commits.iter().flatten() {
                self.ledger.apply(batch, outcome);
            }
        }
    }

    pub(crate) fn ack_timeout_ms(&self, topic: &TopicKey) -> u64 {
        let own = self.ledger.topics.get(topic).and_then(|config| config.ack_timeout_ms);
        own.unwrap_or(self.limits.ack_timeout_ms)
    }

    pub(crate) fn attempts_max(&self, topic: &TopicKey) -> u32 {
        let own = self.ledger.topics.get(topic).and_then(|config| config.max_attempts);
        own.unwrap_or(self.limits.max_attempts)
    }

    /// Whether a filter that the group has or had rejects the event: the event may then count as done.
    pub(crate) fn may_be_filtered(&self, seat: &Seat, event: Option<&Arc<Event>>) -> bool {
        let filters = self.filters.get(seat).map_or(&[][..], Vec::as_slice);
        event.is_some_and(|event| filters.iter().any(|filter| !filter.matches(event)))
    }

    /// Whether every filter that the group ever had rejects the event.
    pub(crate) fn must_be_filtered(&self, seat: &Seat, event: &Event) -> bool {
        let filters = self.filters.get(seat).map_or(&[][..], Vec::as_slice);
        !filters.is_empty() && filters.iter().all(|filter| !filter.matches(event))
    }

    pub(crate) fn apply(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Told { input } => self.told(input),
            Seen::Durable { batch, outcome, .. } => {
                self.ledger.apply(batch, outcome);
                if let Some(commit) = self.commits.last_mut() {
                    commit.push(((*batch).clone(), (*outcome).clone()));
                }
            }
            Seen::Answered { to, reply } => self.traffic.answer(*to, reply),
            Seen::Delivered { conn, group, event, .. } => self.delivered(*conn, group, event),
            Seen::Stopped => self.traffic.cut_short(self.now_ms),
            Seen::Ended { .. } => {
                self.traffic.cut_short(self.now_ms);
                self.traffic.forget_server();
            }
            Seen::Started => {
                self.ledger_at_start = self.ledger.clone();
                self.ending = false;
                self.traffic.forget_cuts();
                self.read_failed_ms = None;
                let rows = self.ledger.groups.iter();
                self.filters = rows.map(|(seat, row)| (seat.clone(), vec![row.filter.clone()])).collect();
            }
            Seen::Wanted { batch, .. } => self.decided(batch),
            Seen::Neighbour { batch } => {
                let topics = batch.ops.iter().filter_map(|op| match op {
                    Op::Append(append) => Some((append.stream.topic.clone(), self.now_ms)),
                    _ => None,
                });
                self.neighbours_ms.extend(topics);
            }
            Seen::Opened { .. } | Seen::Settled { .. } | Seen::Idle | Seen::End { .. } => {}
        }
    }

    /// Groups are moved and filters changed when the engine decides it, not when the decision is durable.
    fn decided(&mut self, batch: &Batch) {
        for (spot, row) in cursor_rows(batch) {
            // Any other row comes from an ack that arrived while the move was still being looked up.
            let anew = row.delivered == row.committed && row.ahead.is_empty();
            if anew && self.traffic.is_moving(&spot.seat) {
                self.traffic.move_group(&spot);
            }
        }
        for topic in dropped(batch) {
            self.traffic.forget_topic(topic);
            self.ledger_at_start.cursors.retain(|spot, _| spot.seat.topic != *topic);
            self.ledger_at_start.tries.retain(|(spot, _), _| spot.seat.topic != *topic);
        }
        for (seat, row) in group_rows(batch) {
            self.filters.entry(seat).or_default().push(row.filter);
        }
    }

    fn told(&mut self, input: &Input) {
        match input {
            Input::Open { conn, .. } => {
                self.traffic.conns.insert(*conn, Conn::default());
            }
            Input::Close { conn } => self.traffic.close(*conn, Departure::Lost, self.turn, self.now_ms),
            Input::Evict { conn } => self.traffic.close(*conn, Departure::Willing, self.turn, self.now_ms),
            Input::Congested { conn } | Input::Drained { conn } => {
                let congested = matches!(input, Input::Congested { .. });
                self.traffic.conns.entry(*conn).or_default().congested = congested;
            }
            Input::Request { to, request, .. } => self.asked(*to, request),
            Input::Page { page: None, .. }
            | Input::Found { offsets: None, .. }
            | Input::DueRows { rows: None, .. }
            | Input::TopicRead { found: None, .. } => {
                self.read_failed_ms = Some(self.now_ms);
            }
            Input::Stop | Input::StorageFailed { .. } => self.ending = true,
            Input::TooLarge { .. }
            | Input::NoSpace { .. }
            | Input::PauseDelivery { .. }
            | Input::Committed { .. }
            | Input::Page { .. }
            | Input::Found { .. }
            | Input::DueRows { .. }
            | Input::ForeignCommits { .. }
            | Input::TopicRead { .. }
            | Input::RetainedChecked { .. } => {}
        }
    }

    fn asked(&mut self, to: ReplyTo, request: &Request) {
        self.traffic.ask(to, request);
        let ReplyTo::Conn { conn, .. } = to else { return };
        match request {
            Request::Ack(ack) => self.acked(conn, ack),
            Request::Nack(nack) => self.nacked(conn, nack),
            Request::GiveBack(given) => self.given_back(conn, given),
            Request::Flow { credits } => {
                let credits_max = self.limits.credits_max;
                let held = &mut self.traffic.conns.entry(conn).or_default().credits;
                // A FLOW of zero takes back what is left.
                let left = held.filter(|_| *credits > 0).unwrap_or(0);
                *held = Some(left.saturating_add(*credits).min(credits_max));
            }
            Request::Unsubscribe { topic, group } => {
                let seat = Seat { topic: topic.clone(), group: group.clone() };
                self.traffic.release(conn, Some(&seat), Departure::Willing, self.now_ms);
                self.traffic.conns.entry(conn).or_default().members.remove(&seat);
            }
            _ => {}
        }
    }

    fn acked(&mut self, conn: ConnId, ack: &Ack) {
        let seat = Seat { topic: ack.topic.clone(), group: ack.group.clone() };
        let Some(member) = self.traffic.conns.get(&conn).and_then(|conn| conn.members.get(&seat)).copied()
        else {
            return;
        };
        // A server that is ending may accept the ack or refuse it.
        let (now_ms, ending) = (self.now_ms, self.ending);
        let Some(items) = self.traffic.items.get_mut(&seat.spot(ack.partition)) else { return };
        let mine = |item: &Item| item.lease.is_some_and(|lease| lease.conn == conn);
        // An ack of an event that is not in flight may be refused as a whole.
        let named = items.get(&ack.offset).filter(|item| mine(item)).cloned();
        let surely =
            named.as_ref().is_some_and(|item| item.surely_held(now_ms).is_some() && !item.asked_back);
        let lowest = if member.mode == AckMode::Cumulative { Offset::ZERO } else { ack.offset };
        for (offset, item) in items.range_mut(lowest..=ack.offset) {
            // A cumulative ack covers the lower events that were delivered before the acked one and not refused since.
            let meant = *offset == ack.offset
                || named.as_ref().is_some_and(|named| {
                    item.order < named.order && (item.refused < named.ackable || named.asked_back)
                });
            let certain = item.surely_held(now_ms).is_some() && surely && !ending;
            if meant && mine(item) && certain && (*offset == ack.offset || !item.asked_back) {
                item.acked = Acked::Yes;
                item.lease = None;
            } else if meant
                && (mine(item) || *offset == ack.offset)
                && item.acked == Acked::No
                && item.sends > 0
            {
                item.acked = Acked::Maybe;
                item.lease = item.lease.map(|lease| Lease { certain: false, ..lease });
            }
        }
    }

    fn nacked(&mut self, conn: ConnId, nack: &Nack) {
        let seat = Seat { topic: nack.topic.clone(), group: nack.group.clone() };
        let is_member = self.traffic.conns.get(&conn).is_some_and(|conn| conn.members.contains_key(&seat));
        let (now_ms, ending, order) = (self.now_ms, self.ending, self.traffic.deliveries);
        let not_before_ms = now_ms + nack.delay_ms.unwrap_or(0);
        let item = self
            .traffic
            .items
            .get_mut(&seat.spot(nack.partition))
            .and_then(|items| items.get_mut(&nack.offset));
        let Some(item) = item.filter(|_| is_member) else { return };
        if item.surely_held(now_ms).is_some_and(|lease| lease.conn == conn) && !ending {
            item.not_before_ms = not_before_ms;
            item.lease = None;
            item.answered = true;
            item.refused = order;
        } else {
            // The event may be completed already, and this nack asks for it again; or the nack may be refused.
            item.acked = Acked::Maybe;
            item.asked_back = true;
            item.lease = item.lease.map(|lease| Lease { certain: false, ..lease });
        }
    }

    fn given_back(&mut self, conn: ConnId, given: &GiveBack) {
        let seat = Seat { topic: given.topic.clone(), group: given.group.clone() };
        let (now_ms, ending) = (self.now_ms, self.ending);
        let items = self.traffic.items.get_mut(&seat.spot(given.partition));
        let Some(item) = items.and_then(|items| items.get_mut(&given.offset)) else { return };
        if item.surely_held(now_ms).is_some_and(|lease| lease.conn == conn) && !ending {
            item.give_back();
        } else if item.possibly_held(now_ms).is_some_and(|lease| lease.conn == conn) {
            item.miscounted = true;
            item.lease = item.lease.map(|lease| Lease { certain: false, ..lease });
        }
    }

    fn delivered(&mut self, conn: ConnId, group: &Group, event: &Event) {
        let until_ms = self.now_ms + self.ack_timeout_ms(&event.stream.topic);
        let spot = spot_of(group, event);
        // A topic that is deleted and made anew has other settings than the ledger still shows.
        let certain = !self.traffic.is_dropping(&event.stream.topic);
        let Some(to) = self.traffic.conns.get_mut(&conn) else { return };
        to.credits = to.credits.map(|credits| credits.saturating_sub(1));
        self.traffic.deliveries += 1;
        let order = self.traffic.deliveries;
        let reached = to.closed_in_turn.is_none() && to.members.contains_key(&spot.seat);
        let item = self.traffic.items.entry(spot).or_default().entry(event.offset).or_default();
        if item.answered || item.last != Some(conn) {
            item.ackable = order;
        }
        (item.order, item.answered, item.last) = (order, false, Some(conn));
        item.sends += 1;
        item.sends_this_life += 1;
        item.acked = Acked::No;
        item.not_before_ms = 0;
        item.lease = reached.then_some(Lease { conn, until_ms, certain });
    }
}

pub(crate) fn spot_of(group: &Group, event: &Event) -> Spot {
    Seat { topic: event.stream.topic.clone(), group: group.clone() }.spot(event.stream.partition)
}
