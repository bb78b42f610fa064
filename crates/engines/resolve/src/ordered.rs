//! A claim in order of keys: events of a key one at a time, in the order of the log, however many sessions claim.
//!
//! The table of open claims keeps the order. A key is open while the handler has a row for one of its events. A new
//! event of an open key is not claimed but filed behind its key, as a waiting claim that is due at once. So the lanes
//! advance past the event, and only its row says that it is left. Of the rows of a key only the first is ever claimed,
//! when it is due and no session holds another one. Claims by priority see these rows as ordinary claims that are due.
//!
//! Every claim in order of keys reads all open claims of the handler, which is why their number is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrace_model::{
    BEHIND_PER_EVENT_MAX, Claim, ClaimRow, ClaimState, Event, KeyRange, Offset, Op, OrderKey, Partition, Row,
    Space, Stream, Ticket, Timestamp, keys,
};

use crate::claim::{Taken, Taking};
use crate::due::unreadable;
use crate::events::{Events, Found};
use crate::plain::PlainLane;
use crate::{StreamView, TxView};

/// A handler with this many open claims (held, waiting for a retry, behind their keys) takes no new events until some
/// have ended. Claims that already wait continue.
pub const OPEN_MAX: usize = 4096;

/// How many rows of open claims a claim reads. There are more only if that many dead letters were replayed, or if the
/// handler had them before it was ordered: then the order holds among those that are due first, and no new event is
/// taken.
const ROWS_MAX: usize = 16 * OPEN_MAX;

/// How many events a claim reads because their row does not name their key. The rows beyond wait for a later claim, and
/// no new event is taken.
const KEYS_READ_MAX: usize = 1024;

const ROWS_PER_SCAN: usize = 256;

/// Sorts by age. Time never decreases within a stream, so there this is the order of offsets.
type AgePosition = (Timestamp, Partition, Offset);

/// An open claim that is due.
struct Ready {
    key: String,
    row: ClaimRow,
    stream: Stream,
    offset: Offset,
}

/// The open claims of one key.
struct OpenKey {
    /// The position of the first of them.
    place: AgePosition,
    ready: Option<Ready>,
    /// A session holds a lease on one of them.
    held: bool,
}

/// The open claims of a handler.
struct Open {
    /// How many open claims the handler has on this topic.
    rows: usize,
    keys: BTreeMap<OrderKey, OpenKey>,
    /// The claims that may be taken, sorted: the first one of each key if it is due, and due ones without a key.
    ready: VecDeque<(AgePosition, Ready)>,
    /// Some rows were not read.
    cut_short: bool,
    /// The first row of a key was deleted in this claim because its event is gone, so the next one may be ready.
    freed: bool,
}

pub(super) fn claim<L: TxView>(tx: &mut L, mut taking: Taking<'_>) -> Result<Taken, L::Error> {
    let claim = taking.claim;
    let mut events = Events::default();
    let mut open = Open::load(tx, &taking, &mut events)?;
    let mut streams = tx.streams(&claim.topic)?;
    // Streams that this very commit began have no events to claim yet.
    streams.retain(|stream_view| stream_view.next > Offset::FIRST);
    let mut lanes = lanes(tx, claim, &streams, OPEN_MAX.saturating_sub(open.rows))?;
    let mut behind = claim.events_max.saturating_mul(BEHIND_PER_EVENT_MAX);
    while taking.taken.claimed.len() < claim.events_max {
        let next = match open.has_room() && behind > 0 {
            true => oldest(tx, &mut lanes, &mut taking)?,
            false => None,
        };
        let new_first = |due: &AgePosition| next.filter(|(place, _)| place < due);
        let lane = open.ready.front().map_or(next, |(due, _)| new_first(due));
        let went_on = match lane {
            Some((_, at)) => open.take_new(&mut lanes[at], &mut taking, &mut behind),
            None if open.ready.is_empty() => break,
            None => open.take_ready(tx, &mut events, &mut taking)?,
        };
        if !went_on {
            break;
        }
    }
    let mut more = open.freed || !open.ready.is_empty();
    for lane in &mut lanes {
        more |= open.has_room() && lane.is_unfinished();
        lane.finish(&mut taking.taken.ops, claim);
    }
    taking.taken.more = more;
    Ok(taking.taken)
}

