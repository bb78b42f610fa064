//! Lists the events that an engine has lost, after a copy that had them was made anew: compares the old copy with the new
//! one, stream by stream, from the newest event back to where both are the same.

use std::collections::HashMap;

use millrace_model::{EventId, Offset, Stream};
use millrace_store::{ReadLimit, Store, StoreError, StreamBounds};

use crate::handle::SharedHandle;

/// How many events are listed; more are only counted.
const LISTED_MAX: usize = 1_000;
/// How many events are compared at most.
const COMPARED_MAX: u64 = 1_000_000;
/// How many events are compared at once. As many events that are the same end the comparison of a stream.
const PAGE_EVENTS: u64 = 64;
const PAGE_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
struct LostEvents {
    count: u64,
    compared: u64,
    /// A JSON object each.
    lines: Vec<String>,
}

impl SharedHandle {
    /// Tells which events of the copy that was set aside are not in this store. Loud, and never in the way of opening.
    pub(crate) fn report_lost(&self, aside: &str) {
        let lost = self.copies.open_aside(aside).and_then(|old| compare(old.as_ref(), self.copy.as_ref()));
        let lost = match lost {
            Ok(lost) => lost,
            Err(error) => {
                tracing::error!(
                    "the engine has lost records, and {aside} cannot be read to tell which events are gone: {error}"
                );
                return;
            }
        };
        self.with_status(|status| status.lost_events = lost.count);
        let (events, listed) = (lost.count, lost.lines.len());
        if events == 0 {
            tracing::error!("the engine has lost records, but no event: the old copy lies at {aside}");
            return;
        }
        let mut text = lost.lines.join("\n");
        text.push('\n');
        match self.copies.write_beside(&format!(".lost-{}.ndjson", self.clock.wall_ms()), text.as_bytes()) {
            Ok(file) => tracing::error!(
                events,
                listed,
                "the engine has lost events: {file} lists them, and the copy that has them lies at {aside}"
            ),
            Err(error) => tracing::error!(
                events,
                "the engine has lost events, which cannot be listed ({error}): the copy that has them lies at {aside}"
            ),
        }
    }
}

fn compare(old: &dyn Store, new: &dyn Store) -> Result<LostEvents, StoreError> {
    let standing: HashMap<Stream, StreamBounds> =
        new.streams()?.into_iter().map(|bounds| (bounds.stream.clone(), bounds)).collect();
    let mut lost = LostEvents::default();
    for bounds in old.streams()? {
        let start = standing.get(&bounds.stream).map_or(Offset(0), |standing| standing.start);
        compare_stream(old, new, &bounds, start.max(bounds.start), &mut lost)?;
    }
    Ok(lost)
}

/// Compares the events from `start` on, the newest first. Events that both have trimmed are not lost.
fn compare_stream(
    old: &dyn Store,
    new: &dyn Store,
    bounds: &StreamBounds,
    start: Offset,
    lost: &mut LostEvents,
) -> Result<(), StoreError> {
    let stream = &bounds.stream;
    let mut end = bounds.next.0;
    while end > start.0 && lost.compared < COMPARED_MAX {
        let from = end.saturating_sub(PAGE_EVENTS).max(start.0);
        let (had, has) = (ids(old, stream, from, end)?, ids(new, stream, from, end)?);
        lost.compared += end - from;
        let mut gone: Vec<_> = had.iter().filter(|(offset, id)| has.get(offset) != Some(*id)).collect();
        if gone.is_empty() && !had.is_empty() {
            return Ok(());
        }
        gone.sort_unstable_by_key(|(offset, _)| std::cmp::Reverse(**offset));
        lost.count += gone.len() as u64;
        for (offset, id) in gone.into_iter().take(LISTED_MAX - lost.lines.len()) {
            let (topic, partition) = (stream.topic.as_str(), stream.partition.0);
            let id = id.to_string();
            let line =
                serde_json::json!({"topic": topic, "partition": partition, "offset": offset, "id": id});
            lost.lines.push(line.to_string());
        }
        end = from;
    }
    Ok(())
}

fn ids(store: &dyn Store, stream: &Stream, from: u64, end: u64) -> Result<HashMap<u64, EventId>, StoreError> {
    let mut ids = HashMap::new();
    let mut at = from;
    while at < end {
        let limit = ReadLimit { events_max: (end - at) as usize, bytes_max: PAGE_BYTES };
        let page = store.read(stream, Offset(at), limit)?;
        ids.extend(page.events.iter().map(|event| (event.offset.0, event.id.clone())));
        if page.through.0 < at {
            break;
        }
        at = page.through.0 + 1;
    }
    Ok(ids)
}
