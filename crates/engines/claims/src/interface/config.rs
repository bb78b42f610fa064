//! Every limit and interval of a worker, with its default. Users set them by these names.

use std::collections::BTreeMap;

use millrace_model::Namespace;

use crate::interface::settings::HandlerSettings;

/// The configuration of a session's worker. Times are milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerConfig {
    /// Pause between two looks at the store when there was nothing to do, or when an iteration's budget is used up.
    pub event_poll_interval_ms: u64,
    /// Events that one handler may hold, queued and running.
    pub event_claim_limit: usize,
    /// Events started per iteration, over all handlers: then the worker pauses for the poll interval.
    pub max_events_per_iteration: usize,
    /// How long a claimed event belongs to the session that claimed it.
    pub event_claim_lease_ms: u64,
    /// Finished events older than this are removed; a topic's own retention wins.
    pub event_retention_ms: u64,
    pub session_heartbeat_interval_ms: u64,
    /// A session whose heartbeat is older than this counts as dead.
    pub session_ttl_ms: u64,
    /// Failed or expired attempts after which an event is given up.
    pub event_max_attempts: u32,
    pub event_backoff_base_ms: u64,
    pub event_backoff_max_ms: u64,
    /// How often an event is run again because of a conflict without that counting as a failed attempt. The next
    /// conflict counts as an attempt, and counting starts anew.
    pub conflict_retries_max: u32,
    /// The pause before a run is repeated because of a conflict is drawn between 0 and this value, which doubles with
    /// each conflict of the event up to 64 times itself.
    pub conflict_backoff_ms: u64,
    /// How often a commit applies its updates again because another commit was faster, before the commit counts as a
    /// conflict.
    pub update_retries_max: u32,
    /// Longest chain of events that were caused by one another: beyond this the handler fails.
    pub max_event_chain_depth: u32,
    /// The namespace of sessions that name none.
    pub default_namespace: Namespace,
    /// Intents of one commit, and events emitted by one run: a commit with more is refused as a whole.
    pub max_batch_size: usize,
    /// Handler runs at the same time in this session.
    pub handler_concurrency: usize,
    /// A run that has not ended after this time has failed, unless its handler has a timeout of its own. `None`: runs
    /// without a timeout may take any time, and keep their slot (one of `handler_concurrency`) until they return.
    pub handler_timeout_ms: Option<u64>,
    /// How many runs that were cut off and whose function has not returned get their slot replaced by another run.
    /// Further ones keep their slot, so that at most this many and `handler_concurrency` threads call handlers.
    pub hanging_handlers_max: usize,
    /// How long a stop waits for runs. Runs that still go on then are cut off, and their events given back without an
    /// attempt.
    pub stop_grace_ms: u64,
    /// How often an event may be snoozed; from then on a snooze counts as an attempt.
    pub event_max_snoozes: u32,
    /// Settings of single handlers, by their id. They win over the settings that the program gives with the handler.
    pub handlers: BTreeMap<String, HandlerSettings>,
    /// How often the shell looks for commits of other processes, while others have the store open.
    pub wake_poll_ms: u64,
    /// The same while no other process has the store open: the longest delay until the first commit of a process that
    /// has just opened the store is noticed.
    pub wake_poll_idle_ms_max: u64,
    /// Whether leases of running handlers are renewed at half their length.
    pub lease_renewal: bool,
    /// How long the acknowledgement of a finished event waits, at most, to share the commit of a claim.
    pub ack_linger_ms: u64,
    /// Bytes of events that one claim may load into memory; the first event is loaded however large it is.
    pub claim_bytes_max: usize,
    /// How often a sweep of retention begins. 0 = never.
    pub retention_interval_ms: u64,
    /// Rows read or removed per step of retention, never more than 10,000.
    pub retention_rows_max: usize,
    /// Most bytes of a handler's error that are kept, never more than [`crate::ERROR_BYTES_LIMIT`]; the rest is cut
    /// off.
    pub error_bytes_max: usize,
    /// How long the wall clock must have been steady before anything is removed because of its age.
    pub clock_settle_ms: u64,
    /// A new handler that finds at least this many events is reported as [`crate::Note::Backlog`].
    pub backlog_warn_events: u64,
    /// How often the rows of topics, handlers and schedules are read again, to see changes by others.
    pub refresh_interval_ms: u64,
    /// For virtual time: this worker is alone on the store, and is told of every commit by [`crate::Input::News`].
    /// Nothing is polled, and periodic work is done when there is something else to do.
    pub alone: bool,
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
        }
    }
}
