//! The parts of a trace that wait for their time: delayed events, and timers of the CQRS loop.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use millrace_model::{DueRow, EventId, Namespace, Requester, Space, Timestamp, TopicKey, keys};
use millrace_router::TIMER_PREFIX;
use millrace_store::{KeyRange, Store, StoreError, try_each_row};
use serde::Deserialize;

use crate::http::topic_access::may_read;

/// Rows that are read for one answer, of delayed events and of timers each: those that are due first.
const ROWS_MAX: usize = 10_000;
/// Such rows hold whole events.
const PAGE_ROWS: usize = 64;

/// The parts of a timer's row that a trace needs.
#[derive(Debug, Deserialize)]
pub(super) struct TimerRow {
    pub(super) due: Timestamp,
    after_ms: Option<u64>,
    /// The id of the `Timer.Set`.
    pub(super) set_by: String,
    #[serde(rename = "type")]
    pub(super) ty: String,
    pub(super) correlation: Option<String>,
    pub(super) actor: Option<String>,
}

impl TimerRow {
    pub(super) fn set_at(&self) -> Option<Timestamp> {
        self.after_ms.map(|ms| Timestamp(self.due.0.saturating_sub(ms)))
    }
}

/// The timer with this name, if it is durable and has not fired.
pub(super) fn timer(store: &dyn Store, name: &str) -> Result<Option<TimerRow>, StoreError> {
    let key = format!("{TIMER_PREFIX}{name}");
    let range = KeyRange { to: Some(format!("{key}\0")), from: key };
    let row = store.scan(Space::Kv, &range, 1)?.pop();
    Ok(row.and_then(|row| serde_json::from_slice(&row.value).ok()))
}

/// Calls `each` with the name and row of every timer. Returns false if there are more than are read.
pub(super) fn each_timer(
    store: &dyn Store,
    mut each: impl FnMut(&str, TimerRow),
) -> Result<bool, StoreError> {
    let mut left = ROWS_MAX;
    try_each_row(store, Space::Kv, KeyRange::prefix(TIMER_PREFIX), PAGE_ROWS, &mut |row| {
        if left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        left -= 1;
        if let (Some(name), Ok(timer)) =
            (row.key.strip_prefix(TIMER_PREFIX), serde_json::from_slice(&row.value))
        {
            each(name, timer);
        }
        Ok::<_, StoreError>(ControlFlow::Continue(()))
    })?;
    Ok(left > 0)
}

/// Calls `each` with the delayed events of the namespace whose topics `by` may read, and when they are due by the wall
/// clock, until it breaks. Returns false if there are more than are read.
pub(super) fn each_delayed(
    store: &dyn Store,
    namespace: &Namespace,
    by: &Requester,
    mut each: impl FnMut(&EventId, DueRow, Option<Timestamp>) -> ControlFlow<()>,
) -> Result<bool, StoreError> {
    let prefix = format!("{namespace}/");
    let mut left = ROWS_MAX;
    let mut readable: BTreeMap<String, bool> = BTreeMap::new();
    let range = KeyRange { from: String::new(), to: Some(keys::DUE_END.to_owned()) };
    try_each_row(store, Space::Due, range, PAGE_ROWS, &mut |row| {
        if left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        left -= 1;
        // An event that waits for a duration is due at a moment of elapsed time, which is no time of day.
        let due = keys::due_time(&row.key).filter(|_| !row.key.starts_with(keys::DUE_AFTER));
        let delayed = DueRow::decode(&row.key, &row.value).ok().filter(|row| row.topic.starts_with(&prefix));
        let Some(delayed) = delayed else { return Ok(ControlFlow::Continue(())) };
        let may = match (readable.get(&delayed.topic), TopicKey::parse(&delayed.topic)) {
            (Some(known), _) => *known,
            (None, Ok(topic)) => may_read(store, by, &topic)?,
            (None, Err(_)) => false,
        };
        readable.insert(delayed.topic.clone(), may);
        Ok::<_, StoreError>(match delayed.id.clone().filter(|_| may) {
            Some(id) => each(&id, delayed, due),
            None => ControlFlow::Continue(()),
        })
    })?;
    Ok(left > 0)
}

/// The delayed event with this id.
pub(super) fn delayed_with(
    store: &dyn Store,
    namespace: &Namespace,
    by: &Requester,
    id: &EventId,
) -> Result<Option<DueRow>, StoreError> {
    let mut found = None;
    each_delayed(store, namespace, by, |of, row, _| {
        if of != id {
            return ControlFlow::Continue(());
        }
        found = Some(row);
        ControlFlow::Break(())
    })?;
    Ok(found)
}
