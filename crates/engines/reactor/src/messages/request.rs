//! The five requests of `sys/loop`.

use std::num::NonZeroU32;
use std::num::NonZeroU64;

use crate::messages::error::RequestError;
use crate::readiness::Readiness;
use crate::time::MonoNs;
use crate::zcl1::{FieldError, FieldReader, FieldWriter, Frame, Header};

pub const OP_WATCH: u16 = 1;
pub const OP_UNWATCH: u16 = 2;
pub const OP_TIMER_ARM: u16 = 3;
pub const OP_TIMER_CANCEL: u16 = 4;
pub const OP_POLL: u16 = 5;

const TIMER_RELATIVE: u32 = 1;
const TIMEOUT_FOREVER: u32 = u32::MAX;

/// The id of a watch, chosen by the guest, unique within one loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub NonZeroU64);

/// The id of a timer, chosen by the guest, unique within one loop. A watch and a timer may have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub NonZeroU64);

/// When a timer is due for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstDue {
    At(MonoNs),
    /// Nanoseconds from the moment at which the request is executed.
    After(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollTimeout {
    /// Wait at most this many milliseconds; 0 does not block.
    Ms(u32),
    Forever,
}

/// A request whose fields are valid by themselves. Whether ids and handles exist is checked when it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The loop checks the handle's number: it knows what can be watched.
    Watch {
        handle: u32,
        interest: Readiness,
        watch_id: WatchId,
    },
    Unwatch {
        watch_id: WatchId,
    },
    TimerArm {
        timer_id: TimerId,
        due: FirstDue,
        /// `None`: one-shot.
        interval_ns: Option<NonZeroU64>,
    },
    TimerCancel {
        timer_id: TimerId,
    },
    Poll {
        max_events: NonZeroU32,
        timeout: PollTimeout,
    },
}

impl Request {
    /// Checks the op and the payload's length, before the payload is complete: every op has exactly one length.
    ///
    /// # Errors
    ///
    /// [`RequestError`]
    pub fn check_length(op: u16, payload_bytes: u32) -> Result<(), RequestError> {
        let (expected, error) = match op {
            OP_WATCH => (20, RequestError::WatchPayload),
            OP_UNWATCH => (8, RequestError::UnwatchPayload),
            OP_TIMER_ARM => (28, RequestError::TimerArmPayload),
            OP_TIMER_CANCEL => (8, RequestError::TimerCancelPayload),
            OP_POLL => (8, RequestError::PollPayload),
            _ => return Err(RequestError::UnknownOp),
        };
        if payload_bytes == expected { Ok(()) } else { Err(error) }
    }

    /// Reads the payload of a request.
    ///
    /// # Errors
    ///
    /// [`RequestError`]
    pub fn decode(op: u16, payload: &[u8]) -> Result<Request, RequestError> {
        Request::check_length(op, u32::try_from(payload.len()).unwrap_or(u32::MAX))?;
        let fields = &mut FieldReader::new(payload);
        // The length was checked, so no field is missing: the fallbacks below cannot occur.
        match op {
            OP_WATCH => watch(fields).unwrap_or(Err(RequestError::WatchPayload)),
            OP_UNWATCH => unwatch(fields).unwrap_or(Err(RequestError::UnwatchPayload)),
            OP_TIMER_ARM => timer_arm(fields).unwrap_or(Err(RequestError::TimerArmPayload)),
            OP_TIMER_CANCEL => timer_cancel(fields).unwrap_or(Err(RequestError::TimerCancelPayload)),
            OP_POLL => poll(fields).unwrap_or(Err(RequestError::PollPayload)),
            _ => Err(RequestError::UnknownOp),
        }
    }

    pub fn op(&self) -> u16 {
        match self {
            Request::Watch { .. } => OP_WATCH,
            Request::Unwatch { .. } => OP_UNWATCH,
            Request::TimerArm { .. } => OP_TIMER_ARM,
            Request::TimerCancel { .. } => OP_TIMER_CANCEL,
            Request::Poll { .. } => OP_POLL,
        }
    }

