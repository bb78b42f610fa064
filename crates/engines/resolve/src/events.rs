//! Reads single events for claims, several at once where they lie close together.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{Event, Offset, Partition, ReadLimit, Stream};

use crate::TxView;

/// Wanted events at most this far apart are read together, with the events between them.
const GAP_MAX: u64 = 4;
/// Events read ahead at once.
const AHEAD_MAX: u64 = 256;

#[derive(Clone, Debug)]
pub(super) enum Found {
    Event(Arc<Event>),
    Damaged,
    /// Trimmed or removed.
    Gone,
}

/// Events that were read ahead, all of one topic.
#[derive(Default)]
pub(super) struct Events {
    read: BTreeMap<(Partition, Offset), Found>,
}

impl Events {
    /// Returns the event at `offset`. `following` are the offsets that will probably be asked for next in this stream,
    /// ascending.
    pub(super) fn find<L: TxView>(
        &mut self,
        tx: &mut L,
        stream: &Stream,
        offset: Offset,
        following: impl Iterator<Item = Offset>,
        bytes_max: usize,
    ) -> Result<Found, L::Error> {
        if let Some(found) = self.read.remove(&(stream.partition, offset)) {
            return Ok(found);
        }
        let mut last = offset;
        for next in following.take_while(|next| next.0 < offset.0.saturating_add(AHEAD_MAX)) {
            if next <= last || next.0 - last.0 > GAP_MAX {
                break;
            }
            last = next;
        }
        let limit = ReadLimit { events_max: (last.0 - offset.0 + 1) as usize, bytes_max };
        let page = tx.read(stream, offset, limit)?;
        for damaged in page.damaged {
            self.read.insert((stream.partition, damaged), Found::Damaged);
        }
        for event in page.events {
            self.read.insert((stream.partition, event.offset), Found::Event(event));
        }
        Ok(self.read.remove(&(stream.partition, offset)).unwrap_or(Found::Gone))
    }
}
