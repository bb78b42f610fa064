//! Compares the events that a topic retains, and its delayed events, with a new schema. The shell runs this outside the
//! engine's loop, because it reads and checks thousands of events.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{DueRow, Offset, Partition, Stream, TopicKey};

use crate::interface::input::ReadOutcome;
use crate::topics::schema::{PayloadMismatch, Quote, TopicSchema};

/// Events read and checked at a time, from the newest back.
const SLICE_EVENTS: u64 = 64;
/// Bytes of one read; an event that is larger comes alone.
const PAGE_BYTES: usize = 1 << 20;

/// Rows of delayed events read at a time.
const PAGE_ROWS: usize = 64;

/// A comparison to be run: the events of each partition, the newest first, within the bounds.
#[derive(Clone, Debug)]
pub struct RetainedCheck {
    pub schema: Arc<TopicSchema>,
    /// Each stream with the first offset that is retained and the offset of its next event.
    pub streams: Vec<(Stream, Offset, Offset)>,
    /// Bounds for all streams together; the bytes are looked at after each slice.
    pub events_max: u64,
    pub bytes_max: usize,
    /// `None` if there are no delayed events.
    pub delayed: Option<DelayedCheck>,
}

/// The topic's delayed events that were confirmed, in the order in which they are due.
#[derive(Clone, Debug)]
pub struct DelayedCheck {
    pub topic: TopicKey,
    /// See [`millrace_model::TopicRow::incarnation`].
    pub incarnation: u64,
    pub events_max: u64,
    pub bytes_max: usize,
    /// Most rows, of all topics, that are read.
    pub rows_max: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetainedOutcome {
    Match(Compared),
    /// All that were compared match, and the bounds left some out.
    Uncompared(UncomparedEvents),
    Breaks {
        event: BreakingEvent,
        why: String,
    },
}

/// An event that does not match a new schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakingEvent {
    Retained(Partition, Offset),
    Delayed,
    /// An event that is being published.
    Arriving,
}

/// Events that a new schema was not compared with, because there are more than the bounds allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncomparedEvents {
    /// Those of the partition below the offset, and perhaps some of other partitions.
    Below(Partition, Offset),
    /// Some delayed events.
    Delayed,
}

/// The events that a new schema was compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    pub ranges: Vec<CheckedRange>,
    /// How many delayed events.
    pub delayed: u64,
}

/// The events of a partition that were compared with a new schema: all that are retained between these offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedRange {
    pub partition: Partition,
    pub from: Offset,
    pub through: Offset,
}

impl RetainedCheck {
    /// Runs the comparison. `read` returns events of a stream from an offset on, within bounds of events and bytes;
    /// `scan` returns up to that many rows of the table of delayed events, from a key on. Returns `None` if either
    /// failed.
    pub fn run(
        &self,
        mut read: impl FnMut(&Stream, Offset, usize, usize) -> ReadOutcome,
        scan: impl FnMut(&str, usize) -> Option<Vec<(String, Bytes)>>,
    ) -> Option<RetainedOutcome> {
        let (mut compared, mut uncompared) = (Compared::default(), None);
        let (mut events_left, mut bytes) = (self.events_max, 0);
        for (stream, start, next) in &self.streams {
            let oldest = start.0.max(next.0.saturating_sub(events_left));
            let mut from = next.0;
            while from > oldest && bytes <= self.bytes_max {
                let end = from;
                from = oldest.max(end.saturating_sub(SLICE_EVENTS));
                let mut at = from;
                while at < end {
                    let page = read(stream, Offset(at), (end - at) as usize, PAGE_BYTES)?;
                    for event in page.events.iter().filter(|event| event.offset.0 < end) {
                        bytes += event.body.bytes();
                        if let Err(why) = self.schema.check(&event.body, Quote::Nothing) {
                            let event = BreakingEvent::Retained(stream.partition, event.offset);
                            return Some(RetainedOutcome::Breaks { event, why: why.to_string() });
                        }
                    }
                    at = page.through.0.max(at) + 1;
                }
            }
            events_left = events_left.saturating_sub(next.0 - from);
            if from > start.0 {
                uncompared.get_or_insert(UncomparedEvents::Below(stream.partition, Offset(from)));
            }
            if from < next.0 {
                let (from, through) = (Offset(from), next.before());
                compared.ranges.push(CheckedRange { partition: stream.partition, from, through });
            }
        }
        Some(match self.check_delayed(scan)? {
            Ok((delayed, all)) => {
                let uncompared = uncompared.or((!all).then_some(UncomparedEvents::Delayed));
                let matched = RetainedOutcome::Match(Compared { delayed, ..compared });
                uncompared.map_or(matched, RetainedOutcome::Uncompared)
            }
            Err(why) => RetainedOutcome::Breaks { event: BreakingEvent::Delayed, why: why.to_string() },
        })
    }

    /// Returns how many delayed events match and whether these are all of them, or why one does not match. A row that
    /// moves to its topic meanwhile is compared by the engine.
    fn check_delayed(
        &self,
        mut scan: impl FnMut(&str, usize) -> Option<Vec<(String, Bytes)>>,
    ) -> Option<Result<(u64, bool), PayloadMismatch>> {
        let Some(of) = &self.delayed else { return Some(Ok((0, true))) };
        let (mut from, mut looked_at, mut compared, mut bytes) = (String::new(), 0, 0, 0);
        while looked_at < of.rows_max && compared < of.events_max && bytes <= of.bytes_max {
            let rows = scan(&from, PAGE_ROWS)?;
            for (key, value) in &rows {
                // A row that cannot be read is set aside when it is due, and joins no topic.
                let row = DueRow::decode(key, value).ok();
                let Some(row) =
                    row.filter(|row| row.topic == of.topic.as_str() && row.incarnation == of.incarnation)
                else {
                    continue;
                };
                if let Err(why) = self.schema.check(&row.new_event().body, Quote::Nothing) {
                    return Some(Err(why));
                }
                (compared, bytes) = (compared + 1, bytes + value.len());
            }
            looked_at += rows.len() as u64;
            match rows.last() {
                // The smallest key after the last one.
                Some((last, _)) if rows.len() == PAGE_ROWS => from = format!("{last}\0"),
                _ => return Some(Ok((compared, true))),
            }
        }
        Some(Ok((compared, false)))
    }
}