    /// Returns the whole frame, for clients: tests, simulators, native guests.
    pub fn frame(&self, rid: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        self.encode(&mut payload);
        Frame::encode(Header::request(self.op(), rid), &payload).unwrap_or_default()
    }

    fn encode(&self, payload: &mut Vec<u8>) {
        let mut fields = FieldWriter::new(payload);
        match *self {
            Request::Watch { handle, interest, watch_id } => {
                fields.u32(handle).u32(interest.bits()).u64(watch_id.0.get()).u32(0);
            }
            Request::Unwatch { watch_id } => {
                fields.u64(watch_id.0.get());
            }
            Request::TimerArm { timer_id, due, interval_ns } => {
                let (due_ns, flags) = match due {
                    FirstDue::At(MonoNs(ns)) => (ns, 0),
                    FirstDue::After(ns) => (ns, TIMER_RELATIVE),
                };
                let interval_ns = interval_ns.map_or(0, NonZeroU64::get);
                fields.u64(timer_id.0.get()).u64(due_ns).u64(interval_ns).u32(flags);
            }
            Request::TimerCancel { timer_id } => {
                fields.u64(timer_id.0.get());
            }
            Request::Poll { max_events, timeout } => {
                let timeout = match timeout {
                    PollTimeout::Ms(ms) => ms,
                    PollTimeout::Forever => TIMEOUT_FOREVER,
                };
                fields.u32(max_events.get()).u32(timeout);
            }
        }
    }
}

/// The outer error means that a field is missing, the inner one that a field is not valid.
type Decoded = Result<Result<Request, RequestError>, FieldError>;

fn watch(fields: &mut FieldReader<'_>) -> Decoded {
    let (handle, events, id, flags) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u32()?);
    // The reference checks the flags before anything else.
    if flags != 0 {
        return Ok(Err(RequestError::WatchFlags));
    }
    let Some(interest) = Readiness::from_bits(events) else { return Ok(Err(RequestError::UnknownInterest)) };
    if interest.is_empty() {
        return Ok(Err(RequestError::NoInterest));
    }
    let watch_id = NonZeroU64::new(id).map(WatchId).ok_or(RequestError::WatchIdZero);
    Ok(watch_id.map(|watch_id| Request::Watch { handle, interest, watch_id }))
}

fn unwatch(fields: &mut FieldReader<'_>) -> Decoded {
    let watch_id = NonZeroU64::new(fields.u64()?).map(WatchId).ok_or(RequestError::UnknownWatch);
    Ok(watch_id.map(|watch_id| Request::Unwatch { watch_id }))
}

fn timer_arm(fields: &mut FieldReader<'_>) -> Decoded {
    let (id, due_ns, interval_ns, flags) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u32()?);
    let due = match flags {
        0 => FirstDue::At(MonoNs(due_ns)),
        TIMER_RELATIVE => FirstDue::After(due_ns),
        _ => return Ok(Err(RequestError::TimerFlags)),
    };
    let timer_id = NonZeroU64::new(id).map(TimerId).ok_or(RequestError::TimerIdZero);
    let interval_ns = NonZeroU64::new(interval_ns);
    Ok(timer_id.map(|timer_id| Request::TimerArm { timer_id, due, interval_ns }))
}

fn timer_cancel(fields: &mut FieldReader<'_>) -> Decoded {
    let timer_id = NonZeroU64::new(fields.u64()?).map(TimerId).ok_or(RequestError::UnknownTimer);
    Ok(timer_id.map(|timer_id| Request::TimerCancel { timer_id }))
}

fn poll(fields: &mut FieldReader<'_>) -> Decoded {
    let (max_events, timeout_ms) = (fields.u32()?, fields.u32()?);
    let timeout = match timeout_ms {
        TIMEOUT_FOREVER => PollTimeout::Forever,
        ms => PollTimeout::Ms(ms),
    };
    let max_events = NonZeroU32::new(max_events).ok_or(RequestError::MaxEventsZero);
    Ok(max_events.map(|max_events| Request::Poll { max_events, timeout }))
}