/// Returns the lane whose next event is the oldest. `None` if a lane's next event is unknown because the claim has
/// passed over as many events as it may: after a topic got more partitions, a key has events in two of them.
fn oldest<L: TxView>(
    tx: &mut L,
    lanes: &mut [PlainLane<'_>],
    taking: &mut Taking<'_>,
) -> Result<Option<(AgePosition, usize)>, L::Error> {
    let mut oldest: Option<(AgePosition, usize)> = None;
    for (at, lane) in lanes.iter_mut().enumerate() {
        match lane.peek(tx, taking)? {
            Some((_, ts, partition, offset)) => {
                let head = ((ts, partition, offset), at);
                oldest = Some(oldest.map_or(head, |found| found.min(head)));
            }
            None if lane.is_unfinished() => return Ok(None),
            None => {}
        }
    }
    Ok(oldest)
}

/// Returns a lane per stream. The first page of each is no larger than the room for further rows.
fn lanes<'a, L: TxView>(
    tx: &mut L,
    claim: &Claim,
    streams: &'a [StreamView],
    room: usize,
) -> Result<Vec<PlainLane<'a>>, L::Error> {
    let range = KeyRange::prefix(&keys::lanes_of(&claim.handler, &claim.topic));
    let rows = tx.scan(Space::Lanes, &range, usize::MAX)?;
    let page = claim.events_max.min(room) / streams.len().max(1) + 1;
    let page_bytes = claim.bytes_max / streams.len().max(1);
    Ok(streams.iter().map(|stream_view| PlainLane::whole(stream_view, &rows, page, page_bytes)).collect())
}

impl Open {
    fn load<L: TxView>(tx: &mut L, taking: &Taking<'_>, events: &mut Events) -> Result<Open, L::Error> {
        let claim = taking.claim;
        let mut open =
            Open { rows: 0, keys: BTreeMap::new(), ready: VecDeque::new(), cut_short: false, freed: false };
        let mut range = KeyRange::prefix(&keys::claims_of(claim.topic.namespace(), &claim.handler));
        let (mut rows_read, mut keys_read, mut keyless) = (0, 0, Vec::new());
        loop {
            let rows = tx.scan(Space::Claims, &range, ROWS_PER_SCAN)?;
            let full = rows.len() == ROWS_PER_SCAN;
            if let Some(last) = rows.last().filter(|_| full) {
                range.from = format!("{}\0", last.key);
            }
            rows_read += rows.len();
            for Row { key, value } in rows {
                let place = keys::claim_place(&key).filter(|(_, stream, _)| stream.topic == claim.topic);
                // Skips rows of other topics, which the handler took earlier.
                let Some((_, stream, offset)) = place else { continue };
                open.rows += 1;
                let mut row = ClaimRow::decode(&key, &value).unwrap_or_else(|_| unreadable(taking.now));
                if row.order_key.is_none() {
                    keys_read += 1;
                    if keys_read > KEYS_READ_MAX {
                        open.cut_short = true;
                        continue;
                    }
                    row.order_key = Some(key_of(tx, events, &stream, offset, taking)?);
                }
                open.add(taking.now, Ready { key, row, stream, offset }, &mut keyless);
            }
            if !full {
                break;
            }
            if rows_read >= ROWS_MAX {
                open.cut_short = true;
                break;
            }
        }
        let firsts = open.keys.values_mut().filter(|key| !key.held);
        let mut ready: Vec<_> = firsts.filter_map(|key| Some((key.place, key.ready.take()?))).collect();
        ready.append(&mut keyless);
        ready.sort_by_key(|(place, _)| *place);
        open.ready = ready.into();
        Ok(open)
    }

