//! The bytes that a guest writes: a stream of good, wrong, truncated and meaningless frames, cut into writes at any
//! byte.

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroU64};

use millrace_reactor::zcl1::HEADER_BYTES;
use millrace_reactor::{
    FirstDue, MonoNs, PollTimeout, Readiness, Request, RequestError, TimerId, WatchId, ZabiError,
};

use crate::dice::Dice;

const WATCH_IDS: u64 = 12;
const TIMER_IDS: u64 = 8;
/// Small, so that handle numbers are reused all the time.
pub(super) const NUMBER_MAX: u32 = 10;
const POLL_OP: u16 = millrace_reactor::messages::OP_POLL;

/// The meaning of some bytes of the stream, which the engine must act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Request(Request),
    /// A frame that must be answered with this error.
    Wrong(RequestError),
    /// The beginning of a frame whose rest never comes. The next write begins with a whole request.
    Truncated,
    /// Bytes that are no frame: the write returns this code.
    NoFrame(ZabiError),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) meaning: Meaning,
    pub(super) op: u16,
    pub(super) rid: u32,
    pub(super) start: u64,
    /// The position after the byte that decides what happens to the item.
    pub(super) decided_at: u64,
    pub(super) end: u64,
    /// A write that reaches the end of this item ends there.
    ends_write: bool,
    /// The frame is refused by its header, and its payload is not complete.
    pub(super) is_cut: bool,
    pub(super) is_answered: bool,
}

impl Item {
    pub(super) fn is_poll(&self) -> bool {
        matches!(self.meaning, Meaning::Request(Request::Poll { .. }))
    }
}

/// The bytes that a guest has to write. Positions count the bytes of the stream from its beginning.
#[derive(Debug, Default)]
pub(super) struct Stream {
    bytes: VecDeque<u8>,
    pub(super) items: VecDeque<Item>,
    /// Bytes that the engine has consumed.
    pub(super) consumed: u64,
    rid: u32,
}

impl Stream {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the engine has consumed whole items only.
    pub(super) fn is_between_items(&self) -> bool {
        self.items.front().is_none_or(|item| item.start == self.consumed)
    }

    fn request(&mut self, request: Request) {
        self.request_as(request, request);
    }

    /// Adds a request; `written` are the bytes that the engine gets for it. Both have the same length.
    pub(super) fn request_as(&mut self, request: Request, written: Request) {
        self.rid += 1;
        let bytes = written.frame(self.rid);
        let decided = bytes.len();
        self.push(&bytes, Meaning::Request(request), request.op(), decided, false);
    }

    /// Adds a frame that is wrong in one way, or a beginning of a frame followed by a good request.
    pub(super) fn wrong(&mut self, dice: &mut Dice, request: Request) {
        self.rid += 1;
        let mut bytes = request.frame(self.rid);
        let (op, whole) = (request.op(), bytes.len());
        match dice.below(8) {
            0 => {
                let (at, fault) = match dice.below(3) {
                    0 => (4, RequestError::Header(millrace_reactor::zcl1::HeaderFault::Version)),
                    1 => (12, RequestError::Header(millrace_reactor::zcl1::HeaderFault::RequestStatus)),
                    _ => (16, RequestError::Header(millrace_reactor::zcl1::HeaderFault::Reserved)),
                };
                bytes[at] = 9;
                self.refused_by_header(dice, &mut bytes, fault, op);
            }
            1 => {
                bytes.extend([1, 2, 3, 4]);
                bytes[20] += 4;
                let fault = match Request::check_length(op, bytes[20].into()) {
                    Err(fault) => fault,
                    Ok(()) => return,
                };
                self.refused_by_header(dice, &mut bytes, fault, op);
            }
            2 => {
                bytes[6] = 99;
                self.push(&bytes, Meaning::Wrong(RequestError::UnknownOp), 99, whole, false);
            }
            3 | 4 => {
                // The last field of WATCH and of TIMER_ARM is the flags; the last field of the others is never all
                // ones.
                let fault = match request {
                    Request::Watch { .. } => RequestError::WatchFlags,
                    Request::TimerArm { .. } => RequestError::TimerFlags,
                    Request::Unwatch { .. } => RequestError::UnknownWatch,
                    Request::TimerCancel { .. } => RequestError::UnknownTimer,
                    Request::Poll { .. } => RequestError::MaxEventsZero,
                };
                match request {
                    Request::Watch { .. } | Request::TimerArm { .. } => bytes[whole - 2] = 8,
                    _ => bytes[HEADER_BYTES..].fill(0),
                }
                self.push(&bytes, Meaning::Wrong(fault), op, whole, false);
            }
            5 => {
                bytes[23] = 0x7f;
                bytes.truncate(HEADER_BYTES);
                let meaning = Meaning::NoFrame(ZabiError::Bounds);
                self.push(&bytes, meaning, op, HEADER_BYTES, true);
            }
            6 => {
                bytes.fill(0xff);
                self.push(&bytes, Meaning::NoFrame(ZabiError::Invalid), op, 1, true);
            }
            _ => {
                bytes.truncate(dice.between(1, whole as u64 - 1) as usize);
                let known = bytes.len() >= 12;
                let end = bytes.len();
                self.push(&bytes, Meaning::Truncated, if known { op } else { 0 }, end, true);
                if let Some(item) = self.items.back_mut().filter(|_| !known) {
                    item.rid = 0;
                }
                self.request(request);
            }
        }
    }

