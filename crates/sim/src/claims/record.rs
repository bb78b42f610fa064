//! The record of the world of workers: everything that became durable, batch by batch, and the invariants that must
//! hold for it whatever goes wrong.

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::{
    Batch, ClaimRow, Done, Ending, FinishedRow, Namespace, Op, ScheduleRow, Space, Timestamp, keys,
};
use millrace_store::{KeyRange, ReadLimit, Store};

use super::plan::{self, Plan, TICK};
use crate::check::Violation;

#[derive(Debug, Default)]
pub(crate) struct Record {
    /// `stream/offset/handler` of everything that has ended.
    endings: BTreeMap<String, Ending>,
    /// Tags of events that handlers made, and how often each was stored.
    tags: BTreeSet<String>,
    schedule_last: Timestamp,
    pub(crate) published: u64,
    ticks: u64,
}

pub(crate) const INVARIANTS: [&str; 12] = [
    "ended_once",
    "one_place",
    "emitted_with_ack",
    "stored_once",
    "fired_once",
    "gives_up",
    "lease_respected",
    "nothing_lost",
    "state_is_fold",
    "no_ready_work_asleep",
    "no_busy_loop",
    "batches_fit",
];

pub(crate) fn violation(invariant: &'static str, detail: String) -> Violation {
    Violation { invariant, detail }
}

/// `namespace/topic/partition/offset/handler` of a claim's key, which is how endings are keyed.
fn place_of_claim(key: &str) -> Option<String> {
    let (handler, stream, offset) = keys::claim_place(key)?;
    Some(format!("{stream}/{:016x}/{handler}", offset.0))
}

/// Only who holds a claim may end it.
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
    pub(crate) fn applied(&mut self, batch: &Batch, done: &Done) -> Result<(), Violation> {
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
                _ => {}
            }
        }
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

    /// What has ended is claimed by nobody, and what was claimed has not ended.
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

    /// No claim is left open for what has ended.
    pub(crate) fn look_around(&self, store: &dyn Store) -> Result<(), Violation> {
        let rows = store.scan(Space::Claims, &KeyRange::all(), usize::MAX).unwrap_or_default();
        for place in rows.iter().filter_map(|row| place_of_claim(&row.key)) {
            if self.endings.contains_key(&place) {
                return Err(violation("one_place", format!("{place} has ended and is still claimed")));
            }
        }
        Ok(())
    }

    /// After the calm: every event has ended for every handler, with all it should have left behind and nothing else.
    pub(crate) fn at_the_end(&self, seed: u64, plan: &Plan, store: &dyn Store) -> Result<(), Violation> {
        self.look_around(store)?;
        let mut expected = BTreeSet::new();
        for bounds in store.streams().unwrap_or_default() {
            let limit = ReadLimit { events_max: usize::MAX, bytes_max: usize::MAX };
            let events =
                store.read(&bounds.stream, bounds.start, limit).map(|page| page.events).unwrap_or_default();
            for event in events {
                for handler in
                    plan.handlers.iter().filter(|spec| spec.topic.as_str() == bounds.stream.topic.topic())
                {
                    let place = keys::finished(&event.stream, event.offset, &handler.id);
                    let work = plan::work(seed, &handler.id, &event);
                    let tags = |kind: &'static str, count| {
                        (0..count).map(|n| plan::tag(&event, &handler.id, kind, n)).collect::<Vec<_>>()
                    };
                    match self.endings.get(&place) {
                        None => return Err(violation("nothing_lost", format!("{place} has not ended"))),
                        Some(Ending::Acked) => {
                            expected.extend(tags("commit", work.commits));
                            expected.extend(tags("emit", work.emits));
                        }
                        Some(_) => {
                            // Its commits stand as far as it came: each needs those before it.
                            let there = tags("commit", work.commits);
                            let came = there.iter().take_while(|tag| self.tags.contains(*tag)).count();
                            expected.extend(there.into_iter().take(came));
                        }
                    }
                }
            }
        }
        if let Some(tag) = expected.symmetric_difference(&self.tags).next() {
            let what = if self.tags.contains(tag) { "should not be there" } else { "is missing" };
            return Err(violation("nothing_lost", format!("{tag} {what}")));
        }
        self.state_is_fold(store)
    }

    fn state_is_fold(&self, store: &dyn Store) -> Result<(), Violation> {
        let namespace = Namespace::default();
        let committed = self.tags.iter().filter(|tag| tag.contains("|commit|"));
        let expected: BTreeSet<String> =
            committed.map(|tag| keys::identity(&namespace, &plan::entity(tag.clone()))).collect();
        let heads = store.scan(Space::Heads, &KeyRange::all(), usize::MAX).unwrap_or_default();
        let found: BTreeSet<String> = heads.into_iter().map(|row| row.key).collect();
        match expected.symmetric_difference(&found).next() {
            Some(key) => Err(violation("state_is_fold", format!("{key} is in only one of state and events"))),
            None => Ok(()),
        }
    }
}
