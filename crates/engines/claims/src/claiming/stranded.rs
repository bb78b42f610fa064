//! Claims from before the wall clock was set back: their lease or pause ends hours ahead, and until then nobody would
//! claim their events.
//!
//! A claim's row records the length of its lease or pause. A claim that ends further ahead than that was written by
//! another clock: it is left alone for the recorded length once more, counted on the monotonic clock from when this
//! session first saw it, and then made due. The holder of a lease that ends this way is refused when it writes, like
//! the holder of any expired lease.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{CLOCK_STEP_MS, Check, ClaimRow, Mono, Now, Op, Space, Ticket, keys};

use crate::commits::action::{Action, FollowUp};
use crate::endings::retry::BACKOFF_JITTER_MS;
use crate::interface::effect::Note;
use crate::interface::input::{ReadQuery, ReadResult};
use crate::requests::PendingRead;
use crate::worker::Worker;

/// Rows of one handler read at once; the rest is found when these are gone.
const ROWS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct StrandedClaims {
    /// By handler: the keys of stranded claims, and until when each is left alone.
    known: BTreeMap<usize, BTreeMap<String, Mono>>,
    /// When to read again the first of them; `None` while a read is under way.
    wake: Option<Mono>,
}

impl StrandedClaims {
    pub(crate) fn wake(&self) -> Option<Mono> {
        self.wake
    }
}

impl Worker {
    /// Reads the claims of every handler that end too far ahead.
    pub(crate) fn read_stranded(&mut self, now: Now) {
        self.stranded.wake = None;
        for at in self.handlers.indices() {
            if self.requests.is_reading(PendingRead::Stranded(at)) {
                continue;
            }
            let (namespace, handler) = (self.identity.namespace.as_str(), &self.handlers[at]);
            let limits = handler.limits();
            let longest_ms = limits.lease_ms.max(limits.backoff_max_ms.saturating_add(BACKOFF_JITTER_MS));
            let (id, after) = (handler.id(), now.wall + longest_ms + CLOCK_STEP_MS);
            let from = keys::claims_end(namespace, id, after);
            let to = [keys::claims_of(namespace, id).trim_end_matches('/'), "0"].concat();
            let query = ReadQuery::Rows { space: Space::Claims, from, to, rows_max: ROWS_MAX };
            self.requests.read(PendingRead::Stranded(at), query);
        }
    }

    /// Reads again when the wait for one of them is over.
    pub(crate) fn wake_stranded(&mut self, now: Now) {
        if self.stranded.wake.is_some_and(|at| at <= now.mono) {
            self.read_stranded(now);
        }
    }

    pub(crate) fn on_stranded_rows(&mut self, now: Now, at: usize, result: Option<ReadResult>) {
        // If the read failed, the next refresh reads again.
        let Some(ReadResult::Rows(rows)) = result else { return };
        let before = self.stranded.known.remove(&at).unwrap_or_default();
        let mut known = BTreeMap::new();
        for (key, value) in rows {
            let Ok(row) = ClaimRow::decode(&key, &value) else { continue };
            let Some(for_ms) = row.for_ms else { continue };
            if row.due.0 <= now.wall.0.saturating_add(for_ms.saturating_add(CLOCK_STEP_MS)) {
                continue;
            }
            let until = before.get(&key).copied().unwrap_or(now.mono + for_ms);
            if until > now.mono {
                known.insert(key, until);
            } else {
                self.make_due(now, at, key, value, row);
            }
        }
        if !known.is_empty() {
            self.stranded.known.insert(at, known);
        }
        self.stranded.wake = self.stranded.known.values().flat_map(BTreeMap::values).min().copied();
    }

    fn make_due(&mut self, now: Now, at: usize, key: String, value: Bytes, row: ClaimRow) {
        // A key that cannot be read belongs to no claim.
        let Some((_, stream, offset)) = keys::claim_place(&key) else { return };
        self.requests.note(Note::Stranded { handler: at, stream: stream.clone(), offset, due: row.due });
        let handler = self.handlers[at].id().clone();
        let row = ClaimRow { due: now.wall, for_ms: Some(0), ..row };
        let due = Ticket { handler, stream, offset, row };
        let check = Check::Equals { space: Space::Claims, key: key.clone(), value };
        let ops = vec![Op::Delete { space: Space::Claims, key }, due.put()];
        self.queue_action(
            now,
            Action { checks: vec![check], ops, follow_up: FollowUp::GivenBack { handler: at } },
        );
    }
}
