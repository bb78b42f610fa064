//! The record of the world of workers: everything that became durable, batch by batch, and the invariants that must
//! hold for it whatever goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_model::{
    Batch, ClaimRow, Done, Ending, Event, FinishedRow, HandlerId, Offset, Op, ScheduleRow, Space, Stream,
    Timestamp, keys,
};
use millrace_store::{KeyRange, Store};

use super::plan::{Plan, TICK};
use super::starts::{Life, Starts};
use crate::check::Violation;

#[derive(Debug, Default)]
pub(crate) struct Record {
    /// The ending of everything that has ended, by `stream/offset/handler`.
    pub(super) endings: BTreeMap<String, Ending>,
    /// Every event that was ever appended: retention removes events from the store, not from here.
    pub(super) events: BTreeMap<(Stream, Offset), Arc<Event>>,
    /// Where each stream begins.
    starts: BTreeMap<Stream, Offset>,
    /// Tags of the events that handlers made and that were stored.
    pub(super) tags: BTreeSet<String>,
    schedule_last: Timestamp,
    pub(crate) published: u64,
    ticks: u64,
    pub(super) run_starts: Starts,
}

pub(crate) const INVARIANTS: [&str; 16] = [
    "ended_once",
    "one_place",
    "emitted_with_ack",
    "stored_once",
    "fired_once",
    "gives_up",
    "attempts_are_runs",
    "order_per_key",
    "lease_respected",
    "nothing_lost",
    "state_is_fold",
    "counted_exactly",
    "no_ready_work_asleep",
    "no_busy_loop",
    "batches_fit",
    "trims_finished_only",
];

pub(crate) fn violation(invariant: &'static str, detail: String) -> Violation {
    Violation { invariant, detail }
}

/// Only the holder of a claim may end it.
pub(crate) fn held(session: &str, batch: &Batch, store: &dyn Store) -> Result<(), Violation> {
    for op in &batch.ops {
        let Op::Delete { space: Space::Claims, key } = op else { continue };
        let range = KeyRange { from: key.clone(), to: Some(format!("{key}\0")) };
        let row = store.scan(Space::Claims, &range, 1).ok().and_then(|rows| rows.into_iter().next());
        let holder =
            row.and_then(|row| ClaimRow::decode(&row.key, &row.value).ok()).and_then(|row| row.session);
        if holder.as_ref().is_none_or(|holder| holder.as_str() != session) {
            let detail = format!("{session} ends {key}, which is held by {holder:?}");
            return Err(violation("lease_respected", detail));
        }
    }
    Ok(())
}

impl Record {
    /// A batch has become durable.
    pub(crate) fn applied(
        &mut self,
        plan: &Plan,
        life: Life,
        batch: &Batch,
        done: &Done,
    ) -> Result<(), Violation> {
        let mut ended = BTreeSet::new();
        for op in &batch.ops {
            match op {
                Op::Put { space: Space::Finished, key, value } => {
                    let row = FinishedRow::decode(key, value)
                        .map_err(|error| violation("ended_once", error.to_string()))?;
                    if let Some(first) = self.endings.insert(key.clone(), row.ending) {
                        return Err(violation(
                            "ended_once",
                            format!("{key} ended as {:?} after {first:?}", row.ending),
                        ));
                    }
                    ended.insert(key.clone());
                }
                Op::Put { space: Space::Schedules, key, value } => {
                    let row = ScheduleRow::decode(key, value)
                        .map_err(|error| violation("fired_once", error.to_string()))?;
                    let fires = batch
                        .ops
                        .iter()
                        .any(|op| matches!(op, Op::Append(append) if append.stream.topic.topic() == TICK));
                    if fires && (row.last <= self.schedule_last || row.last > batch.now) {
                        let detail = format!(
                            "fires for {} at {}, the last was {}",
                            row.last, batch.now, self.schedule_last
                        );
                        return Err(violation("fired_once", detail));
                    }
                    self.schedule_last = self.schedule_last.max(row.last);
                }
                Op::Trim { stream, start } => self.trimmed(plan, batch.now, stream, *start)?,
                _ => {}
            }
        }
        self.run_starts.applied(life, batch, done)?;
        self.appended(batch, done, &ended)?;
        self.one_place(&ended, done)
    }

