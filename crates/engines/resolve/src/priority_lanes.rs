//! The lanes of a stream's events with another priority than the default. The store wrote a row for each of them when
//! it appended the event ([`Space::OffPriority`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use millrace_model::{Claim, KeyRange, LaneRow, Offset, Op, Row, Space, Timestamp, keys};

use crate::claim::{Order, Taking};
use crate::events::{Events, Found};
use crate::plain::PlainLane;
use crate::{StreamView, TxView};

/// Rows read at once from a lane.
const ROWS_MAX: usize = 128;

pub(super) struct OffLanes<'a> {
    stream_view: &'a StreamView,
    /// No event below this offset is wanted, in any of the lanes.
    from: Offset,
    /// How far the handler has come in each lane, as stored.
    stored: BTreeMap<u32, Offset>,
    /// How far the handler has come in each lane that this claim has advanced.
    moved: BTreeMap<u32, Offset>,
    lane: Option<u32>,
    /// The key from which the next lane is searched.
    seek: String,
    /// Events of the current lane that wait to be claimed: offset and time.
    rows: VecDeque<(Offset, Timestamp)>,
    /// The offset from which the current lane is read on.
    next: Offset,
    /// All lanes have been read to their ends.
    done: bool,
}

impl<'a> OffLanes<'a> {
    pub(super) fn new(stream_view: &'a StreamView, rows: &[Row], plain: &PlainLane<'_>) -> OffLanes<'a> {
        OffLanes {
            stream_view,
            from: plain.off().max(stream_view.start),
            stored: stored_lanes(stream_view, rows),
            moved: BTreeMap::new(),
            lane: None,
            seek: keys::off_priorities_of(&stream_view.stream, stream_view.incarnation),
            rows: VecDeque::new(),
            next: Offset::ZERO,
            done: plain.is_closed() || plain.off() >= stream_view.next,
        }
    }

    pub(super) fn peek<L: TxView>(
        &mut self,
        tx: &mut L,
        events_max: usize,
    ) -> Result<Option<Order>, L::Error> {
        loop {
            if let (Some(lane), Some((offset, ts))) = (self.lane, self.rows.front()) {
                return Ok(Some((Reverse(lane as i32), *ts, self.stream_view.stream.partition, *offset)));
            }
            if self.done {
                return Ok(None);
            }
            match self.lane {
                None => self.find_lane(tx)?,
                Some(lane) => self.fill(tx, lane, events_max.clamp(1, ROWS_MAX))?,
            }
        }
    }

    fn find_lane<L: TxView>(&mut self, tx: &mut L) -> Result<(), L::Error> {
        let all = KeyRange::prefix(&keys::off_priorities_of(
            &self.stream_view.stream,
            self.stream_view.incarnation,
        ));
        let found = tx.scan(Space::OffPriority, &KeyRange { from: self.seek.clone(), to: all.to }, 1)?;
        let Some(row) = found.first() else {
            self.done = true;
            return Ok(());
        };
        match keys::off_priority_place(&row.key) {
            Some((lane, _)) => {
                self.lane = Some(lane);
                self.next = self.stored.get(&lane).copied().unwrap_or_default().max(self.from);
            }
            None => self.seek = format!("{}\0", row.key),
        }
        Ok(())
    }

    fn fill<L: TxView>(&mut self, tx: &mut L, lane: u32, rows_max: usize) -> Result<(), L::Error> {
        let key =
            |offset| keys::off_priority(&self.stream_view.stream, self.stream_view.incarnation, lane, offset);
        let range = KeyRange { from: key(self.next), to: Some(key(self.stream_view.next)) };
        let found = if self.next < self.stream_view.next {
            tx.scan(Space::OffPriority, &range, rows_max)?
        } else {
            Vec::new()
        };
        if found.is_empty() {
            self.lane = None;
            match lane.checked_sub(1) {
                Some(lower) => {
                    self.seek = keys::off_priority(
                        &self.stream_view.stream,
                        self.stream_view.incarnation,
                        lower,
                        Offset::ZERO,
                    );
                }
                None => self.done = true,
            }
        }
        for row in found {
            let Some((_, offset)) = keys::off_priority_place(&row.key) else { continue };
            self.rows.push_back((offset, time_of(&row)));
            self.next = offset.next();
        }
        Ok(())
    }

    /// Claims the next event of the current lane. Returns whether the claim may go on.
    pub(super) fn take<L: TxView>(
        &mut self,
        tx: &mut L,
        events: &mut Events,
        taking: &mut Taking<'_>,
    ) -> Result<bool, L::Error> {
        let (Some(lane), Some((offset, _))) = (self.lane, self.rows.front().copied()) else {
            return Ok(true);
        };
        let following = self.rows.iter().skip(1).map(|(offset, _)| *offset);
        match events.find(tx, &self.stream_view.stream, offset, following, taking.room())? {
            Found::Event(event) if !taking.fits(&event) => return Ok(false),
            Found::Event(event) => taking.take_new(event, None),
            lost => {
                if matches!(lost, Found::Damaged) {
                    taking.lose(&self.stream_view.stream, offset, 0, &lost);
                }
                // Nothing can find the event any more, so the row has no use.
                let key =
                    keys::off_priority(&self.stream_view.stream, self.stream_view.incarnation, lane, offset);
                taking.taken.ops.push(Op::Delete { space: Space::OffPriority, key });
                taking.patience = taking.patience.saturating_sub(1);
            }
        }
        self.rows.pop_front();
        self.moved.insert(lane, offset.next());
        Ok(taking.patience > 0)
    }

    pub(super) fn is_unfinished(&self) -> bool {
        !self.rows.is_empty() || !self.done
    }

    /// Writes the rows that record how far the claim came in each lane.
    pub(super) fn finish(&self, plain: &mut PlainLane<'_>, ops: &mut Vec<Op>, claim: &Claim) {
        let key = |lane: u32| keys::lane(&claim.handler, &self.stream_view.stream, Some(lane));
        if self.is_unfinished() {
            for (lane, next) in &self.moved {
                let value = LaneRow { next: *next, off: Offset::ZERO }.encode();
                ops.push(Op::Put { space: Space::Lanes, key: key(*lane), value });
            }
        } else if !plain.is_closed() {
            plain.off_is_done();
            ops.extend(self.stored.keys().map(|lane| Op::Delete { space: Space::Lanes, key: key(*lane) }));
        }
    }
}

/// Returns how far the handler has come in each lane other than the plain one, by its stored rows.
pub(super) fn stored_lanes(stream_view: &StreamView, rows: &[Row]) -> BTreeMap<u32, Offset> {
    let mut stored = BTreeMap::new();
    for row in rows {
        let Some((partition, Some(lane))) = keys::lane_place(&row.key) else { continue };
        if partition == stream_view.stream.partition {
            // An unreadable row counts as the end: no event is handed out twice, and `doctor` names the row.
            let read = LaneRow::decode(&row.key, &row.value);
            stored.insert(lane, read.map_or(stream_view.next, |row| row.next));
        }
    }
    stored
}

/// Returns the time of the row's event, which is the row's value.
fn time_of(row: &Row) -> Timestamp {
    let text = std::str::from_utf8(&row.value).ok();
    Timestamp(text.and_then(|text| text.parse().ok()).unwrap_or_default())
}
