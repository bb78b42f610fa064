//! Reasons why a request is answered with an error frame.

use thiserror::Error;

use crate::zcl1::{ErrorPayload, HeaderFault};

/// The trace of every error of `sys/loop`.
pub const ERROR_TRACE: &str = "sys.loop";

/// The exact reason of an error, for logs and tests. The guest gets [`RequestError::message`], which is coarser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    #[error("the header of the frame is wrong: {0}")]
    Header(#[from] HeaderFault),
    #[error("a new request began before the frame was complete")]
    Truncated,
    #[error("the op is unknown")]
    UnknownOp,
    #[error("the payload of WATCH must be 20 bytes")]
    WatchPayload,
    #[error("the payload of UNWATCH must be 8 bytes")]
    UnwatchPayload,
    #[error("the payload of TIMER_ARM must be 28 bytes")]
    TimerArmPayload,
    #[error("the payload of TIMER_CANCEL must be 8 bytes")]
    TimerCancelPayload,
    #[error("the payload of POLL must be 8 bytes")]
    PollPayload,
    #[error("the flags of WATCH must be 0")]
    WatchFlags,
    #[error("a watch_id must not be 0")]
    WatchIdZero,
    #[error("a watch with this watch_id is installed")]
    WatchIdInUse,
    #[error("a watch must ask for at least one event")]
    NoInterest,
    #[error("the events of a watch have unknown bits")]
    UnknownInterest,
    #[error("the handle cannot be watched")]
    NotWatchable,
    #[error("the loop has {max} watches and takes no more")]
    TooManyWatches { max: usize },
    #[error("no watch has this watch_id")]
    UnknownWatch,
    #[error("a timer_id must not be 0")]
    TimerIdZero,
    #[error("the flags of TIMER_ARM have unknown bits")]
    TimerFlags,
    #[error("the loop has {max} timers and takes no more")]
    TooManyTimers { max: usize },
    #[error("no timer has this timer_id")]
    UnknownTimer,
    #[error("max_events must be at least 1")]
    MaxEventsZero,
}

impl RequestError {
    /// Returns the message of the error frame: the reference host's words where it has any, because guests may compare
    /// them.
    pub fn message(self) -> &'static str {
        match self {
            RequestError::Header(HeaderFault::Version) => "version must be 1",
            RequestError::Header(HeaderFault::RequestStatus | HeaderFault::ReplyStatus) => "status must be 0",
            RequestError::Header(HeaderFault::Reserved) => "reserved must be 0",
            RequestError::Truncated => "truncated frame",
            RequestError::UnknownOp => "unknown op",
            RequestError::WatchPayload => "bad WATCH payload",
            RequestError::UnwatchPayload => "bad UNWATCH payload",
            RequestError::TimerArmPayload => "bad TIMER_ARM payload",
            RequestError::TimerCancelPayload => "bad TIMER_CANCEL payload",
            RequestError::PollPayload => "bad POLL payload",
            RequestError::WatchFlags => "flags must be 0",
            RequestError::WatchIdZero
            | RequestError::WatchIdInUse
            | RequestError::NoInterest
            | RequestError::UnknownInterest
            | RequestError::NotWatchable
            | RequestError::TooManyWatches { .. } => "watch failed",
            RequestError::UnknownWatch => "unknown watch_id",
            RequestError::TimerIdZero | RequestError::TimerFlags | RequestError::TooManyTimers { .. } => {
                "timer arm failed"
            }
            RequestError::UnknownTimer => "unknown timer_id",
            RequestError::MaxEventsZero => "max_events must be >= 1",
        }
    }

    /// Returns the payload of the error frame.
    pub fn payload(self) -> ErrorPayload<'static> {
        ErrorPayload { trace: ERROR_TRACE, message: self.message(), detail: "" }
    }
}
