//! The messages an actor may name as a cause: those it was given and those it emitted, as far back as `lineage_max`
//! messages.
//!
//! Messages in its mailbox are not remembered here: the engine finds those among its deliveries.

use std::collections::{BTreeMap, VecDeque};

use millrace_model::OsId;

/// The correlation of a cause (the undertaking it belongs to), if it has one.
pub(crate) type Correlation = Option<OsId>;

#[derive(Debug, Default)]
pub(crate) struct LineageRing {
    ring: VecDeque<(OsId, Correlation)>,
    /// Built at the first lookup: most actors only name the message they are working on, which needs no lookup, and
    /// those do not pay for an index with every message.
    index: Option<BTreeMap<OsId, KnownId>>,
}

#[derive(Debug)]
struct KnownId {
    /// How often the id is in the ring: ids are used again.
    times: usize,
    /// The correlation of the newest of these uses.
    correlation: Correlation,
}

impl LineageRing {
    /// Removes the oldest entries to stay within `max`.
    pub(crate) fn remember(&mut self, id: OsId, correlation: Correlation, max: usize) {
        while self.ring.len() >= max.max(1) {
            let Some((oldest, _)) = self.ring.pop_front() else { break };
            if let Some(index) = &mut self.index {
                forget(index, &oldest);
            }
        }
        if let Some(index) = &mut self.index {
            note(index, &id, &correlation);
        }
        self.ring.push_back((id, correlation));
    }

    pub(crate) fn find(&mut self, id: &OsId) -> Option<Correlation> {
        let ring = &self.ring;
        let index = self.index.get_or_insert_with(|| {
            let mut index = BTreeMap::new();
            ring.iter().for_each(|(id, correlation)| note(&mut index, id, correlation));
            index
        });
        index.get(id).map(|known| known.correlation.clone())
    }
}

fn note(index: &mut BTreeMap<OsId, KnownId>, id: &OsId, correlation: &Correlation) {
    let known = index.entry(id.clone()).or_insert(KnownId { times: 0, correlation: None });
    known.times += 1;
    known.correlation.clone_from(correlation);
}

fn forget(index: &mut BTreeMap<OsId, KnownId>, id: &OsId) {
    if let Some(known) = index.get_mut(id) {
        known.times -= 1;
        if known.times == 0 {
            index.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_whenever_it_is_first_asked() {
        let id = |n: u32| OsId::new(&format!("m-{n}")).unwrap();
        for asked_at in [0, 3, 7, 20] {
            let mut lineage = LineageRing::default();
            for n in 0..20 {
                if n == asked_at {
                    assert!(lineage.find(&id(99)).is_none());
                }
                lineage.remember(id(n % 10), Some(id(n)), 4);
            }
            let known: Vec<u32> = (0..10).filter(|n| lineage.find(&id(*n)).is_some()).collect();
            assert_eq!(known, [6, 7, 8, 9], "asked first at {asked_at}");
            assert_eq!(lineage.find(&id(9)), Some(Some(id(19))), "of two uses of an id the newest counts");
            assert_eq!(lineage.index.as_ref().map(BTreeMap::len), Some(4));
        }
    }
}
