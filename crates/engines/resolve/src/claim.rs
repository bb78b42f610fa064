//! A claim: which events a handler gets, and the rows that record it.
//!
//! A claim has three sources, each of them sorted: the handler's own claims that are due again (`due.rs`), the lanes of
//! events with another priority than the default (`priority_lanes.rs`), and the plain lanes, which walk the
//! streams (`plain.rs`). The source with the most urgent, then oldest event gives the next one. A claim in order of keys
//! works differently: see `ordered.rs`.

use std::cmp::Reverse;
use std::sync::Arc;

use millrace_model::{
    Claim, ClaimRow, ClaimState, Claimed, Ending, Event, FinishedRow, HandlerOrder, LANE_PRIORITY_MAX,
    Offset, Op, OrderKey, PRIORITY_DEFAULT, Partition, Priority, RunMark, Space, Stream, Suspicion, Ticket,
    Timestamp, keys,
};

use crate::due::Due;
use crate::events::{Events, Found};
use crate::plain::PlainLane;
use crate::priority_lanes::OffLanes;
use crate::{StreamView, TxView, ordered};

/// How many events a claim passes over (of another lane, damaged, gone) before it ends and says that there is more.
pub const PASSED_OVER_MAX: usize = 1024;

/// The result of a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taken {
    /// Plain puts and deletes, to be applied in this order.
    pub ops: Vec<Op>,
    pub claimed: Vec<Claimed>,
    /// Further events may be left that could be claimed at once.
    pub more: bool,
}

/// Sorts urgent events first, then older ones, then by position.
pub(super) type Order = (Reverse<i32>, Timestamp, Partition, Offset);

pub(super) const PLAIN_RANK: i32 = PRIORITY_DEFAULT.0;

pub(super) fn rank(priority: Priority) -> i32 {
    priority.0.clamp(0, LANE_PRIORITY_MAX)
}

/// The source of the next event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Due,
    Off(usize),
    Plain(usize),
}

/// The decisions of a claim so far.
pub(super) struct Taking<'a> {
    pub(super) now: Timestamp,
    pub(super) claim: &'a Claim,
    pub(super) taken: Taken,
    bytes: usize,
    /// How many more events may be marked as about to start ([`RunMark::Claimed`]).
    starts: usize,
    /// How many more events may be passed over.
    pub(super) patience: usize,
}

pub fn claim<L: TxView>(tx: &mut L, now: Timestamp, claim: &Claim) -> Result<Taken, L::Error> {
    let mut taking = Taking {
        now,
        claim,
        taken: Taken::default(),
        bytes: 0,
        starts: claim.start_max,
        patience: PASSED_OVER_MAX,
    };
    if claim.events_max == 0 {
        return Ok(taking.taken);
    }
    if claim.order == HandlerOrder::Key {
        return ordered::claim(tx, taking);
    }
    let mut due = Due::load(tx, now, claim)?;
    let mut streams = tx.streams(&claim.topic)?;
    // Streams that this very commit began have no events to claim yet.
    streams.retain(|stream_view| stream_view.next > Offset::FIRST);
    let mut events = Events::default();
    let (mut off, mut plain) = lanes(tx, claim, &streams)?;
    while taking.taken.claimed.len() < claim.events_max {
        let mut heads: Vec<(Order, Source)> = Vec::with_capacity(1 + off.len() + plain.len());
        heads.extend(due.peek().map(|order| (order, Source::Due)));
        for (at, lanes) in off.iter_mut().enumerate() {
            heads.extend(lanes.peek(tx, claim.events_max)?.map(|order| (order, Source::Off(at))));
        }
        for (at, lane) in plain.iter_mut().enumerate() {
            heads.extend(lane.peek(tx, &mut taking)?.map(|order| (order, Source::Plain(at))));
        }
        let went_on = match heads.into_iter().min() {
            None => break,
            Some((_, Source::Due)) => due.take(tx, &mut events, &mut taking)?,
            Some((_, Source::Off(at))) => off[at].take(tx, &mut events, &mut taking)?,
            Some((_, Source::Plain(at))) => plain[at].take(&mut taking),
        };
        if !went_on {
            break;
        }
    }
    let mut more = due.peek().is_some();
    for (off, plain) in off.iter_mut().zip(&mut plain) {
        more |= off.is_unfinished() || plain.is_unfinished();
        off.finish(plain, &mut taking.taken.ops, claim);
        plain.finish(&mut taking.taken.ops, claim);
    }
    taking.taken.more = more;
    Ok(taking.taken)
}