    fn appended(&mut self, batch: &Batch, done: &Done, ended: &BTreeSet<String>) -> Result<(), Violation> {
        let appends = batch.ops.iter().filter_map(|op| match op {
            Op::Append(append) => Some(append),
            _ => None,
        });
        for (append, appended) in appends.zip(&done.appended) {
            if appended.duplicate {
                let detail = format!("{} was stored before: the fences should have kept it out", appended.id);
                return Err(violation("stored_once", detail));
            }
            let event = Event {
                stream: append.stream.clone(),
                offset: appended.offset,
                ts: appended.ts,
                id: appended.id.clone(),
                body: append.event.body.clone(),
            };
            self.events.insert((event.stream.clone(), event.offset), Arc::new(event));
            self.ticks += u64::from(append.stream.topic.topic() == TICK);
            let payload: Option<String> = serde_json::from_str(append.event.body.payload.as_str()).ok();
            let Some(tag) = payload.filter(|text| text.contains('|')) else { continue };
            let mut parts = tag.split('|');
            let (handler, kind) = (parts.nth(1).unwrap_or_default(), parts.next().unwrap_or_default());
            let acked = ended.iter().any(|key| key.ends_with(&format!("/{handler}")));
            if kind == "emit" && !acked {
                return Err(violation(
                    "emitted_with_ack",
                    format!("{tag} appears without the ack of its run"),
                ));
            }
            if !self.tags.insert(tag.clone()) {
                return Err(violation("stored_once", format!("{tag} is stored twice")));
            }
        }
        Ok(())
    }

    /// Retention removes only old events, and only when every handler of their type is done with them.
    fn trimmed(
        &mut self,
        plan: &Plan,
        now: Timestamp,
        stream: &Stream,
        start: Offset,
    ) -> Result<(), Violation> {
        // A process whose clock is ahead may have trimmed further before.
        let known = self.starts.entry(stream.clone()).or_insert(Offset::ZERO);
        let before = std::mem::replace(known, start.max(*known)).min(start);
        let gone = self.events.range((stream.clone(), before)..(stream.clone(), start));
        let old = now.saturating_sub(plan.config.event_retention_ms);
        for event in gone.map(|(_, event)| event) {
            let mut takers = plan.handlers.iter().filter(|spec| spec.topic.as_str() == stream.topic.topic());
            let open = takers
                .find(|spec| !self.endings.contains_key(&keys::finished(stream, event.offset, &spec.id)));
            if let Some(spec) = open {
                let detail = format!("{stream} loses {} before {} has ended it", event.offset, spec.id);
                return Err(violation("trims_finished_only", detail));
            }
            if event.ts >= old {
                let detail = format!("{stream} loses {} of {}, {old} is old", event.offset, event.ts);
                return Err(violation("trims_finished_only", detail));
            }
        }
        Ok(())
    }

    /// A run of a handler with order per key begins: all earlier events of its key must have ended.
    pub(crate) fn begins_in_order(&self, handler: &HandlerId, event: &Event) -> Result<(), Violation> {
        let Some(key) = &event.body.key else { return Ok(()) };
        let place = |offset| (event.stream.clone(), offset);
        let before = self.events.range(place(Offset::ZERO)..place(event.offset)).map(|(_, before)| before);
        for before in before.filter(|before| before.body.key.as_ref() == Some(key)) {
            if !self.endings.contains_key(&keys::finished(&before.stream, before.offset, handler)) {
                let what = format!("{handler} begins {} of {} before", event.offset, event.stream);
                let detail = format!("{what} {} of the same key has ended", before.offset);
                return Err(violation("order_per_key", detail));
            }
        }
        Ok(())
    }

    /// An event that has ended must not be claimed, and a claimed event must not have ended.
    fn one_place(&self, ended: &BTreeSet<String>, done: &Done) -> Result<(), Violation> {
        for claimed in &done.claimed {
            let ticket = &claimed.ticket;
            let place = keys::finished(&ticket.stream, ticket.offset, &ticket.handler);
            if self.endings.contains_key(&place) && !ended.contains(&place) {
                return Err(violation("one_place", format!("{place} is claimed although it has ended")));
            }
        }
        Ok(())
    }
}
