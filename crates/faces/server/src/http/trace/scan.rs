//! A bounded walk over many streams at once, in order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_model::{Event, Offset, Stream, Timestamp};
use millrace_store::{ReadLimit, Store, StoreError, StreamBounds};

/// Events and bytes that are in memory for all streams together, and the least for each.
const HELD_EVENTS: usize = 4096;
const HELD_BYTES: usize = 8 << 20;
const LANE_EVENTS: (usize, usize) = (16, 512);
const LANE_BYTES_MIN: usize = 64 << 10;

/// The last event that was looked at. The order is that of time, then of topic, partition and offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) ts: Timestamp,
    pub(super) stream: Stream,
    pub(super) offset: Offset,
}

impl Position {
    fn of(event: &Event) -> Position {
        Position { ts: event.ts, stream: event.stream.clone(), offset: event.offset }
    }
}

#[derive(Clone, Debug)]
pub(super) enum ScanStart {
    At(Timestamp),
    After(Position),
    /// So many of the newest events of each stream: nothing is known about the time.
    Newest(u64),
}

#[derive(Debug)]
pub(super) struct ScanEnd {
    pub(super) scanned: u64,
    pub(super) last: Option<Position>,
    /// Every event there was has been looked at.
    pub(super) finished: bool,
}

/// A stream of the walk: what was read of it, and where to read on.
struct Lane<'a> {
    bounds: &'a StreamBounds,
    read: VecDeque<Arc<Event>>,
    next: Offset,
}

/// Calls `each` with the events of the streams in order of time, until it breaks or `budget` events were looked at. An
/// event at which it breaks counts as looked at.
pub(super) fn each_event(
    store: &dyn Store,
    streams: &[StreamBounds],
    start: &ScanStart,
    budget: u64,
    mut each: impl FnMut(&Arc<Event>) -> ControlFlow<()>,
) -> Result<ScanEnd, StoreError> {
    let mut ordered: Vec<&StreamBounds> = streams.iter().collect();
    ordered.sort_by(|a, b| a.stream.cmp(&b.stream));
    let count = ordered.len().max(1);
    let limit = ReadLimit {
        events_max: (HELD_EVENTS / count).clamp(LANE_EVENTS.0, LANE_EVENTS.1),
        bytes_max: (HELD_BYTES / count).max(LANE_BYTES_MIN),
    };
    let mut end = ScanEnd { scanned: 0, last: None, finished: false };
    let (mut lanes, mut heap) = (Vec::new(), BinaryHeap::new());
    for bounds in ordered {
        let next = first(store, bounds, start)?;
        let mut lane = Lane { bounds, read: VecDeque::new(), next };
        lane.fill(store, limit, &mut end.scanned, budget)?;
        heap.extend(lane.read.front().map(|event| Reverse((event.ts, lanes.len()))));
        lanes.push(lane);
    }
    while let Some(Reverse((_, at))) = heap.pop() {
        let Some(lane) = lanes.get_mut(at) else { continue };
        let Some(event) = lane.read.pop_front() else { continue };
        end.scanned += 1;
        end.last = Some(Position::of(&event));
        let flow = each(&event);
        if lane.read.is_empty() {
            lane.fill(store, limit, &mut end.scanned, budget)?;
        }
        heap.extend(lane.read.front().map(|event| Reverse((event.ts, at))));
        if flow.is_break() || end.scanned >= budget {
            end.finished = heap.is_empty() && lanes.iter().all(Lane::is_read);
            return Ok(end);
        }
    }
    end.finished = lanes.iter().all(Lane::is_read);
    Ok(end)
}

fn first(store: &dyn Store, bounds: &StreamBounds, start: &ScanStart) -> Result<Offset, StoreError> {
    let oldest = bounds.start.max(Offset::FIRST);
    Ok(match start {
        ScanStart::At(ts) => store.seek(&bounds.stream, *ts)?,
        ScanStart::Newest(part) => Offset(bounds.next.0.saturating_sub(*part)).max(oldest),
        ScanStart::After(last) => match bounds.stream.cmp(&last.stream) {
            std::cmp::Ordering::Equal => last.offset.next(),
            // Events of the same time come first in the streams before, and are still to come in those behind.
            std::cmp::Ordering::Less => store.seek(&bounds.stream, Timestamp(last.ts.0.saturating_add(1)))?,
            std::cmp::Ordering::Greater => store.seek(&bounds.stream, last.ts)?,
        },
    })
}

impl Lane<'_> {
    fn is_read(&self) -> bool {
        self.read.is_empty() && self.next >= self.bounds.next
    }

    /// Reads on until there is an event or nothing is left. Reads that find nothing count as one event, so that long
    /// stretches without events end, too.
    fn fill(
        &mut self,
        store: &dyn Store,
        limit: ReadLimit,
        scanned: &mut u64,
        budget: u64,
    ) -> Result<(), StoreError> {
        while self.read.is_empty() && self.next < self.bounds.next && *scanned < budget {
            let page = store.read(&self.bounds.stream, self.next, limit)?;
            // Nothing at all: the bounds were read before the events were trimmed.
            self.next = if page.through < self.next { self.bounds.next } else { page.through.next() };
            *scanned += u64::from(page.events.is_empty());
            self.read.extend(page.events);
        }
        Ok(())
    }
}
