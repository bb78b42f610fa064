//! Searching a topic: in either order, over one partition or all of them merged by time, with a filter. Every search
//! looks at a bounded number of events, says how many, and hands out a cursor to go on.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use millrace_model::{Event, Offset, Partition, Timestamp, TopicKey};
use millrace_store::{ReadLimit, Store, StoreError, StreamBounds};
use millrace_wire::ErrorCode;

use crate::http::event_filter::EventFilter;
use crate::params::Params;
use crate::refusal::Refusal;

/// Partitions that are merged. Each holds a few events in memory meanwhile.
const MERGED_MAX: usize = 64;
/// Events read at a time, and bytes, for all partitions together.
const CHUNK_EVENTS: u64 = 128;
const CHUNK_BYTES: usize = 4 << 20;
/// Reads that find nothing, because compaction has removed the events: a search gives up after so many.
const EMPTY_READS_MAX: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

impl Order {
    pub(crate) fn of(params: &Params) -> Result<Order, Refusal> {
        match params.text("order") {
            None | Some("asc") => Ok(Order::Ascending),
            Some("desc") => Ok(Order::Descending),
            Some(other) => {
                let detail = format!("order is {other:.40?}: it must be asc or desc");
                Err(Refusal::new(ErrorCode::BadFrame, detail))
            }
        }
    }
}

/// Where a search begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SearchStart {
    /// At the oldest event, or in descending order at the newest.
    End,
    /// At this offset of a single partition.
    Offset(Offset),
    /// At this time, or in descending order with the last event before it.
    Timestamp(Timestamp),
    /// Behind all events there are.
    Latest,
    Cursor(Cursor),
}

/// The next offset of each partition; in descending order the one below the last that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor(pub(crate) Vec<(Partition, u64)>);

impl Cursor {
    pub(crate) fn parse(text: &str) -> Result<Cursor, Refusal> {
        let bad = || {
            let detail = format!("cursor is {text:.80?}: it must be the cursor of the page before");
            Refusal::new(ErrorCode::BadFrame, detail)
        };
        let mut places = Vec::new();
        for part in text.split(',') {
            let (partition, offset) = part.split_once(':').ok_or_else(bad)?;
            let partition = Partition(partition.parse().map_err(|_| bad())?);
            places.push((partition, offset.parse().map_err(|_| bad())?));
            if places.len() > MERGED_MAX {
                return Err(bad());
            }
        }
        Ok(Cursor(places))
    }

    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for (partition, offset) in &self.0 {
            let comma = if out.is_empty() { "" } else { "," };
            // Writing to a `String` cannot fail.
            let _ = write!(out, "{comma}{partition}:{offset}");
        }
        out
    }
}

/// The events to look for, and how many to look at.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) topic: TopicKey,
    pub(crate) order: Order,
    /// `None` = all partitions.
    pub(crate) partition: Option<Partition>,
    pub(crate) filter: EventFilter,
    pub(crate) events_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) scan_max: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) cursor: Cursor,
    pub(crate) scanned: u64,
    /// There are events that were not looked at.
    pub(crate) more: bool,
    pub(crate) damaged: usize,
}

/// A partition of a search.
struct Lane {
    bounds: StreamBounds,
    /// The next offset to look at.
    next: u64,
    read: VecDeque<Arc<Event>>,
    /// The next offset to read, ahead of `next`.
    read_next: u64,
    chunk: u64,
}

/// Why a search cannot be made.
#[derive(Debug)]
pub(crate) enum SearchError {
    TooManyPartitions(usize),
}

impl From<SearchError> for Refusal {
    fn from(error: SearchError) -> Refusal {
        let SearchError::TooManyPartitions(found) = error;
        let detail = format!(
            "the topic has {found} partitions, and at most {MERGED_MAX} are merged: name one with partition=N"
        );
        Refusal::new(ErrorCode::BadFrame, detail)
    }
}

