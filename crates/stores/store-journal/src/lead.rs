//! The lead: one row of the store that says which server may write. Every commit of a leader looks at it first.
//!
//! No clocks are compared between machines: a server takes the lead when it has seen no new record for the timeout by
//! its own clock, and whoever is replaced finds another row at its next commit, which places nothing.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{Batch, Check, Durability, Op, Outcome, Space, Timestamp};
use millrace_store::{Foldable, KeyRange, RecordedChange, StoreError};
use serde::{Deserialize, Serialize};

use crate::commit::Fence;
use crate::handle::{SharedHandle, Turn};

/// The key of the row in [`Space::Kv`].
pub const LEAD_KEY: &str = "cluster/lead";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadRow {
    /// Rises with every change of the lead.
    pub term: u64,
    /// The process that leads; empty when the last leader has stepped down.
    pub server: String,
    /// The address by which others reach the leader.
    pub url: String,
    /// A random secret that members of the cluster know each other by.
    pub key: String,
}

impl LeadRow {
    pub fn is_held(&self) -> bool {
        !self.server.is_empty()
    }

    pub(crate) fn encode(&self) -> Bytes {
        // A struct of strings and a number always has a JSON text.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// The row as it stands at the copy's position. Cloned with every commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeadState {
    /// The bytes that stand in the row.
    pub(crate) standing: Option<Bytes>,
    /// Those bytes, decoded.
    row: Option<Arc<LeadRow>>,
    /// The row that this handle wrote when it took the lead.
    pub(crate) own: Option<Arc<LeadRow>>,
}

impl LeadState {
    pub(crate) fn load(copy: &dyn Foldable) -> Result<LeadState, StoreError> {
        let row = copy.scan(Space::Kv, &KeyRange::prefix(LEAD_KEY), 1)?;
        let mut state = LeadState::default();
        state.stands(row.into_iter().find(|row| row.key == LEAD_KEY).map(|row| row.value));
        Ok(state)
    }

    fn stands(&mut self, value: Option<Bytes>) {
        self.row = value.as_deref().and_then(|bytes| serde_json::from_slice(bytes).ok()).map(Arc::new);
        self.standing = value;
    }

    pub(crate) fn row(&self) -> Option<&LeadRow> {
        self.row.as_deref()
    }

    pub(crate) fn leads(&self) -> bool {
        self.own.is_some() && self.own == self.row
    }

    /// Follows what a record did to the row.
    pub(crate) fn observe(&mut self, changes: &[RecordedChange]) {
        for change in changes {
            match change {
                RecordedChange::Put { space: Space::Kv, key, value } if key == LEAD_KEY => {
                    self.stands(Some(value.clone()));
                }
                RecordedChange::Delete { space: Space::Kv, key } if key == LEAD_KEY => {
                    self.stands(None);
                }
                _ => {}
            }
        }
    }

    /// Returns who leads, for the texts of errors.
    pub(crate) fn leader(&self) -> String {
        match self.row().filter(|row| row.is_held()) {
            Some(LeadRow { url, term, .. }) if url.is_empty() => format!("another server leads, term {term}"),
            Some(LeadRow { url, term, .. }) => format!("{url} leads, term {term}"),
            None => "nobody leads".to_owned(),
        }
    }
}

impl SharedHandle {
    /// See `JournalStore::try_lead`.
    pub(crate) fn try_lead(&self) -> Result<bool, StoreError> {
        let mut turn = self.turn();
        self.refuse_ended()?;
        // The decision is made on the journal itself, not on what the last poll saw.
        self.catch_up(&mut turn)?;
        if turn.lead.leads() {
            return Ok(true);
        }
        let standing = turn.lead.row().filter(|row| row.is_held()).cloned();
        let silent_ms = self.silent_ms(&turn);
        if standing.is_some() && silent_ms < self.settings.lead_timeout_ms {
            return Ok(false);
        }
        if let Some(row) = &standing {
            let (url, term) = (&row.url, row.term);
            tracing::warn!(url, term, silent_ms, "the leader is silent: taking the lead");
        }
        self.take_lead(&mut turn)
    }

