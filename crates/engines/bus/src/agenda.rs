//! The work of the next `settle`: groups that may be sent something, cursors to be written, cursors to be woken.
//!
//! An entry may name a group that was deleted meanwhile; whoever works through the agenda skips such entries.

use std::collections::BTreeSet;

use millrace_model::Mono;

use crate::groups::group::{CursorRef, GroupId};

#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Groups for which something changed since the last `settle`.
    to_deliver: BTreeSet<GroupId>,
    to_flush: BTreeSet<CursorRef>,
    /// Mirrors the moments that the cursors have registered (`Cursor::register_wake`).
    wakes: BTreeSet<(Mono, CursorRef)>,
}

impl Agenda {
    pub(crate) fn deliver(&mut self, group: GroupId) {
        self.to_deliver.insert(group);
    }

    pub(crate) fn deliver_all(&mut self, groups: impl IntoIterator<Item = GroupId>) {
        self.to_deliver.extend(groups);
    }

    pub(crate) fn next_to_deliver(&mut self) -> Option<GroupId> {
        self.to_deliver.pop_first()
    }

    pub(crate) fn flush(&mut self, at: CursorRef) {
        self.to_flush.insert(at);
    }

    pub(crate) fn take_flushes(&mut self) -> BTreeSet<CursorRef> {
        std::mem::take(&mut self.to_flush)
    }

    /// Registers a cursor to be woken at `when`, instead of `before`.
    pub(crate) fn wake(&mut self, at: CursorRef, when: Mono, before: Option<Mono>) {
        if let Some(before) = before {
            self.wakes.remove(&(before, at));
        }
        self.wakes.insert((when, at));
    }

    pub(crate) fn next_wake(&self) -> Option<Mono> {
        self.wakes.first().map(|(when, _)| *when)
    }

    pub(crate) fn lists_flush(&self, at: CursorRef) -> bool {
        self.to_flush.contains(&at)
    }

    /// Checks the registered moments; `registered` returns that of a cursor, `None` if there is no such cursor.
    pub(crate) fn check_wakes(&self, registered: impl Fn(CursorRef) -> Option<Option<Mono>>) {
        for (when, at) in &self.wakes {
            let own = registered(*at);
            assert!(
                own.is_none_or(|own| own == Some(*when)),
                "{at:?} is to be woken at {when:?}, not {own:?}"
            );
        }
    }

    pub(crate) fn has_wake(&self, at: CursorRef, when: Mono) -> bool {
        self.wakes.contains(&(when, at))
    }

    /// Takes the next cursor whose moment has come.
    pub(crate) fn take_due(&mut self, now: Mono) -> Option<CursorRef> {
        self.wakes.first().filter(|(when, _)| *when <= now)?;
        self.wakes.pop_first().map(|(_, at)| at)
    }
}
