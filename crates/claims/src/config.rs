//! Every bound and interval of a worker, with its default. The names are those users set.

use millrace_model::Namespace;

/// How a session works. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Events caused by events caused by events: beyond this the handler fails.
    pub max_event_chain_depth: u32,
    /// Where sessions live that name no namespace.
    pub default_namespace: Namespace,
    /// Intents of one commit, and events emitted by one run: more are refused whole.
    pub max_batch_size: usize,
    /// Handlers that run at once in this session.
    pub handler_concurrency: usize,
    /// How often the shell looks for commits of other processes.
    pub wake_poll_ms: u64,
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
            max_event_chain_depth: 20,
            default_namespace: Namespace::default(),
            max_batch_size: 10_000,
            handler_concurrency: 1,
            wake_poll_ms: 10,
            lease_renewal: false,
            ack_linger_ms: 5,
            claim_bytes_max: 8 << 20,
            retention_interval_ms: 60_000,
            retention_rows_max: 1000,
            error_bytes_max: 4096,
            refresh_interval_ms: 5000,
            alone: false,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}
