//! Errors, in words that say what to do next.

use bytes::Bytes;
use millrace_model::Identity;

/// Why a commit was refused. Nothing of the commit was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("the lease has run out: somebody else may have the event now, so nothing was written")]
    LeaseExpired,
    #[error(
        "the event would be number {depth} of its chain: at most {limit} are allowed (max_event_chain_depth)"
    )]
    EventLoopLimit { depth: u32, limit: u32 },
    #[error("{count} changes in one commit: at most {limit} are allowed (max_batch_size); split it")]
    BatchSizeExceeded { count: usize, limit: usize },
    /// The run was cut off: whatever the handler returns, the attempt has failed.
    #[error("the handler did not answer within {timeout_ms} ms: its attempt is over, so nothing was written")]
    TimedOut { timeout_ms: u64 },
    /// The commit is too large, or one of its events.
    #[error(
        "{bytes} bytes at once: at most {limit} are allowed; split the commit, or put less into the event"
    )]
    TooLarge { bytes: usize, limit: usize },
    /// A delayed event is too far ahead.
    #[error("an event was to be delayed by {delay_ms} ms: at most {limit} are allowed")]
    DelayTooLong { delay_ms: u64, limit: u64 },
    /// A check that the caller brought itself failed: a schema was changed by another commit.
    #[error("check {check} of the commit does not hold any more: read the row again")]
    Refused { check: usize, found: Option<Bytes> },
    /// State that the commit is based on has changed since it was read. Unless the run reads and commits again with
    /// success, its event is run again, which does not count as a failed attempt.
    #[error("{identity} has changed since it was read: nothing was written")]
    Conflict { identity: Identity },
    /// The handler's last commit has already acknowledged the event.
    #[error("the event is acknowledged already: nothing more can be committed for it")]
    Acknowledged,
    #[error("the store failed, whether the commit was written is unknown: {reason}")]
    StorageFailed { reason: String },
    #[error("the session has stopped")]
    Stopped,
}

/// How a handler's run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Retry by the backoff, as often as the configuration allows.
    #[error("{0}")]
    Failed(String),
    /// Retrying is pointless (the event cannot be decoded): the event becomes a dead letter at once.
    #[error("{0}")]
    Hopeless(String),
    /// Retry after this time; the attempt counts.
    #[error("{error}")]
    RetryAfter { after_ms: u64, error: String },
    /// Retry after this time; the attempt does not count, as often as `event_max_snoozes` allows.
    #[error("snoozed: {reason}")]
    Snooze { after_ms: u64, reason: String },
    /// Finished without success: no dead letter, but a record.
    #[error("discarded: {reason}")]
    Discard { reason: String },
}

/// Why a schedule or a worker cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("schedule {name:?}: {cron:?} is not a cron expression of five fields: {reason}")]
    Cron { name: String, cron: String, reason: String },
    #[error("schedule {name:?}: {every:?} is not an interval: {reason}")]
    Every { name: String, every: String, reason: String },
    #[error("schedule {name:?}: the time zone {zone:?} is not known")]
    Zone { name: String, zone: String },
    #[error("schedule {name:?}: {cron:?} never fires within {years} years")]
    NeverFires { name: String, cron: String, years: u64 },
    #[error("schedule {name:?}: its event has {bytes} bytes, at most {limit} are allowed: put less into it")]
    EventTooLarge { name: String, bytes: usize, limit: usize },
    #[error("the session's metadata has {bytes} bytes, at most {limit} are allowed: say less")]
    MetadataTooLarge { bytes: usize, limit: usize },
    #[error("there are two schedules named {0:?}: give each its own name")]
    DoubledSchedule(String),
    #[error("there are two handlers with the id {0:?}: give each its own id")]
    DoubledHandler(String),
    #[error("{name} is 0: give at least 1")]
    Zero { name: &'static str },
    #[error("handler {handler:?}: {name} is 0: give at least 1")]
    ZeroSetting { handler: String, name: &'static str },
    #[error("handler {handler:?}: rate_per_s is {rate}: give a number from 0.00001 to 1000000")]
    Rate { handler: String, rate: String },
    #[error(
        "handler {handler:?}: its lease of {lease_ms} ms ends before its timeout of {timeout_ms} ms: raise lease_ms, \
         or lower timeout_ms"
    )]
    LeaseBelowTimeout { handler: String, lease_ms: u64, timeout_ms: u64 },
}
