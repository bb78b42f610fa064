//! The plain lane of one stream: its events in offset order, without those that wait in other lanes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_model::{Claim, Event, LaneRow, Offset, Op, Space, keys, lane_of};

use super::claim::{Order, PLAIN_RANK, Taking};
use super::events::Found;
use super::{Look, Looked};
use crate::port::{KeyRange, ReadLimit, Row};

/// Largest page; the first one is as large as the claim needs, and each further one twice the last.
const PAGE_MAX: usize = 256;

pub(super) struct PlainLane<'a> {
    looked: &'a Looked,
    stored: LaneRow,
    row: LaneRow,
    /// Its row cannot be read: nothing is taken, so that nothing is handed out twice. `doctor` names the row.
    closed: bool,
    events: VecDeque<Arc<Event>>,
    /// Where it is read on.
    next: Offset,
    page: usize,
    page_bytes: usize,
}

impl<'a> PlainLane<'a> {
    pub(super) fn new(looked: &'a Looked, rows: &[Row], page: usize, page_bytes: usize) -> PlainLane<'a> {
        let is_mine = |row: &&Row| keys::lane_place(&row.key) == Some((looked.stream.partition, None));
        let read = rows.iter().find(is_mine).map(|row| LaneRow::decode(&row.key, &row.value));
        let closed = matches!(read, Some(Err(_)));
        let row = read.and_then(Result::ok).unwrap_or_default();
        let next = row.next.max(looked.start);
        PlainLane {
            looked,
            stored: row.clone(),
            row,
            closed,
            events: VecDeque::new(),
            next,
            page: page.min(PAGE_MAX),
            page_bytes,
        }
    }

    /// Below, nothing of the other lanes is wanted.
    pub(super) fn off(&self) -> Offset {
        self.row.off
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn off_is_done(&mut self) {
        self.row.off = self.looked.next;
    }

    pub(super) fn peek<L: Look>(
        &mut self,
        look: &mut L,
        taking: &mut Taking<'_>,
    ) -> Result<Option<Order>, L::Error> {
        while self.events.is_empty() && self.next < self.looked.next && taking.patience > 0 && !self.closed {
            self.fill(look, taking)?;
        }
        Ok(self
            .events
            .front()
            .map(|event| (Reverse(PLAIN_RANK), event.ts, self.looked.stream.partition, event.offset)))
    }

    fn fill<L: Look>(&mut self, look: &mut L, taking: &mut Taking<'_>) -> Result<(), L::Error> {
        let limit = ReadLimit { events_max: self.page, bytes_max: self.page_bytes };
        self.page = (self.page * 2).min(PAGE_MAX);
        let mut page = look.read(&self.looked.stream, self.next, limit)?;
        page.events.retain(|event| event.offset < self.looked.next);
        for offset in page.damaged.into_iter().filter(|offset| *offset < self.looked.next) {
            taking.lose(&self.looked.stream, offset, 0, &Found::Damaged);
            taking.patience = taking.patience.saturating_sub(1);
        }
        let elsewhere = self.elsewhere(look, &page.events)?;
        let seen = page.events.len();
        self.events.extend(page.events.into_iter().filter(|event| !elsewhere.contains(&event.offset)));
        taking.patience = taking.patience.saturating_sub(seen - self.events.len());
        // A page always gets somewhere; should an adapter's not, the lane ends here rather than never.
        let through = page.through.next().min(self.looked.next);
        self.next = if through > self.next { through } else { self.looked.next };
        Ok(())
    }

    /// Which of the events wait in another lane. An event off the plain priority without a row there (it is older than
    /// such rows, or the row was lost) is taken here: late, but not never.
    fn elsewhere<L: Look>(&self, look: &mut L, events: &[Arc<Event>]) -> Result<BTreeSet<Offset>, L::Error> {
        let mut ends: BTreeMap<u32, (Offset, Offset)> = BTreeMap::new();
        for event in events {
            if let Some(lane) = lane_of(event.body.priority) {
                ends.entry(lane).or_insert((event.offset, event.offset)).1 = event.offset;
            }
        }
        let mut found = BTreeSet::new();
        for (lane, (first, last)) in ends {
            let key = |offset| keys::off_priority(&self.looked.stream, self.looked.made, lane, offset);
            let range = KeyRange { from: key(first), to: Some(key(last.next())) };
            for row in look.scan(Space::OffPriority, &range, (last.0 - first.0 + 1) as usize)? {
                found.extend(keys::off_priority_place(&row.key).map(|(_, offset)| offset));
            }
        }
        Ok(found)
    }

    /// Whether the claim may go on.
    pub(super) fn take(&mut self, taking: &mut Taking<'_>) -> bool {
        match self.events.pop_front() {
            Some(event) if !taking.fits(&event) => {
                self.events.push_front(event);
                false
            }
            Some(event) => {
                taking.take_new(event);
                true
            }
            None => true,
        }
    }

    fn position(&self) -> Offset {
        self.events.front().map_or(self.next, |event| event.offset)
    }

    pub(super) fn is_unfinished(&self) -> bool {
        !self.closed && self.position() < self.looked.next
    }

    /// The row that says how far it came.
    pub(super) fn finish(&mut self, ops: &mut Vec<Op>, claim: &Claim) {
        self.row.next = self.position();
        if self.row != self.stored && !self.closed {
            let key = keys::lane(&claim.handler, &self.looked.stream, None);
            ops.push(Op::Put { space: Space::Lanes, key, value: self.row.encode() });
        }
    }
}
