//! Every bound of the engine, with its default.

use millrace_model::{AckMode, Durability};

use crate::interface::input::Subscribe;
use crate::topics::schema::WorkMax;

/// Defaults and bounds of the bus. Where a bound is reached the answer is [`crate::BusError::LimitReached`] unless
/// the field says otherwise.
#[derive(Clone, Debug)]
pub struct BusLimits {
    /// Defaults of topics that do not set their own: this and the next three.
    pub ack_timeout_ms: u64,
    pub max_attempts: u32,
    pub dedupe_window_ms: u64,
    pub durability: Durability,
    /// The mode of acks, for clients that choose none on topics that set none.
    pub ack_mode: AckMode,
    /// The longest window of deduplication a topic may ask for.
    pub dedupe_window_ms_max: u64,
    /// Window of a subscription that does not ask for one, and the largest one that a subscription may ask for.
    pub max_inflight: u32,
    pub max_inflight_max: u32,
    /// Topics are created on the first publish or subscribe.
    pub auto_create: bool,
    pub topics_max: usize,
    pub groups_per_topic_max: usize,
    pub members_per_group_max: usize,
    pub subscriptions_per_connection_max: usize,
    pub partitions_max: u32,
    /// Partitions of all topics together, and cursors: partitions times groups, over all topics. See
    /// [`crate::BusError::TotalReached`].
    pub partitions_total_max: u64,
    pub cursors_total_max: u64,
    /// `max_inflight` of all subscriptions together; one agent has at most half of it.
    pub inflight_total_max: u64,
    /// How far ahead a delayed event may lie.
    pub delay_ms_max: u64,
    /// Most delivery credits a connection can hold; more are cut off, not refused.
    pub credits_max: u64,
    /// Most events of one PUBLISH_BATCH.
    pub batch_events_max: usize,
    /// Events read but not yet sent, per group and partition: at this bound reading pauses.
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
    /// Keys of sticky groups whose member is remembered, over all groups: beyond it a group first forgets the keys of
    /// which nothing is in flight, and their next events may go to another member.
    pub sticky_keys_max: usize,
    /// Events of a sticky group that wait for their key or its member, per partition: beyond it the partition waits for
    /// them. More than [`millrace_model::AHEAD_MAX`] has no effect, because nothing is sent so far beyond the commit.
    pub sticky_waiting_max: usize,
    /// Of those, how many keep their bodies in memory: the others are read again when it is their turn.
    pub sticky_waiting_bodies_max: usize,
    /// Waiting events over all groups: beyond it a partition with a waiting event waits for it.
    pub sticky_waiting_total_max: usize,
    /// How long a failed delivery, or offsets that were skipped, may wait to be written, if no ack is written earlier.
    /// A delivery alone writes nothing.
    pub delivered_flush_ms: u64,
    /// Pause before a read that failed is tried again.
    pub read_retry_ms: u64,
    /// How long a step of the wall clock must last until it is believed, and how long the wall clock must have been
    /// steady before anything is removed because of its age.
    pub clock_settle_ms: u64,
    /// How often retention looks at each topic that has some.
    pub retention_interval_ms: u64,
    /// How often compaction looks at each topic that has it.
    pub compact_interval_ms: u64,
    /// How long a tombstone that is the newest of its key stays, for consumers to see.
    pub tombstone_ms: u64,
    /// Delayed events moved to their topic per commit.
    pub due_rows_max: usize,
    /// Most bytes of a NACK's reason that are kept; the rest is cut off. Bytes beyond [`crate::REASON_BYTES_MAX`] are
    /// always cut off.
    pub reason_bytes_max: usize,
    /// Bytes of a topic's schema.
    pub schema_bytes_max: usize,
    /// The same over all topics.
    pub schemas_bytes_total_max: usize,
    /// Versions of a schema that are kept; the oldest are dropped.
    pub schema_versions_max: u32,
    /// Most work of one check: bytes of the payload times values of the schema. A payload above it does not match.
    pub schema_work_max: u64,
    /// The same for all payloads of a batch: a batch above it is refused.
    pub schema_batch_work_max: u64,
    /// Retained events that a new schema is compared with, the newest of each partition first: if there
    /// are more, the change must be forced.
    pub schema_check_events_max: u64,
    /// The same in bytes.
    pub schema_check_bytes_max: usize,
    /// Rows of delayed events, of all topics, that are searched for those of the topic, the earliest first. The delayed
    /// events that are compared are bounded like retained events.
    pub schema_check_delayed_rows_max: u64,
    /// Retention that the server's own topics are created with: age and size, 0 = no bound.
    pub system_retention_ms: u64,
    pub system_retention_bytes: u64,
    /// Emit a note for each ACK and NACK, and for what becomes of failed deliveries: see [`crate::Note`].
    pub note_acks: bool,
    pub note_redeliveries: bool,
    /// Emit a note when a delivery of an event ends that may carry a trace.
    pub note_traced_deliveries: bool,
}

