//! Claims that are due: those that wait for another attempt, and those whose lease has expired.

use std::cmp::Reverse;
use std::collections::VecDeque;

use millrace_model::{Claim, ClaimRow, ClaimState, KeyRange, Offset, Op, Space, Stream, Timestamp, keys};

use crate::TxView;
use crate::claim::{Order, Taking, rank};
use crate::events::{Events, Found};

/// How many due claims are sorted by priority; those that were due first are read first.
pub const DUE_MAX: usize = 1024;
/// How many due claims on other topics (which the handler took earlier) are skipped while looking for this topic's.
pub const FOREIGN_MAX: usize = 16 * DUE_MAX;

const ROWS_PER_SCAN: usize = 256;

struct Open {
    order: Order,
    key: String,
    row: ClaimRow,
    stream: Stream,
    offset: Offset,
}

pub(super) struct Due {
    /// Sorted by `order`.
    open: VecDeque<Open>,
}

impl Due {
    pub(super) fn load<L: TxView>(tx: &mut L, now: Timestamp, claim: &Claim) -> Result<Due, L::Error> {
        let namespace = claim.topic.namespace();
        let mut range = KeyRange {
            from: keys::claims_of(namespace, &claim.handler),
            to: Some(keys::claims_end(namespace, &claim.handler, now)),
        };
        let (mut open, mut foreign) = (Vec::new(), 0);
        while open.len() < DUE_MAX && foreign < FOREIGN_MAX {
            let rows = tx.scan(Space::Claims, &range, ROWS_PER_SCAN)?;
            let full = rows.len() == ROWS_PER_SCAN;
            if let Some(last) = rows.last().filter(|_| full) {
                range.from = format!("{}\0", last.key);
            }
            for row in rows {
                match keys::claim_place(&row.key).filter(|(_, stream, _)| stream.topic == claim.topic) {
                    Some((_, stream, offset)) => {
                        let read = ClaimRow::decode(&row.key, &row.value);
                        let read = read.unwrap_or_else(|_| unreadable(now));
                        let order = (Reverse(rank(read.priority)), read.ts, stream.partition, offset);
                        open.push(Open { order, key: row.key, row: read, stream, offset });
                    }
                    None => foreign += 1,
                }
            }
            if !full {
                break;
            }
        }
        open.sort_by_key(|open| open.order);
        Ok(Due { open: open.into() })
    }

    pub(super) fn peek(&self) -> Option<Order> {
        self.open.front().map(|open| open.order)
    }

    /// Claims the first due event. Returns whether the claim may go on.
    pub(super) fn take<L: TxView>(
        &mut self,
        tx: &mut L,
        events: &mut Events,
        taking: &mut Taking<'_>,
    ) -> Result<bool, L::Error> {
        let Some(open) = self.open.pop_front() else { return Ok(true) };
        let following = self.open.iter().take_while(|next| next.stream == open.stream);
        let found =
            events.find(tx, &open.stream, open.offset, following.map(|next| next.offset), taking.room())?;
        match found {
            Found::Event(event) if !taking.fits(&event) => {
                self.open.push_front(open);
                return Ok(false);
            }
            Found::Event(event) => taking.take_again(event, open.key, open.row),
            lost => {
                taking.taken.ops.push(Op::Delete { space: Space::Claims, key: open.key });
                taking.lose(&open.stream, open.offset, open.row.attempts, &lost);
            }
        }
        Ok(true)
    }
}

/// Replaces a claim's row that cannot be decoded, so that its event is not stranded. Counting never reaches this
/// generation, so no old ticket becomes valid again.
pub(super) fn unreadable(now: Timestamp) -> ClaimRow {
    ClaimRow {
        generation: now.0,
        state: ClaimState::Leased,
        error: Some("the row of the claim could not be read".to_owned()),
        ..ClaimRow::default()
    }
}
