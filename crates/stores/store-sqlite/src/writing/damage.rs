//! Damage found while writing: the damaged events are set aside, and the write continues without them.
//!
//! A failed write poisons the store, because nobody knows how much of it is on disk. A page that cannot be read is
//! different: nothing was written, the damage is known, and it must not stop a store whose other pages are fine.
//!
//! SQLite refuses to write in a transaction that has met damage. So a commit does its lookups on a connection of their
//! own (`Writer::lookups`), and housekeeping that meets damage is rolled back and repeated more carefully.

use millrace_model::{Offset, TopicKey};
use rusqlite::Connection;

use crate::error::{Attempt, SqliteFault};
use crate::reading::index::{Piece, StoredRun};
use crate::rows::loc::Loc;
use crate::store_core::StoreCore;
use crate::writing::quarantine::Quarantined;

pub(crate) const DAMAGED_PAGE: &str = "its page is damaged";

impl StoreCore {
    pub(crate) fn report_damaged_page(&self, stream: i64, seq: u64, offset: u64) {
        let reason = DAMAGED_PAGE.to_owned();
        self.quarantine.report(Quarantined { seq, stream, offset: Offset(offset), reason });
    }

    /// Reports a damaged event of which only the topic and the seq are known. Searches the rows of `loc` of the topic,
    /// once per event; an event that is not found there will be reported when its stream is read.
    pub(crate) fn report_damaged_place(
        &self,
        lookups: &Connection,
        topic: &TopicKey,
        seq: u64,
    ) -> Attempt<()> {
        if self.quarantine.knows(seq) {
            return Ok(());
        }
        let holds = |first: u64, count: u64| (first..first.saturating_add(count)).contains(&seq);
        let mut folded = Vec::new();
        {
            let index = self.index();
            for state in index.live().filter(|state| state.row.stream.topic == *topic) {
                let unfolded: Option<&StoredRun> = state.runs.iter().find(|run| holds(run.seq, run.count));
                if let Some(run) = unfolded {
                    self.report_damaged_page(state.row.id, seq, run.offset + (seq - run.seq));
                    return Ok(());
                }
                folded.push((state.row.id, state.row.start, state.row.folded));
            }
        }
        for (stream, start, end) in folded {
            let mut at = start;
            while at < end {
                let loc = match Loc::at_or_after(lookups, stream, at) {
                    Ok(Some(loc)) => loc,
                    Ok(None) => break,
                    Err(fault) if fault.is_damaged_bookkeeping() => break,
                    Err(fault) => return Err(fault),
                };
                let piece: Option<&Piece> = loc.pieces.iter().find(|piece| holds(piece.seq, piece.count));
                if let Some(piece) = piece {
                    self.report_damaged_page(stream, seq, piece.offset + (seq - piece.seq));
                    return Ok(());
                }
                at = loc.end();
            }
        }
        Ok(())
    }
}

impl SqliteFault {
    pub(crate) fn is_damaged_page(&self) -> bool {
        matches!(self, SqliteFault::Sqlite(error) if SqliteFault::is_damage(error))
    }

    /// Returns whether the transaction of a copy ends here, rolled back and without harm to the store's other handles:
    /// the copy is damaged or is not of the journal's history, or its changes were not placed.
    pub(crate) fn ends_copying(&self) -> bool {
        matches!(self, SqliteFault::NotPlaced | SqliteFault::Mismatch(_)) || self.is_damage_of_copy()
    }

    /// Returns whether a row or page of a copy is damaged, so that the copy has to be made anew.
    pub(crate) fn is_damage_of_copy(&self) -> bool {
        matches!(self, SqliteFault::DamagedRow(..)) || self.is_damaged_bookkeeping()
    }

    pub(crate) fn is_damaged_bookkeeping(&self) -> bool {
        self.is_damaged_page() || matches!(self, SqliteFault::Malformed(..))
    }
}
