//! The end of the engine: on request, or because its store has failed.

use millrace_model::Now;

use crate::bus::Bus;
use crate::groups::group::{CursorRef, GroupId};
use crate::interface::reply::{BusError, ReplyTo};
use crate::lifecycle::pending::Pending;

impl Bus {
    /// Gives back all leases without counting attempts; from now on new requests are refused, except those that only
    /// read.
    pub(crate) fn stop(&mut self, now: Now) {
        self.write_last_ages(now);
        self.tell_removed();
        self.stopping = true;
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            let Some(state) = self.groups.get_mut(&group) else {
                continue;
            };
            state.members.clear();
            for (cursor, partition) in state.cursors.iter_mut().zip(0..) {
                cursor.give_back_all();
                cursor.flush_now = true;
                self.to_flush.insert(CursorRef { group, partition });
            }
        }
        for conn in self.conns.values_mut() {
            conn.subscriptions.clear();
        }
    }

    /// Refuses every request that waits for a commit, because that commit will never be confirmed.
    pub(crate) fn storage_failed(&mut self, reason: &str) {
        let waiting = std::mem::take(&mut self.pending);
        self.failed = Some(reason.to_owned());
        let mut refused: Vec<ReplyTo> = waiting.into_values().flat_map(Pending::into_askers).collect();
        for connection in self.conns.values_mut() {
            refused.extend(std::mem::take(&mut connection.joining).into_values().flatten());
        }
        for group in self.groups.values_mut() {
            refused.extend(group.waiters.drain(..).map(|(to, _)| to));
            refused.extend(group.cursors.iter_mut().flat_map(|cursor| cursor.confirms.drain(..)));
        }
        for to in refused {
            self.refuse(to, BusError::StorageFailed(reason.to_owned()));
        }
    }
}
