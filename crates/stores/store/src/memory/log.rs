//! The log of a stream: its retained events in offset order.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_model::{Event, EventBody, Offset, Page, ReadLimit, Stream, Timestamp};

use crate::port::{Retention, StreamBounds};

/// `events` holds the offsets from `start` up to, not including, `next`, in order and without those that were removed.
#[derive(Clone)]
pub(super) struct StreamLog {
    /// The number of this stream among all that were ever made: tells it from an earlier stream of the same name.
    incarnation: u64,
    start: Offset,
    next: Offset,
    last_ts: Timestamp,
    bytes: u64,
    events: VecDeque<Arc<Event>>,
}

/// Returns what an event adds to its stream's size: the bytes its author wrote, without what a particular store adds.
fn content_bytes(body: &EventBody) -> u64 {
    let key = body.key.as_ref().map_or(0, |key| key.len());
    let headers = body.headers.as_ref().map_or(0, |headers| headers.json().bytes().len());
    (body.payload.bytes().len() + key + headers) as u64
}

impl StreamLog {
    pub(super) fn new(incarnation: u64) -> StreamLog {
        StreamLog {
            incarnation,
            start: Offset::FIRST,
            next: Offset::FIRST,
            last_ts: Timestamp::default(),
            bytes: 0,
            events: VecDeque::new(),
        }
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn next(&self) -> Offset {
        self.next
    }

    pub(super) fn last_ts(&self) -> Timestamp {
        self.last_ts
    }

    /// Returns the index of the first event at or behind the offset. Without gaps no search is necessary.
    fn place(&self, offset: Offset) -> usize {
        let first = self.events.front().map_or(self.next, |event| event.offset);
        let guess = offset.0.saturating_sub(first.0) as usize;
        match self.events.get(guess) {
            Some(event) if event.offset == offset => guess,
            None if guess == self.events.len() && self.next == offset => guess,
            _ => self.events.partition_point(|event| event.offset < offset),
        }
    }

    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.last_ts = event.ts;
        self.next = event.offset.next();
        self.bytes += content_bytes(&event.body);
        self.events.push_back(event);
    }

    /// Forgets the events before `start` and returns them.
    pub(super) fn trim(&mut self, start: Offset) -> Vec<Arc<Event>> {
        self.start = self.start.max(start.min(self.next));
        let mut trimmed = Vec::new();
        while let Some(gone) = self.events.pop_front_if(|event| event.offset < self.start) {
            self.bytes -= content_bytes(&gone.body);
            trimmed.push(gone);
        }
        trimmed
    }

    /// Removes the events at these offsets that lie below `compacted_to`, and returns them.
    pub(super) fn remove(&mut self, offsets: &[Offset], compacted_to: Offset) -> Vec<Arc<Event>> {
        let (bytes, mut removed) = (&mut self.bytes, Vec::new());
        self.events.retain(|event| {
            let gone = event.offset < compacted_to && offsets.binary_search(&event.offset).is_ok();
            if gone {
                *bytes -= content_bytes(&event.body);
                removed.push(Arc::clone(event));
            }
            !gone
        });
        removed
    }

    pub(super) fn read(&self, from: Offset, limit: ReadLimit) -> Page {
        let from = from.clamp(self.start, self.next);
        let mut page = Page { through: from.before(), ..Page::default() };
        let mut bytes = 0;
        for event in self.events.range(self.place(from)..) {
            bytes += event.body.bytes();
            let full = page.events.len() == limit.events_max;
            if full || bytes > limit.bytes_max && !page.events.is_empty() {
                return page;
            }
            page.through = event.offset;
            page.events.push(Arc::clone(event));
        }
        page.through = self.next.before();
        page
    }

    pub(super) fn seek(&self, ts: Timestamp) -> Offset {
        let at = self.events.partition_point(|event| event.ts < ts);
        self.events.get(at).map_or(self.next, |event| event.offset)
    }

    pub(super) fn retention_start(&self, rule: Retention) -> Offset {
        let by_age = rule.older_than.map_or(self.start, |ts| self.seek(ts));
        let by_size = rule.bytes_max.map_or(self.start, |bytes_max| {
            let mut bytes = 0;
            let newest_first = self.events.iter().rev();
            let kept = newest_first.take_while(|event| {
                bytes += content_bytes(&event.body);
                bytes <= bytes_max
            });
            kept.last().map_or(self.next, |event| event.offset)
        });
        by_age.max(by_size)
    }

    pub(super) fn bounds(&self, stream: &Stream) -> StreamBounds {
        StreamBounds {
            stream: stream.clone(),
            start: self.start,
            next: self.next,
            bytes: self.bytes,
            last_ts: self.last_ts,
        }
    }
}