    /// Takes the lead if nobody holds it, without waiting for a silent holder.
    pub(crate) fn lead_if_free(&self) -> Result<bool, StoreError> {
        let mut turn = self.turn();
        // Another round only if somebody has placed a record meanwhile.
        loop {
            self.refuse_ended()?;
            self.catch_up(&mut turn)?;
            if turn.lead.leads() {
                return Ok(true);
            }
            if turn.lead.row().is_some_and(|row| row.is_held()) {
                return Ok(false);
            }
            if self.take_lead(&mut turn)? {
                return Ok(true);
            }
        }
    }

    /// Writes the lead row, unless somebody else places a record first: that may be a sign of life of the leader.
    fn take_lead(&self, turn: &mut Turn) -> Result<bool, StoreError> {
        // A copy that has records which the engine lost must not lead.
        self.verify_position(turn)?;
        self.refuse_smaller_bounds()?;
        let term = turn.lead.row().map_or(0, |row| row.term).max(turn.term_seen) + 1;
        let own = LeadRow {
            term,
            server: format!("{:032x}", self.writer_id),
            url: self.settings.url.clone(),
            key: format!("{:032x}", rand::random::<u128>()),
        };
        let check = match turn.lead.standing.clone() {
            Some(value) => Check::Equals { space: Space::Kv, key: LEAD_KEY.to_owned(), value },
            None => Check::Absent { space: Space::Kv, key: LEAD_KEY.to_owned() },
        };
        let batch = self.lead_batch(check, &own);
        let outcomes = self.commit_in_turn(turn, &[batch], Fence::Open)?;
        if !matches!(outcomes.as_slice(), [Outcome::Done(_)]) {
            return Ok(false);
        }
        tracing::info!(term, url = own.url, n = turn.position.n, "this server leads the store");
        turn.lead.own = Some(Arc::new(own));
        self.publish(turn);
        // The copy may have failed after the record was placed.
        self.refuse_ended()?;
        Ok(true)
    }

    /// See `JournalStore::step_down`.
    pub(crate) fn step_down(&self) -> Result<(), StoreError> {
        let mut turn = self.turn();
        let Some(own) = turn.lead.own.clone().filter(|_| turn.lead.leads()) else { return Ok(()) };
        let free = LeadRow { term: own.term, ..LeadRow::default() };
        match self.ended() {
            Some(end) if end.is_copy_lost => self.step_down_without_copy(&mut turn, &free)?,
            Some(end) => return Err(end.error),
            None => {
                let check = Check::Equals { space: Space::Kv, key: LEAD_KEY.to_owned(), value: own.encode() };
                let batch = self.lead_batch(check, &free);
                self.commit_in_turn(&mut turn, &[batch], Fence::Leader)?;
            }
        }
        turn.lead.own = None;
        self.publish(&turn);
        tracing::info!(term = own.term, "this server has given the lead back");
        Ok(())
    }

    /// Gives the lead back although the copy cannot be used: the record needs nothing from it, because the lead row and
    /// the position in the journal are in memory.
    fn step_down_without_copy(&self, turn: &mut Turn, free: &LeadRow) -> Result<(), StoreError> {
        let change = RecordedChange::Put { space: Space::Kv, key: LEAD_KEY.to_owned(), value: free.encode() };
        self.place_without_copy(turn, &[change])
    }

    fn lead_batch(&self, check: Check, row: &LeadRow) -> Batch {
        Batch {
            nonce: rand::random(),
            now: Timestamp(self.clock.wall_ms()),
            durability: Durability::Fsync,
            checks: vec![check],
            ops: vec![Op::Put { space: Space::Kv, key: LEAD_KEY.to_owned(), value: row.encode() }],
        }
    }
}