impl Default for BusLimits {
    fn default() -> Self {
        BusLimits {
            ack_timeout_ms: 30_000,
            max_attempts: 5,
            dedupe_window_ms: 24 * 3600 * 1000,
            durability: Durability::Fsync,
            ack_mode: AckMode::Cumulative,
            dedupe_window_ms_max: 30 * 24 * 3600 * 1000,
            max_inflight: 32,
            max_inflight_max: 4096,
            auto_create: true,
            topics_max: 10_000,
            groups_per_topic_max: 1000,
            members_per_group_max: 1000,
            subscriptions_per_connection_max: 256,
            partitions_max: millrace_model::PARTITIONS_MAX,
            partitions_total_max: 262_144,
            cursors_total_max: 262_144,
            inflight_total_max: 262_144,
            delay_ms_max: 365 * 24 * 3600 * 1000,
            credits_max: 1_000_000,
            batch_events_max: 10_000,
            fetched_max: 1024,
            fetched_bytes_max: 1 << 20,
            fetched_bytes_total_max: 128 << 20,
            tail_events_max: 4096,
            tail_bytes_max: 4 << 20,
            tail_bytes_total_max: 64 << 20,
            open_event_bytes_max: 512,
            sticky_keys_max: 1_000_000,
            sticky_waiting_max: millrace_model::AHEAD_MAX as usize,
            sticky_waiting_bodies_max: 256,
            sticky_waiting_total_max: 1_000_000,
            delivered_flush_ms: 200,
            read_retry_ms: 500,
            clock_settle_ms: millrace_model::CLOCK_SETTLE_MS,
            retention_interval_ms: 30_000,
            compact_interval_ms: 30_000,
            tombstone_ms: 24 * 3600 * 1000,
            due_rows_max: 256,
            reason_bytes_max: 1024,
            schema_bytes_max: 64 << 10,
            schemas_bytes_total_max: 16 << 20,
            schema_versions_max: 16,
            schema_work_max: 512 << 20,
            schema_batch_work_max: 2 << 30,
            schema_check_events_max: 1_000_000,
            schema_check_bytes_max: 256 << 20,
            schema_check_delayed_rows_max: 100_000,
            system_retention_ms: 24 * 3600 * 1000,
            system_retention_bytes: 64 << 20,
            note_acks: false,
            note_redeliveries: false,
            note_traced_deliveries: false,
        }
    }
}

impl BusLimits {
    pub(crate) fn schema_work(&self) -> WorkMax {
        WorkMax { event: self.schema_work_max, request: self.schema_batch_work_max }
    }

    /// How many unacknowledged events a subscription may hold.
    pub(crate) fn window_of(&self, subscribe: &Subscribe) -> u32 {
        subscribe.max_inflight.unwrap_or(self.max_inflight).max(1)
    }
}
