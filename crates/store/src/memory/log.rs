//! One stream: its retained events in offset order.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_model::{Event, EventBody, Offset, Stream, Timestamp};

use crate::port::{Page, ReadLimit, Retention, StreamBounds};

/// `events` holds exactly the offsets from `start` up to, not including, `next`.
#[derive(Clone)]
pub(super) struct Log {
    start: Offset,
    next: Offset,
    last_ts: Timestamp,
    bytes: u64,
    events: VecDeque<Arc<Event>>,
}

/// What an event counts for in a stream's size: what its author wrote, not what a particular store adds.
fn content_bytes(body: &EventBody) -> u64 {
    let key = body.key.as_ref().map_or(0, |key| key.len());
    let headers = body.headers.as_ref().map_or(0, |headers| headers.json().bytes().len());
    (body.payload.bytes().len() + key + headers) as u64
}

impl Log {
    pub(super) fn new() -> Log {
        Log {
            start: Offset::FIRST,
            next: Offset::FIRST,
            last_ts: Timestamp::default(),
            bytes: 0,
            events: VecDeque::new(),
        }
    }

    pub(super) fn next(&self) -> Offset {
        self.next
    }

    pub(super) fn last_ts(&self) -> Timestamp {
        self.last_ts
    }

    pub(super) fn get(&self, offset: Offset) -> Option<&Arc<Event>> {
        let at = offset.0.checked_sub(self.start.0)?;
        self.events.get(usize::try_from(at).ok()?)
    }

    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.last_ts = event.ts;
        self.next = event.offset.next();
        self.bytes += content_bytes(&event.body);
        self.events.push_back(event);
    }

    pub(super) fn trim(&mut self, start: Offset) {
        while self.start < start.min(self.next) {
            let gone = self.events.pop_front();
            self.bytes -= gone.map_or(0, |event| content_bytes(&event.body));
            self.start = self.start.next();
        }
    }

    pub(super) fn read(&self, from: Offset, limit: ReadLimit) -> Page {
        let from = from.clamp(self.start, self.next);
        let mut page = Page { through: from.before(), ..Page::default() };
        let mut bytes = 0;
        for event in self.events.range((from.0 - self.start.0) as usize..).take(limit.events_max) {
            bytes += event.body.bytes();
            if bytes > limit.bytes_max && !page.events.is_empty() {
                break;
            }
            page.through = event.offset;
            page.events.push(Arc::clone(event));
        }
        page
    }

    pub(super) fn seek(&self, ts: Timestamp) -> Offset {
        Offset(self.start.0 + self.events.partition_point(|event| event.ts < ts) as u64)
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
            Offset(self.next.0 - kept.count() as u64)
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
