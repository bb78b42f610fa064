//! The verdict on a world of workers: the invariants that hold at any moment, and those that hold after the calm.

use std::collections::BTreeSet;

use millrace_model::{Ending, Namespace, Space, keys};
use millrace_store::{KeyRange, ReadLimit, Store};

use super::counter;
use super::plan::{self, Plan};
use super::record::{Record, violation};
use crate::check::Violation;

/// Returns the place in a claim's key, `namespace/topic/partition/offset/handler`, which is also the key of endings.
pub(super) fn place_of_claim(key: &str) -> Option<String> {
    let (handler, stream, offset) = keys::claim_place(key)?;
    Some(format!("{stream}/{:016x}/{handler}", offset.0))
}

impl Record {
    /// Checks that no claim is left open for an event that has ended.
    pub(crate) fn look_around(&self, store: &dyn Store) -> Result<(), Violation> {
        let rows = store.scan(Space::Claims, &KeyRange::all(), usize::MAX).unwrap_or_default();
        for place in rows.iter().filter_map(|row| place_of_claim(&row.key)) {
            if self.endings.contains_key(&place) {
                return Err(violation("one_place", format!("{place} has ended and is still claimed")));
            }
        }
        Ok(())
    }

    /// After the calm: every event has ended for every handler, and left behind exactly what it should have.
    pub(crate) fn at_the_end(&self, seed: u64, plan: &Plan, store: &dyn Store) -> Result<(), Violation> {
        self.look_around(store)?;
        self.nothing_vanished(store)?;
        let (mut expected, mut counted) = (BTreeSet::new(), 0);
        for ((stream, offset), event) in &self.events {
            for handler in plan.handlers.iter().filter(|spec| spec.topic.as_str() == stream.topic.topic()) {
                let place = keys::finished(stream, *offset, &handler.id);
                let work = plan::work(seed, &handler.id, event);
                let tags = |kind: &'static str, count| {
                    (0..count).map(|n| plan::tag(event, &handler.id, kind, n)).collect::<Vec<_>>()
                };
                match self.endings.get(&place) {
                    None => return Err(violation("nothing_lost", format!("{place} has not ended"))),
                    Some(Ending::Acked) if work.kills => {
                        return Err(violation("nothing_lost", format!("{place} cannot have been acked")));
                    }
                    Some(Ending::Acked) => {
                        counted += u64::from(work.counts);
                        expected.extend(tags("commit", work.commits));
                        expected.extend(tags("emit", work.emits));
                    }
                    Some(_) => {
                        // The commits of a run that failed stand as far as it came: each needs those before it.
                        let there = tags("commit", work.commits);
                        let came = there.iter().take_while(|tag| self.tags.contains(*tag)).count();
                        expected.extend(there.into_iter().take(came));
                    }
                }
            }
        }
        if let Some(tag) = expected.symmetric_difference(&self.tags).next() {
            let what = if self.tags.contains(tag) { "should not be there" } else { "is missing" };
            return Err(violation("nothing_lost", format!("{tag} {what}")));
        }
        self.state_is_fold(store)?;
        let found = counter::read(store).count;
        if found != counted {
            let detail = format!("{counted} acknowledged runs counted, the counter says {found}");
            return Err(violation("counted_exactly", detail));
        }
        Ok(())
    }

    /// Checks that every event is there that retention has not removed.
    fn nothing_vanished(&self, store: &dyn Store) -> Result<(), Violation> {
        let limit = ReadLimit { events_max: usize::MAX, bytes_max: usize::MAX };
        for bounds in store.streams().unwrap_or_default() {
            let (from, to) = ((bounds.stream.clone(), bounds.start), (bounds.stream.clone(), bounds.next));
            let page = store.read(&bounds.stream, bounds.start, limit).unwrap_or_default();
            if !page.events.iter().eq(self.events.range(from..to).map(|(_, event)| event)) {
                let detail = format!("{} does not hold what was appended to it", bounds.stream);
                return Err(violation("nothing_lost", detail));
            }
        }
        Ok(())
    }

    fn state_is_fold(&self, store: &dyn Store) -> Result<(), Violation> {
        let namespace = Namespace::default();
        let committed = self.tags.iter().filter(|tag| tag.contains("|commit|"));
        let expected: BTreeSet<String> =
            committed.map(|tag| keys::identity(&namespace, &plan::entity(tag.clone()))).collect();
        let heads = store.scan(Space::Heads, &KeyRange::all(), usize::MAX).unwrap_or_default();
        let keys = heads.into_iter().map(|row| row.key).filter(|key| *key != counter::head_key());
        let found: BTreeSet<String> = keys.collect();
        match expected.symmetric_difference(&found).next() {
            Some(key) => Err(violation("state_is_fold", format!("{key} is in only one of state and events"))),
            None => Ok(()),
        }
    }
}
