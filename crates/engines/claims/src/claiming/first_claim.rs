//! When the first open claim of a handler is due: other sessions may hold claims that this worker does not know of.

use millrace_model::{ClaimRow, Space, Timestamp, keys};

use crate::interface::input::{ReadQuery, ReadResult};
use crate::requests::PendingRead;
use crate::worker::Worker;

impl Worker {
    /// Reads when the first of a handler's open claims, of any session, is due. In order of keys, claims that were due
    /// at the handler's own claim and were not taken wait for other events of their key: time alone does not make them
    /// ready, so they are left out.
    pub(crate) fn read_first_claim(&mut self, handler: usize, claimed_at: Timestamp) {
        let (namespace, of) = (self.identity.namespace.as_str(), &self.handlers[handler]);
        let all = keys::claims_of(namespace, of.id());
        let to = [all.trim_end_matches('/'), "0"].concat();
        let from = match of.is_ordered() {
            true => keys::claims_end(namespace, of.id(), claimed_at),
            false => all,
        };
        let query = ReadQuery::Rows { space: Space::Claims, from, to, rows_max: 1 };
        self.requests.read(PendingRead::FirstClaim(handler), query);
    }

    pub(crate) fn on_first_claim(&mut self, handler: usize, result: Option<ReadResult>) {
        // If the read failed, polling finds the claim.
        let Some(ReadResult::Rows(rows)) = result else { return };
        let row = rows.first().and_then(|(key, value)| ClaimRow::decode(key, value).ok());
        if let Some(row) = row {
            self.handlers[handler].ready_again_at(row.due);
        }
    }
}
