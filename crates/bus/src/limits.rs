//! Every bound of the engine, with its default.

use millrace_model::Durability;

/// Defaults and bounds of the bus. Where a bound is reached the answer is [`crate::BusError::LimitReached`] unless
/// the field says otherwise.
#[derive(Clone, Debug)]
pub struct BusLimits {
    /// For topics that do not set their own.
    pub ack_timeout_ms: u64,
    pub max_attempts: u32,
    pub dedupe_window_ms: u64,
    pub durability: Durability,
    /// The longest window of deduplication a topic may ask for.
    pub dedupe_window_ms_max: u64,
    /// Window of a subscription that does not ask for one, and the most it may ask for.
    pub max_inflight: u32,
    pub max_inflight_max: u32,
    /// Topics are made on first publish or subscribe.
    pub auto_create: bool,
    pub topics_max: usize,
    pub groups_per_topic_max: usize,
    pub members_per_group_max: usize,
    pub subscriptions_per_connection_max: usize,
    pub partitions_max: u32,
    /// How far ahead a delayed event may lie.
    pub delay_ms_max: u64,
    /// Most delivery credits a connection can hold; more are cut off, not refused.
    pub credits_max: u64,
    /// Events of one PUBLISH_BATCH.
    pub batch_events_max: usize,
    /// Events read but not yet sent, per group and partition: reading pauses.
    pub fetched_max: usize,
    pub fetched_bytes_max: usize,
    /// The same over all groups: beyond it each cursor reads one event at a time.
    pub fetched_bytes_total_max: usize,
    /// Fresh events kept in memory per stream for groups at the tail: the oldest are dropped and read back later.
    pub tail_events_max: usize,
    pub tail_bytes_max: usize,
    /// The same, over all streams.
    pub tail_bytes_total_max: usize,
    /// An event up to this size stays in memory while it is in flight; a larger one is read again if it must be sent
    /// again.
    pub open_event_bytes_max: usize,
    /// How long a delivery may wait before its count is written down, if no ack takes it along earlier.
    pub delivered_flush_ms: u64,
    /// Pause before a read that failed is tried again.
    pub read_retry_ms: u64,
    /// How often retention looks at each topic that has some.
    pub retention_interval_ms: u64,
    /// How often compaction looks at each topic that has it.
    pub compact_interval_ms: u64,
    /// How long a tombstone that is the newest of its key stays, for consumers to see.
    pub tombstone_ms: u64,
    /// Delayed events moved to their topic per commit.
    pub due_rows_max: usize,
    /// Most bytes of a NACK's reason that are kept; the rest is cut off. Beyond [`crate::REASON_BYTES_MAX`] it always is.
    pub reason_bytes_max: usize,
    /// What topics of the server keep, from when they are made on: age and size, 0 = no bound.
    pub system_retention_ms: u64,
    pub system_retention_bytes: u64,
    /// Tell of each ACK and NACK, and of what becomes of failed deliveries: see [`crate::Note`].
    pub note_acks: bool,
    pub note_redeliveries: bool,
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<crate::Sabotage>,
}

impl Default for BusLimits {
    fn default() -> Self {
        BusLimits {
            ack_timeout_ms: 30_000,
            max_attempts: 5,
            dedupe_window_ms: 24 * 3600 * 1000,
            durability: Durability::Fsync,
            dedupe_window_ms_max: 30 * 24 * 3600 * 1000,
            max_inflight: 32,
            max_inflight_max: 4096,
            auto_create: true,
            topics_max: 10_000,
            groups_per_topic_max: 1000,
            members_per_group_max: 1000,
            subscriptions_per_connection_max: 256,
            partitions_max: millrace_model::PARTITIONS_MAX,
            delay_ms_max: 365 * 24 * 3600 * 1000,
            credits_max: 1_000_000,
            batch_events_max: 10_000,
            fetched_max: 1024,
            fetched_bytes_max: 1 << 20,
            fetched_bytes_total_max: 128 << 20,
            tail_events_max: 4096,
            tail_bytes_max: 4 << 20,
            tail_bytes_total_max: 64 << 20,
            open_event_bytes_max: 4096,
            delivered_flush_ms: 200,
            read_retry_ms: 500,
            retention_interval_ms: 30_000,
            compact_interval_ms: 30_000,
            tombstone_ms: 24 * 3600 * 1000,
            due_rows_max: 256,
            reason_bytes_max: 1024,
            system_retention_ms: 24 * 3600 * 1000,
            system_retention_bytes: 64 << 20,
            note_acks: false,
            note_redeliveries: false,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}
