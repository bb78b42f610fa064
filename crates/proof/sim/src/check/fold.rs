//! After any crash, and at the end, the store is the fold of its commits: same bounds, same events, same rows.

use millrace_model::{Offset, Space};
use millrace_store::{KeyRange, ReadLimit, Store};

use super::Checker;
use crate::facts::Facts;
use crate::seen::Seen;

pub(super) struct Fold;

impl Checker for Fold {
    fn name(&self) -> &'static str {
        "store_is_fold"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Opened { store } | Seen::End { store } => compare(facts, *store),
            _ => Ok(()),
        }
    }
}

const EVERYTHING: ReadLimit = ReadLimit { events_max: usize::MAX, bytes_max: usize::MAX };

fn compare(facts: &Facts, store: &dyn Store) -> Result<(), String> {
    let ledger = &facts.ledger;
    let bounds = store.streams().map_err(|error| error.to_string())?;
    for found in &bounds {
        let (start, next) = ledger.bounds(&found.stream);
        if (found.start, found.next) != (start, next) {
            let (stream, from, to) = (&found.stream, found.start, found.next);
            return Err(format!("{stream} holds {from}..{to} in the store, {start}..{next} by its commits"));
        }
        let page = store.read(&found.stream, Offset::FIRST, EVERYTHING).map_err(|error| error.to_string())?;
        let retained =
            ledger.logs.get(&found.stream).map(|log| log.events.range(start..).map(|(_, event)| event));
        if !page.events.iter().eq(retained.into_iter().flatten()) {
            return Err(format!("{} does not hold what was committed to it", found.stream));
        }
    }
    let missing = ledger.logs.keys().find(|stream| !bounds.iter().any(|found| found.stream == **stream));
    if let Some(stream) = missing {
        return Err(format!("{stream} is gone from the store"));
    }
    for (space, rows) in [
        (Space::Topics, ledger.topics.len()),
        (Space::Groups, ledger.groups.len()),
        (Space::Cursors, ledger.cursors.len()),
        (Space::Attempts, ledger.tries.len()),
        (Space::Due, ledger.due.len()),
        (Space::Kv, ledger.kv.len()),
    ] {
        let found = store.scan(space, &KeyRange::all(), usize::MAX).map_err(|error| error.to_string())?.len();
        if found != rows {
            return Err(format!("{} has {found} rows in the store, {rows} by its commits", space.as_str()));
        }
    }
    Ok(())
}
