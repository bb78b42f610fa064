//! Every bound and interval of a worker, with its default. The names are those users set.

use std::collections::BTreeMap;

use millrace_model::Namespace;

use crate::settings::HandlerSettings;

/// How a session works. Times are milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerConfig {
    /// Pause between two looks at the store when there was nothing, or when an iteration's budget is used up.
    pub event_poll_interval_ms: u64,
    /// Events one handler may have in hand, queued and running.
    pub event_claim_limit: usize,
    /// Events started per iteration over all handlers: then the poll interval passes.
    pub max_events_per_iteration: usize,
    /// How long a claimed event belongs to whoever claimed it.
    pub event_claim_lease_ms: u64,
    /// Finished events older than this are removed; a topic's own retention wins.
    pub event_retention_ms: u64,
    pub session_heartbeat_interval_ms: u64,
    /// A session whose heartbeat is older than this counts as dead.
    pub session_ttl_ms: u64,
    /// Failed or expired tries after which an event is given up.
    pub event_max_attempts: u32,
    pub event_backoff_base_ms: u64,
    pub event_backoff_max_ms: u64,
    /// How often an event is run again because of a conflict without that counting as a failed attempt; the next
    /// conflict counts as one, and the counting begins anew.
    pub conflict_retries_max: u32,
    /// The pause before a run is repeated because of a conflict is drawn between 0 and this, doubled with each conflict
    /// of the event up to 64 times.
    pub conflict_backoff_ms: u64,
    /// How often one commit applies its updates again because somebody else was faster, before it is a conflict.
    pub update_retries_max: u32,
    /// Events caused by events caused by events: beyond this the handler fails.
    pub max_event_chain_depth: u32,
    /// Where sessions live that name no namespace.
    pub default_namespace: Namespace,
    /// Intents of one commit, and events emitted by one run: more are refused whole.
    pub max_batch_size: usize,
    /// Handlers that run at once in this session.
    pub handler_concurrency: usize,
    /// A run that has not ended after so long has failed, unless its handler has a timeout of its own. `None`: runs without
    /// one may take as long as they like, and keep their place.
    pub handler_timeout_ms: Option<u64>,
    /// Runs that were cut off and whose function has not returned: the place of so many is replaced. Those beyond keep
    /// theirs, so that no more than this and `handler_concurrency` threads call handlers.
    pub hanging_handlers_max: usize,
    /// How long a stop waits for runs. What still runs then is cut off, and its event given back without an attempt.
    pub stop_grace_ms: u64,
    /// How often one event may be snoozed; from then on a snooze counts as an attempt.
    pub event_max_snoozes: u32,
    /// What holds for single handlers, by their id. Wins over what the program says beside the handler.
    pub handlers: BTreeMap<String, HandlerSettings>,
    /// How often the shell looks for commits of other processes, while others have the store open.
    pub wake_poll_ms: u64,
    /// How often while nobody else has it open: so late, at most, is the first commit of a process noticed that has just
    /// opened the store.
    pub wake_poll_idle_ms_max: u64,
    /// Leases of running handlers are renewed at half their length.
    pub lease_renewal: bool,
    /// Finished events wait this long, at most, for a claim to ride with.
    pub ack_linger_ms: u64,
    /// Bytes of events one claim may bring into memory; one event is taken however large.
    pub claim_bytes_max: usize,
    /// How often a slice of retention is done. 0 = never.
    pub retention_interval_ms: u64,
    /// Rows looked at or removed per slice of retention, never more than 10,000.
    pub retention_rows_max: usize,
    /// Most bytes of a handler's error that are kept, never more than [`crate::ERROR_BYTES_LIMIT`]; the rest is cut off.
    pub error_bytes_max: usize,
    /// How long the wall clock must have been steady before anything is removed because of its age.
    pub clock_settle_ms: u64,
    /// A handler that was never seen before and finds at least this many events is warned about.
    pub backlog_warn_events: u64,
    /// How often the rows of schedules and topics are read again, to see what others changed.
    pub refresh_interval_ms: u64,
    /// Nobody else works on the store, and whatever is committed is told as news: nothing is polled, and what happens at
    /// intervals happens when there is something else to do. For virtual time.
    pub alone: bool,
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<crate::Sabotage>,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        WorkerConfig {
            event_poll_interval_ms: 1000,
            event_claim_limit: 100,
            max_events_per_iteration: 1000,
            event_claim_lease_ms: 30_000,
            event_retention_ms: 7 * 24 * 3600 * 1000,
            session_heartbeat_interval_ms: 5000,
            session_ttl_ms: 60_000,
            event_max_attempts: 10,
            event_backoff_base_ms: 250,
            event_backoff_max_ms: 30_000,
            conflict_retries_max: 100,
            conflict_backoff_ms: 5,
            update_retries_max: 100,
            max_event_chain_depth: 20,
            default_namespace: Namespace::default(),
            max_batch_size: 10_000,
            handler_concurrency: 1,
            handler_timeout_ms: None,
            hanging_handlers_max: 8,
            stop_grace_ms: 5000,
            event_max_snoozes: 1000,
            handlers: BTreeMap::new(),
            wake_poll_ms: 10,
            wake_poll_idle_ms_max: 100,
            lease_renewal: false,
            ack_linger_ms: 5,
            claim_bytes_max: 8 << 20,
            retention_interval_ms: 60_000,
            retention_rows_max: 1000,
            error_bytes_max: 4096,
            clock_settle_ms: millrace_model::CLOCK_SETTLE_MS,
            backlog_warn_events: 1000,
            refresh_interval_ms: 5000,
            alone: false,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}
