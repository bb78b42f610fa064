//! How a handler may end besides success and failure.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use millrace_claims::RunError;

use super::handler::{HandlerError, HandlerResult, IntoHandlerResult};

/// How a handler ends if neither success nor a plain failure describes it. An outcome is an error, so `?` passes it on,
/// even through an error type of your own that names it as its source; and it may be returned as a value:
/// `Result<HandlerOutcome, E>`.
///
/// The commits of the handler stand in any case; the events that it emitted are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerOutcome {
    /// The event is acknowledged. Only as a value.
    Done,
    /// The attempt has failed; the next one begins after this time, whatever the backoff says. Counts as an attempt, so
    /// the last one ends in a dead letter.
    RetryAfter { after: Duration, reason: String },
    /// The attempt has failed, and no other will succeed: the event becomes a dead letter at once.
    GiveUp { reason: String },
    /// Not now: the event is tried again after this time, without counting an attempt. At most `event_max_snoozes`
    /// (1000) times for an event and a handler; from then on each counts as a failed attempt.
    Snooze { after: Duration, reason: String },
    /// Finished without success: no retry and no dead letter, but a record with the reason (`events show`, `inspect`).
    Discard { reason: String },
}

impl HandlerOutcome {
    pub fn retry_after(after: Duration, reason: impl fmt::Display) -> HandlerOutcome {
        HandlerOutcome::RetryAfter { after, reason: reason.to_string() }
    }

    pub fn give_up(reason: impl fmt::Display) -> HandlerOutcome {
        HandlerOutcome::GiveUp { reason: reason.to_string() }
    }

    pub fn snooze(after: Duration, reason: impl fmt::Display) -> HandlerOutcome {
        HandlerOutcome::Snooze { after, reason: reason.to_string() }
    }

    pub fn discard(reason: impl fmt::Display) -> HandlerOutcome {
        HandlerOutcome::Discard { reason: reason.to_string() }
    }

    /// Returns the outcome that an error is, or that is one of its sources.
    pub(super) fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a HandlerOutcome> {
        std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
    }

    pub(crate) fn into_run_error(self) -> RunError {
        let ms = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        match self {
            // `Done` as an error would be a success that failed.
            HandlerOutcome::Done => RunError::Failed(HandlerOutcome::Done.to_string()),
            HandlerOutcome::RetryAfter { after, reason } => {
                RunError::RetryAfter { after_ms: ms(after), error: reason }
            }
            HandlerOutcome::GiveUp { reason } => RunError::Hopeless(reason),
            HandlerOutcome::Snooze { after, reason } => RunError::Snooze { after_ms: ms(after), reason },
            HandlerOutcome::Discard { reason } => RunError::Discard { reason },
        }
    }
}

impl fmt::Display for HandlerOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandlerOutcome::Done => f.write_str("done, returned as an error"),
            HandlerOutcome::RetryAfter { reason, .. } | HandlerOutcome::GiveUp { reason } => {
                f.write_str(reason)
            }
            HandlerOutcome::Snooze { reason, .. } => write!(f, "snoozed: {reason}"),
            HandlerOutcome::Discard { reason } => write!(f, "discarded: {reason}"),
        }
    }
}

impl Error for HandlerOutcome {}

impl IntoHandlerResult for HandlerOutcome {
    fn into_handler_result(self) -> HandlerResult {
        match self {
            HandlerOutcome::Done => Ok(()),
            outcome => Err(outcome.into()),
        }
    }
}

impl<E: Into<HandlerError>> IntoHandlerResult for Result<HandlerOutcome, E> {
    fn into_handler_result(self) -> HandlerResult {
        match self {
            Ok(outcome) => outcome.into_handler_result(),
            Err(error) => Err(error.into()),
        }
    }
}

/// Turns the error of a result into an outcome for the event.
pub trait OutcomeExt<T> {
    /// No retry will help: the event becomes a dead letter at once.
    fn or_give_up(self) -> Result<T, HandlerOutcome>;
    /// The attempt has failed; the next one begins after this time.
    fn or_retry_after(self, after: Duration) -> Result<T, HandlerOutcome>;
    /// The event is tried again after this time, without counting an attempt.
    fn or_snooze(self, after: Duration) -> Result<T, HandlerOutcome>;
    /// The event is finished without success, and recorded.
    fn or_discard(self) -> Result<T, HandlerOutcome>;
}

impl<T, E: fmt::Display> OutcomeExt<T> for Result<T, E> {
    fn or_give_up(self) -> Result<T, HandlerOutcome> {
        self.map_err(HandlerOutcome::give_up)
    }

    fn or_retry_after(self, after: Duration) -> Result<T, HandlerOutcome> {
        self.map_err(|error| HandlerOutcome::retry_after(after, error))
    }

    fn or_snooze(self, after: Duration) -> Result<T, HandlerOutcome> {
        self.map_err(|error| HandlerOutcome::snooze(after, error))
    }

    fn or_discard(self) -> Result<T, HandlerOutcome> {
        self.map_err(HandlerOutcome::discard)
    }
}