impl Search {
    pub(crate) fn run(
        &self,
        store: &dyn Store,
        start: &SearchStart,
    ) -> Result<Result<Found, SearchError>, StoreError> {
        let mut lanes = match self.lanes(store, start)? {
            Ok(lanes) => lanes,
            Err(error) => return Ok(Err(error)),
        };
        let mut found = Found::default();
        let (mut bytes, mut empty_reads) = (0, 0);
        let chunk_bytes = (CHUNK_BYTES / lanes.len().max(1)).max(1);
        'search: while found.events.len() < self.events_max && found.scanned < self.scan_max {
            let mut best: Option<(usize, (Timestamp, Partition, Offset))> = None;
            for (at, lane) in lanes.iter_mut().enumerate() {
                while lane.read.is_empty() && !self.is_done(lane) {
                    let before = found.damaged;
                    found.damaged += self.fill(store, lane, chunk_bytes)?;
                    if lane.read.is_empty() && found.damaged == before {
                        empty_reads += 1;
                        if empty_reads >= EMPTY_READS_MAX {
                            lane.next = lane.read_next;
                            break 'search;
                        }
                    }
                }
                let Some(event) = lane.read.front() else {
                    lane.next = lane.read_next;
                    continue;
                };
                let place = (event.ts, event.stream.partition, event.offset);
                let is_better = best.is_none_or(|(_, so_far)| match self.order {
                    Order::Ascending => place < so_far,
                    Order::Descending => place > so_far,
                });
                if is_better {
                    best = Some((at, place));
                }
            }
            let Some((at, _)) = best else { break };
            let Some(lane) = lanes.get_mut(at) else { break };
            let Some(event) = lane.read.pop_front() else { break };
            if self.filter.wants(&event) {
                let with_it = bytes + event.body.bytes();
                if with_it > self.bytes_max && !found.events.is_empty() {
                    break;
                }
                bytes = with_it;
                found.events.push(event.clone());
            }
            found.scanned += 1;
            lane.next = match self.order {
                Order::Ascending => event.offset.0 + 1,
                Order::Descending => event.offset.0 - 1,
            };
        }
        found.more = lanes.iter().any(|lane| !self.is_seen(lane));
        found.cursor = Cursor(lanes.iter().map(|lane| (lane.bounds.stream.partition, lane.next)).collect());
        Ok(Ok(found))
    }

    /// How many events lie behind a cursor, over all partitions; removed ones count.
    pub(crate) fn behind(&self, store: &dyn Store, cursor: &Cursor) -> Result<u64, StoreError> {
        let places = self.partitions(store)?;
        let next_of = |partition| cursor.0.iter().find(|(of, _)| *of == partition).map(|(_, next)| *next);
        let left = |bounds: &StreamBounds| {
            let next = next_of(bounds.stream.partition).unwrap_or(bounds.start.0).max(bounds.start.0);
            bounds.next.0.saturating_sub(next)
        };
        Ok(places.iter().map(left).sum())
    }

    fn partitions(&self, store: &dyn Store) -> Result<Vec<StreamBounds>, StoreError> {
        let mut found = store.streams()?;
        found.retain(|bounds| {
            bounds.stream.topic == self.topic
                && self.partition.is_none_or(|partition| partition == bounds.stream.partition)
        });
        found.sort_by_key(|bounds| bounds.stream.partition);
        Ok(found)
    }

    fn lanes(
        &self,
        store: &dyn Store,
        start: &SearchStart,
    ) -> Result<Result<Vec<Lane>, SearchError>, StoreError> {
        let found = self.partitions(store)?;
        if found.len() > MERGED_MAX {
            return Ok(Err(SearchError::TooManyPartitions(found.len())));
        }
        let mut lanes = Vec::new();
        for bounds in found {
            let (first, end) = (bounds.start.0.max(1), bounds.next.0.max(1));
            let next = match (start, self.order) {
                (SearchStart::End, Order::Ascending) => first,
                (SearchStart::End | SearchStart::Latest, Order::Descending) => end - 1,
                (SearchStart::Latest, Order::Ascending) => end,
                (SearchStart::Offset(offset), Order::Ascending) => offset.0.clamp(first, end),
                (SearchStart::Offset(offset), Order::Descending) => offset.0.min(end - 1),
                (SearchStart::Timestamp(ts), Order::Ascending) => {
                    store.seek(&bounds.stream, *ts)?.0.max(first)
                }
                (SearchStart::Timestamp(ts), Order::Descending) => {
                    store.seek(&bounds.stream, *ts)?.0.max(1) - 1
                }
                (SearchStart::Cursor(cursor), order) => {
                    let partition = bounds.stream.partition;
                    let named = cursor.0.iter().find(|(of, _)| *of == partition).map(|(_, next)| *next);
                    match order {
                        // A partition that is new since the cursor was made.
                        Order::Ascending => named.unwrap_or(first).max(first),
                        Order::Descending => named.unwrap_or(0).min(end - 1),
                    }
                }
            };
            lanes.push(Lane { bounds, next, read: VecDeque::new(), read_next: next, chunk: CHUNK_EVENTS });
        }
        Ok(Ok(lanes))
    }

    /// Nothing is left to read.
    fn is_done(&self, lane: &Lane) -> bool {
        match self.order {
            Order::Ascending => lane.read_next >= lane.bounds.next.0,
            Order::Descending => lane.read_next < lane.bounds.start.0.max(1),
        }
    }

    /// Nothing is left to look at.
    fn is_seen(&self, lane: &Lane) -> bool {
        match self.order {
            Order::Ascending => lane.next >= lane.bounds.next.0,
            Order::Descending => lane.next < lane.bounds.start.0.max(1),
        }
    }

    /// Reads the next events of a lane. Returns how many were damaged.
    fn fill(&self, store: &dyn Store, lane: &mut Lane, bytes_max: usize) -> Result<usize, StoreError> {
        match self.order {
            Order::Ascending => {
                let limit = ReadLimit { events_max: CHUNK_EVENTS as usize, bytes_max };
                let page = store.read(&lane.bounds.stream, Offset(lane.read_next), limit)?;
                // Nothing at all: the bounds were read before the events were trimmed.
                lane.read_next = match page.through.0 < lane.read_next {
                    true => lane.bounds.next.0,
                    false => page.through.0 + 1,
                };
                lane.read.extend(page.events);
                Ok(page.damaged.len())
            }
            Order::Descending => loop {
                let last = lane.read_next;
                let from = last.saturating_sub(lane.chunk - 1).max(lane.bounds.start.0.max(1));
                let limit = ReadLimit { events_max: (last - from + 1) as usize, bytes_max };
                let page = store.read(&lane.bounds.stream, Offset(from), limit)?;
                // A page ends at its bound of bytes: read fewer events then, or those between would be passed over.
                if page.through.0 < last && lane.chunk > 1 && page.through.0 >= from {
                    lane.chunk /= 2;
                    continue;
                }
                let wanted = page.events.into_iter().filter(|event| event.offset.0 <= last);
                let mut events: Vec<_> = wanted.collect();
                events.reverse();
                lane.read.extend(events);
                lane.read_next = from - 1;
                return Ok(page.damaged.len());
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        let cursor = Cursor(vec![(Partition(0), 12), (Partition(3), 0)]);
        assert_eq!(Cursor::parse(&cursor.text()).unwrap(), cursor);
        for text in ["", "0", "0:", "a:1", "0:1,", &"0:1,".repeat(100)] {
            assert!(Cursor::parse(text).is_err(), "{text}");
        }
    }
}
