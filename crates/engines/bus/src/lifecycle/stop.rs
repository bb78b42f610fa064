//! The end of the engine: on request, or because its store has failed.

use millrace_model::Now;

use crate::bus::Bus;
use crate::groups::group::CursorRef;
use crate::interface::reply::{BusError, ReplyTo};
use crate::lifecycle::pending::PendingEffect;

impl Bus {
    /// Gives back all leases without counting attempts; from now on new requests are refused, except those that only
    /// read.
    pub(crate) fn stop(&mut self, now: Now) {
        self.write_last_ages(now);
        self.note_removed();
        self.lifecycle.begin_stop();
        for group in self.groups.ids() {
            let Some(state) = self.groups.must_mut(group, &self.broken) else { continue };
            state.members.clear();
            for (cursor, partition) in state.cursors.iter_mut().zip(0..) {
                cursor.give_back_all();
                cursor.flush.request();
                self.agenda.flush(CursorRef { group, partition });
            }
        }
        self.conns.unsubscribe_all();
    }

    /// Refuses every request that waits for a commit, because that commit will never be confirmed.
    pub(crate) fn storage_failed(&mut self, reason: &str) {
        self.lifecycle.fail(reason);
        let mut refused: Vec<ReplyTo> =
            self.pending.take_all().flat_map(PendingEffect::into_requesters).collect();
        refused.extend(self.conns.end_joins());
        for group in self.groups.values_mut() {
            refused.extend(group.waiters.drain(..).map(|(to, _)| to));
            refused.extend(group.cursors.iter_mut().flat_map(|cursor| cursor.flush.take_confirms()));
        }
        for to in refused {
            self.refuse(to, BusError::StorageFailed(reason.to_owned()));
        }
    }
}