/// Returns the lanes of each stream, in the order of `streams`.
fn lanes<'a, L: TxView>(
    tx: &mut L,
    claim: &Claim,
    streams: &'a [StreamView],
) -> Result<(Vec<OffLanes<'a>>, Vec<PlainLane<'a>>), L::Error> {
    let rows = tx.scan(
        Space::Lanes,
        &millrace_model::KeyRange::prefix(&keys::lanes_of(&claim.handler, &claim.topic)),
        usize::MAX,
    )?;
    let (mut off, mut plain) = (Vec::with_capacity(streams.len()), Vec::with_capacity(streams.len()));
    let page = claim.events_max / streams.len().max(1) + 1;
    let page_bytes = claim.bytes_max / streams.len().max(1);
    for stream_view in streams {
        let lane = PlainLane::new(stream_view, &rows, page, page_bytes);
        off.push(OffLanes::new(stream_view, &rows, &lane));
        plain.push(lane);
    }
    Ok((off, plain))
}

impl Taking<'_> {
    /// Returns whether the event still fits in the claim; the first one always does.
    pub(super) fn fits(&self, event: &Event) -> bool {
        self.taken.claimed.is_empty() || self.bytes.saturating_add(event.body.bytes()) <= self.claim.bytes_max
    }

    pub(super) fn room(&self) -> usize {
        self.claim.bytes_max.saturating_sub(self.bytes)
    }

    pub(super) fn take_new(&mut self, event: Arc<Event>, order_key: Option<OrderKey>) {
        let (priority, ts) = (event.body.priority, event.ts);
        let row = ClaimRow { generation: 1, priority, ts, order_key, ..ClaimRow::default() };
        self.put(event, row);
    }

    pub(super) fn take_again(&mut self, event: Arc<Event>, key: String, before: ClaimRow) {
        self.taken.ops.push(Op::Delete { space: Space::Claims, key });
        let (lost_runs, suspicion) = match (before.state, before.run) {
            (ClaimState::Waiting, _) => (0, before.suspicion),
            (ClaimState::Leased, RunMark::Unknown) => (0, before.suspicion.max(Suspicion::Possible)),
            // The process may have died before the call, so no attempt is counted; or because of the event, so it is
            // suspected.
            (ClaimState::Leased, RunMark::Claimed) => (0, Suspicion::Likely),
            (ClaimState::Leased, RunMark::Started) => (1, Suspicion::Likely),
            // The session was alive late in the lease: the event did not end a process.
            (ClaimState::Leased, RunMark::Long) => (1, Suspicion::None),
        };
        let row = ClaimRow {
            generation: before.generation.saturating_add(1),
            attempts: before.attempts.saturating_add(lost_runs),
            suspicion,
            ..before
        };
        self.put(event, row);
    }

    fn put(&mut self, event: Arc<Event>, row: ClaimRow) {
        let starts = self.starts > 0 && row.suspicion < Suspicion::Likely;
        self.starts -= usize::from(starts);
        let row = ClaimRow {
            state: ClaimState::Leased,
            run: if starts { RunMark::Claimed } else { RunMark::Unknown },
            due: self.claim.lease_until,
            for_ms: Some(self.claim.lease_until.0.saturating_sub(self.now.0)),
            session: Some(self.claim.session.clone()),
            claimed_at: self.now,
            ..row
        };
        self.bytes = self.bytes.saturating_add(event.body.bytes());
        let (handler, stream) = (self.claim.handler.clone(), event.stream.clone());
        let ticket = Ticket { handler, stream, offset: event.offset, row };
        self.taken.ops.push(ticket.put());
        self.taken.claimed.push(Claimed { ticket, event });
    }

    /// Records that the event will never reach the handler. An ending that is already recorded stays.
    pub(super) fn lose(&mut self, stream: &Stream, offset: Offset, attempts: u32, found: &Found) {
        let error = match found {
            Found::Damaged => "the event was damaged",
            Found::Gone | Found::Event(_) => "the event was removed",
        };
        let row = FinishedRow {
            ending: Ending::Lost,
            at: self.now,
            attempts,
            session: None,
            error: Some(error.to_owned()),
        };
        let key = keys::finished(stream, offset, &self.claim.handler);
        self.taken.ops.push(Op::PutNew { space: Space::Finished, key, value: row.encode() });
    }
}