    fn add(&mut self, now: Timestamp, claim: Ready, keyless: &mut Vec<(AgePosition, Ready)>) {
        let place = (claim.row.ts, claim.stream.partition, claim.offset);
        let (due, leased) = (claim.row.due <= now, claim.row.state == ClaimState::Leased);
        let key = claim.row.order_key.unwrap_or(OrderKey::NONE);
        let ready = due.then_some(claim);
        if key == OrderKey::NONE {
            return keyless.extend(ready.map(|ready| (place, ready)));
        }
        let held = leased && !due;
        match self.keys.get_mut(&key) {
            None => drop(self.keys.insert(key, OpenKey { place, ready, held })),
            Some(known) => {
                known.held |= held;
                if place < known.place {
                    (known.place, known.ready) = (place, ready);
                }
            }
        }
    }

    /// Returns whether new events may be taken.
    fn has_room(&self) -> bool {
        self.rows < OPEN_MAX && !self.cut_short
    }

    /// Claims the first ready event. Returns whether the claim may go on.
    fn take_ready<L: TxView>(
        &mut self,
        tx: &mut L,
        events: &mut Events,
        taking: &mut Taking<'_>,
    ) -> Result<bool, L::Error> {
        let Some((place, ready)) = self.ready.pop_front() else { return Ok(true) };
        let following = self.ready.iter().take_while(|(_, next)| next.stream == ready.stream);
        let following = following.map(|(_, next)| next.offset);
        match events.find(tx, &ready.stream, ready.offset, following, taking.room())? {
            Found::Event(event) if !taking.fits(&event) => {
                self.ready.push_front((place, ready));
                return Ok(false);
            }
            Found::Event(event) => taking.take_again(event, ready.key, ready.row),
            lost => {
                taking.taken.ops.push(Op::Delete { space: Space::Claims, key: ready.key });
                taking.lose(&ready.stream, ready.offset, ready.row.attempts, &lost);
                self.freed = true;
            }
        }
        Ok(true)
    }

    /// Claims the lane's next event, or files it behind its key. Returns whether the claim may go on.
    fn take_new(&mut self, lane: &mut PlainLane<'_>, taking: &mut Taking<'_>, behind: &mut usize) -> bool {
        let Some(event) = lane.front() else { return true };
        let key = OrderKey::of(event.body.key.as_deref());
        let waits = self.keys.contains_key(&key);
        if !waits && !taking.fits(event) {
            return false;
        }
        let Some(event) = lane.pop() else { return true };
        self.rows += 1;
        if waits {
            *behind -= 1;
            taking.patience = taking.patience.saturating_sub(1);
            file_behind(&event, key, taking);
            return true;
        }
        if key != OrderKey::NONE {
            let place = (event.ts, event.stream.partition, event.offset);
            self.keys.insert(key, OpenKey { place, ready: None, held: true });
        }
        taking.take_new(event, Some(key));
        true
    }
}

/// Writes the row of an event that waits behind its key: due now, and never claimed so far.
fn file_behind(event: &Arc<Event>, key: OrderKey, taking: &mut Taking<'_>) {
    let row = ClaimRow {
        state: ClaimState::Waiting,
        due: taking.now,
        for_ms: Some(0),
        claimed_at: taking.now,
        priority: event.body.priority,
        ts: event.ts,
        order_key: Some(key),
        ..ClaimRow::default()
    };
    let (handler, stream) = (taking.claim.handler.clone(), event.stream.clone());
    taking.taken.ops.push(Ticket { handler, stream, offset: event.offset, row }.put());
}

/// Returns the key of an event whose claim was made by priority. An event that is gone gets none, so no other waits for
/// it.
fn key_of<L: TxView>(
    tx: &mut L,
    events: &mut Events,
    stream: &Stream,
    offset: Offset,
    taking: &Taking<'_>,
) -> Result<OrderKey, L::Error> {
    let found = events.find(tx, stream, offset, std::iter::empty(), taking.room())?;
    Ok(match found {
        Found::Event(event) => OrderKey::of(event.body.key.as_deref()),
        Found::Damaged | Found::Gone => OrderKey::NONE,
    })
}
