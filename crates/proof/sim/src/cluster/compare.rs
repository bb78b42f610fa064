//! Compares copies with the fold of the journal at the same position.

use std::sync::Arc;

use millrace_model::Space;
use millrace_store::{KeyRange, ReadLimit, Store, StoreError};

use super::hub::Hub;
use super::server::{Entry, Operation};
use super::truth::violation;
use super::{Happening, Writer};

const COMPARE_EVERY_MS: u64 = 3_000;
const WHOLE: ReadLimit = ReadLimit { events_max: usize::MAX, bytes_max: usize::MAX };

impl Hub {
    pub(super) fn compare_any(self: &Arc<Hub>) {
        let writer = {
            let mut state = self.lock();
            let servers = state.servers.len() as u64;
            let server = state.dice.below(servers) as usize;
            let at_ms = state.now_ms() + COMPARE_EVERY_MS;
            state.schedule.at(at_ms, Happening::Compare);
            Writer { server, life: state.servers[server].life }
        };
        self.compare(writer);
    }

    /// Compares the copy of a server, unless it is busy or stands too far behind.
    pub(super) fn compare(self: &Arc<Hub>, writer: Writer) {
        let Entry::Go(handle) = self.begin(writer, Operation::Turn) else { return };
        let position = handle.status().position;
        let expected = {
            let mut state = self.lock();
            let is_ours = state.truth.has(position.n, position.tip);
            if !is_ours && state.truth.losses == 0 {
                let detail = format!("the copy of {writer} stands at {}, with another tip", position.n);
                state.fail(violation("copies_equal", detail));
            }
            // A copy with records that the engine has lost must be noticed later.
            state.truth.at(position.n).filter(|_| is_ours).cloned()
        };
        if let Some(expected) = expected
            && let Err(difference) = same_content(handle.as_ref(), expected.as_ref())
        {
            let detail = format!("the copy of {writer} at {}: {difference}", position.n);
            self.lock().fail(violation("copies_equal", detail));
        }
        self.finish(writer, Operation::Turn, handle);
    }
}

/// Returns the first difference.
pub(super) fn same_content(copy: &dyn Store, expected: &dyn Store) -> Result<(), String> {
    compare_all(copy, expected).unwrap_or_else(|error| Err(format!("it cannot be read: {error}")))
}

fn compare_all(copy: &dyn Store, expected: &dyn Store) -> Result<Result<(), String>, StoreError> {
    for space in Space::ALL {
        let rows = |store: &dyn Store| store.scan(space, &KeyRange::all(), usize::MAX);
        let (found, wanted) = (rows(copy)?, rows(expected)?);
        if found != wanted {
            let differing = found.iter().find(|row| !wanted.contains(row));
            let differing = differing.or(wanted.iter().find(|row| !found.contains(row)));
            let key = differing.map(|row| row.key.as_str());
            return Ok(Err(format!("{space:?} differs at {key:?}")));
        }
    }
    let (found, wanted) = (copy.streams()?, expected.streams()?);
    if found != wanted {
        return Ok(Err(format!("its streams are {found:?} instead of {wanted:?}")));
    }
    for bounds in wanted {
        let page = |store: &dyn Store| store.read(&bounds.stream, bounds.start, WHOLE);
        if page(copy)? != page(expected)? {
            return Ok(Err(format!("the events of {} differ", bounds.stream)));
        }
    }
    Ok(Ok(()))
}
