//! The plain lane of a stream: its events in offset order, without those that wait in the lanes of
//! `priority_lanes.rs`. For a claim in order of keys this is the only lane, and it walks over events of every priority.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_model::{Claim, Event, KeyRange, LaneRow, Offset, Op, ReadLimit, Row, Space, keys, lane_of};

use crate::claim::{Order, PLAIN_RANK, Taking};
use crate::events::Found;
use crate::priority_lanes::stored_lanes;
use crate::{StreamView, TxView};

/// The largest page. The first page is as large as the claim needs, and each further page twice the last.
const PAGE_MAX: usize = 256;

pub(super) struct PlainLane<'a> {
    stream_view: &'a StreamView,
    stored: LaneRow,
    row: LaneRow,
    /// The lane's row cannot be read: nothing is claimed, so that no event is handed out twice. `doctor` names the row.
    closed: bool,
    events: VecDeque<Arc<Event>>,
    /// The offset from which the stream is read on.
    next: Offset,
    page: usize,
    page_bytes: usize,
    /// Set for a claim in order of keys: how far claims by priority have come in each of the other lanes.
    whole: Option<BTreeMap<u32, Offset>>,
}

impl<'a> PlainLane<'a> {
    /// Returns the lane of a claim in order of keys. Begins at the first offset where an event of any lane may be left.
    pub(super) fn whole(
        stream_view: &'a StreamView,
        rows: &[Row],
        page: usize,
        page_bytes: usize,
    ) -> PlainLane<'a> {
        let whole = Some(stored_lanes(stream_view, rows));
        let plain = PlainLane::new(stream_view, rows, page, page_bytes);
        PlainLane { whole, next: plain.row.unseen_from().max(stream_view.start), ..plain }
    }

    pub(super) fn new(
        stream_view: &'a StreamView,
        rows: &[Row],
        page: usize,
        page_bytes: usize,
    ) -> PlainLane<'a> {
        let is_mine = |row: &&Row| keys::lane_place(&row.key) == Some((stream_view.stream.partition, None));
        let read = rows.iter().find(is_mine).map(|row| LaneRow::decode(&row.key, &row.value));
        let closed = matches!(read, Some(Err(_)));
        let row = read.and_then(Result::ok).unwrap_or_default();
        let next = row.next.max(stream_view.start);
        PlainLane {
            stream_view,
            stored: row.clone(),
            row,
            closed,
            events: VecDeque::new(),
            next,
            page: page.min(PAGE_MAX),
            page_bytes,
            whole: None,
        }
    }

    /// Returns the offset below which no event of the other lanes is wanted.
    pub(super) fn off(&self) -> Offset {
        self.row.off
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn off_is_done(&mut self) {
        self.row.off = self.stream_view.next;
    }

    pub(super) fn peek<L: TxView>(
        &mut self,
        tx: &mut L,
        taking: &mut Taking<'_>,
    ) -> Result<Option<Order>, L::Error> {
        while self.events.is_empty()
            && self.next < self.stream_view.next
            && taking.patience > 0
            && !self.closed
        {
            self.fill(tx, taking)?;
        }
        Ok(self
            .events
            .front()
            .map(|event| (Reverse(PLAIN_RANK), event.ts, self.stream_view.stream.partition, event.offset)))
    }

    fn fill<L: TxView>(&mut self, tx: &mut L, taking: &mut Taking<'_>) -> Result<(), L::Error> {
        let limit = ReadLimit { events_max: self.page, bytes_max: self.page_bytes };
        self.page = (self.page * 2).min(PAGE_MAX);
        let mut page = tx.read(&self.stream_view.stream, self.next, limit)?;
        page.events.retain(|event| event.offset < self.stream_view.next);
        for offset in page.damaged.into_iter().filter(|offset| *offset < self.stream_view.next) {
            taking.lose(&self.stream_view.stream, offset, 0, &Found::Damaged);
            taking.patience = taking.patience.saturating_sub(1);
        }
        let skipped = match &self.whole {
            None => self.in_other_lanes(tx, &page.events)?,
            Some(stored) => self.taken_before(tx, &page.events, stored)?,
        };
        let seen = page.events.len();
        self.events.extend(page.events.into_iter().filter(|event| !skipped.contains(&event.offset)));
        taking.patience = taking.patience.saturating_sub(seen - self.events.len());
        // A page always advances; should an adapter's page not, the lane ends here instead of looping.
        let through = page.through.next().min(self.stream_view.next);
        self.next = if through > self.next { through } else { self.stream_view.next };
        Ok(())
    }

    /// Returns which of the events wait in another lane. An event with another priority than the default that has no
    /// row there (it is older than such rows, or the row was lost) is claimed from the plain lane: late, but not never.
    fn in_other_lanes<L: TxView>(
        &self,
        tx: &mut L,
        events: &[Arc<Event>],
    ) -> Result<BTreeSet<Offset>, L::Error> {
        let off = events.iter().filter_map(|event| Some((lane_of(event.body.priority)?, event.offset)));
        self.with_rows(tx, off)
    }

    /// Returns which of the events earlier claims by priority have taken, each through the lane that has a row for it.
    /// Reads rows only where the plain lane and the event's own lane differ in how far they are, so only while such
    /// claims have left events behind.
    fn taken_before<L: TxView>(
        &self,
        tx: &mut L,
        events: &[Arc<Event>],
        stored: &BTreeMap<u32, Offset>,
    ) -> Result<BTreeSet<Offset>, L::Error> {
        let (mut taken, mut unclear) = (BTreeSet::new(), Vec::new());
        for Event { offset, body, .. } in events.iter().map(AsRef::as_ref) {
            let by_plain = *offset < self.row.next;
            let own = lane_of(body.priority);
            let by_own = own.map_or(by_plain, |lane| {
                *offset < stored.get(&lane).copied().unwrap_or_default().max(self.row.off)
            });
            match own {
                Some(lane) if by_own != by_plain => unclear.push((lane, *offset, by_own)),
                _ if by_own => drop(taken.insert(*offset)),
                _ => {}
            }
        }
        let filed = self.with_rows(tx, unclear.iter().map(|(lane, offset, _)| (*lane, *offset)))?;
        // An event without a row belonged to the plain lane, whose answer is the opposite of `by_own` here.
        let found = unclear.into_iter().filter(|(_, offset, by_own)| filed.contains(offset) == *by_own);
        taken.extend(found.map(|(_, offset, _)| offset));
        Ok(taken)
    }

    /// Returns which of these events, given by lane and ascending offset, have a row in their lane.
    fn with_rows<L: TxView>(
        &self,
        tx: &mut L,
        events: impl Iterator<Item = (u32, Offset)>,
    ) -> Result<BTreeSet<Offset>, L::Error> {
        let mut ends: BTreeMap<u32, (Offset, Offset)> = BTreeMap::new();
        for (lane, offset) in events {
            ends.entry(lane).or_insert((offset, offset)).1 = offset;
        }
        let mut found = BTreeSet::new();
        for (lane, (first, last)) in ends {
            let key = |offset| {
                keys::off_priority(&self.stream_view.stream, self.stream_view.incarnation, lane, offset)
            };
            let range = KeyRange { from: key(first), to: Some(key(last.next())) };
            for row in tx.scan(Space::OffPriority, &range, (last.0 - first.0 + 1) as usize)? {
                found.extend(keys::off_priority_place(&row.key).map(|(_, offset)| offset));
            }
        }
        Ok(found)
    }

    /// Returns the next event, if [`PlainLane::peek`] has found one.
    pub(super) fn front(&self) -> Option<&Arc<Event>> {
        self.events.front()
    }

    pub(super) fn pop(&mut self) -> Option<Arc<Event>> {
        self.events.pop_front()
    }

    /// Claims the next event. Returns whether the claim may go on.
    pub(super) fn take(&mut self, taking: &mut Taking<'_>) -> bool {
        match self.events.pop_front() {
            Some(event) if !taking.fits(&event) => {
                self.events.push_front(event);
                false
            }
            Some(event) => {
                taking.take_new(event, None);
                true
            }
            None => true,
        }
    }

    fn position(&self) -> Offset {
        self.events.front().map_or(self.next, |event| event.offset)
    }

    pub(super) fn is_unfinished(&self) -> bool {
        !self.closed && self.position() < self.stream_view.next
    }

    /// Writes the row that records how far the claim came in this lane.
    pub(super) fn finish(&mut self, ops: &mut Vec<Op>, claim: &Claim) {
        let position = self.position();
        if let Some(stored) = self.whole.as_ref().filter(|_| !self.closed) {
            // Below `position` no event of any lane is left, so rows of lanes that say no more than that are deleted.
            self.row.off = self.row.off.max(position);
            let passed = stored.iter().filter(|(_, next)| **next <= self.row.off);
            let key = |lane: u32| keys::lane(&claim.handler, &self.stream_view.stream, Some(lane));
            ops.extend(passed.map(|(lane, _)| Op::Delete { space: Space::Lanes, key: key(*lane) }));
        }
        self.row.next = self.row.next.max(position);
        if self.row != self.stored && !self.closed {
            let key = keys::lane(&claim.handler, &self.stream_view.stream, None);
            ops.push(Op::Put { space: Space::Lanes, key, value: self.row.encode() });
        }
    }
}
