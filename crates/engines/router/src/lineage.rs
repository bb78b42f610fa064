//! What an actor may name as a cause: what it was given and what it said itself, as far back as `lineage_max` messages.
//!
//! What waits in its mailbox needs no memory: the engine has it on its books.

use std::collections::{BTreeMap, VecDeque};

use millrace_model::OsId;

/// The undertaking a cause belongs to, if any.
pub(crate) type Correlation = Option<OsId>;

#[derive(Debug, Default)]
pub(crate) struct Lineage {
    ring: VecDeque<(OsId, Correlation)>,
    /// Made when something is looked for here the first time: most actors speak only of what they have in hand, and
    /// those do not pay for it with every message.
    index: Option<BTreeMap<OsId, Known>>,
}

#[derive(Debug)]
struct Known {
    /// Ids are used again.
    times: usize,
    /// Of the newest of them.
    correlation: Correlation,
}

impl Lineage {
    /// The oldest makes room.
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

fn note(index: &mut BTreeMap<OsId, Known>, id: &OsId, correlation: &Correlation) {
    let known = index.entry(id.clone()).or_insert(Known { times: 0, correlation: None });
    known.times += 1;
    known.correlation.clone_from(correlation);
}

fn forget(index: &mut BTreeMap<OsId, Known>, id: &OsId) {
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
            let mut lineage = Lineage::default();
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