    /// Adds a frame that is refused by its header, as soon as the header is complete. Half of them end before their
    /// payload does.
    fn refused_by_header(&mut self, dice: &mut Dice, bytes: &mut Vec<u8>, fault: RequestError, op: u16) {
        let is_cut = dice.chance(500);
        if is_cut {
            bytes.truncate(dice.between(HEADER_BYTES as u64, bytes.len() as u64 - 1) as usize);
        }
        self.push(bytes, Meaning::Wrong(fault), op, HEADER_BYTES, is_cut);
        if let Some(item) = self.items.back_mut().filter(|_| is_cut) {
            item.is_cut = true;
            self.request(cancel(1));
        }
    }

    fn push(&mut self, bytes: &[u8], meaning: Meaning, op: u16, decided: usize, ends_write: bool) {
        let start = self.end();
        let end = start + bytes.len() as u64;
        let (rid, decided_at) = (self.rid, start + decided as u64);
        let item =
            Item { meaning, op, rid, start, decided_at, end, ends_write, is_cut: false, is_answered: false };
        self.bytes.extend(bytes);
        self.items.push_back(item);
    }

    fn end(&self) -> u64 {
        self.consumed + self.bytes.len() as u64
    }

    /// Returns the bytes of the next write: at most one POLL, and nothing behind an item that ends its write. After a
    /// frame that was cut the write begins with a whole request.
    pub(super) fn next_write(&self, dice: &mut Dice, begins_whole: bool) -> Vec<u8> {
        let Some(first) = self.items.front() else { return Vec::new() };
        let last = self.items.iter().find(|item| item.ends_write).map_or(self.end(), |item| item.end);
        let polls = self.items.iter().filter(|item| item.op == POLL_OP);
        let second_poll = polls.filter(|item| item.is_poll()).nth(1).map_or(u64::MAX, |item| item.end - 1);
        let last = last.min(second_poll).max(first.end);
        let least = if begins_whole { first.end } else { self.consumed + 1 };
        let end = match dice.below(3) {
            0 => last,
            1 => first.end,
            _ => dice.between(least, last),
        };
        self.bytes.iter().take((end - self.consumed) as usize).copied().collect()
    }

    /// The engine has consumed so many bytes.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.consumed += bytes as u64;
        self.bytes.drain(..bytes);
        while self.items.front().is_some_and(|item| item.end <= self.consumed) {
            self.items.pop_front();
        }
    }
}

pub(super) fn any_request(dice: &mut Dice, now: u64, polls: u64) -> Request {
    if dice.chance(polls) {
        return any_poll(dice);
    }
    match dice.below(11) {
        0..5 => Request::Watch {
            handle: match dice.chance(50) {
                true => u32::MAX - dice.below(3) as u32,
                false => dice.between(3, NUMBER_MAX.into()) as u32,
            },
            interest: Readiness::from_bits(dice.between(1, 15) as u32).unwrap_or(Readiness::ALL),
            watch_id: WatchId(id(dice.between(1, WATCH_IDS))),
        },
        5..7 => Request::Unwatch { watch_id: WatchId(id(dice.between(1, WATCH_IDS))) },
        7..10 => {
            let interval_ns = match dice.below(12) {
                0..6 => None,
                6 => NonZeroU64::new(1),
                7 => NonZeroU64::new(u64::MAX - dice.below(2)),
                _ => NonZeroU64::new(dice.between(20_000, 3_000_000)),
            };
            let due = match dice.below(12) {
                0 => FirstDue::At(MonoNs(0)),
                1 => FirstDue::After(u64::MAX),
                2..5 => FirstDue::At(MonoNs(now + dice.below(2_000_000))),
                _ => FirstDue::After(dice.below(3_000_000)),
            };
            Request::TimerArm { timer_id: TimerId(id(dice.between(1, TIMER_IDS))), due, interval_ns }
        }
        _ => cancel(dice.between(1, TIMER_IDS)),
    }
}

fn any_poll(dice: &mut Dice) -> Request {
    let timeout = match dice.below(8) {
        0..5 => PollTimeout::Ms(0),
        5 => PollTimeout::Forever,
        _ => PollTimeout::Ms(dice.between(1, 4) as u32),
    };
    let max_events = if dice.chance(100) { dice.between(4, 64) } else { dice.between(1, 3) };
    Request::Poll { max_events: NonZeroU32::new(max_events as u32).unwrap_or(NonZeroU32::MIN), timeout }
}

fn cancel(timer: u64) -> Request {
    Request::TimerCancel { timer_id: TimerId(id(timer)) }
}

fn id(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}
