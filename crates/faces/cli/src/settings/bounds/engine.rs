//! Bounds of the bus's engine: topics, groups, windows, delays, schemas, retention.

use millrace_bus::REASON_BYTES_MAX;
use millrace_model::PARTITIONS_MAX;

use crate::settings::bounds::{bound, largest};
use crate::settings::{Also, Scope, SettingDef, SettingKind, SettingValue};

pub(super) static SETTINGS: &[SettingDef] = &[
    bound!(
        "ack-timeout-ms",
        limits.ack_timeout_ms,
        u64,
        1,
        largest!(u64),
        &[("BUS_ACK_TIMEOUT_MS", Also::SameValue)],
        "An event not acknowledged after this long is delivered again"
    ),
    bound!("max-attempts", limits.max_attempts, u32, 1, "Deliveries of an event before it is dead-lettered"),
    bound!(
        "max-inflight",
        limits.max_inflight,
        u32,
        1,
        largest!(u32),
        &[("BUS_MAX_INFLIGHT", Also::SameValue)],
        "Window of a subscription that does not ask for one"
    ),
    bound!(
        "max-inflight-max",
        limits.max_inflight_max,
        u32,
        1,
        "Largest window a subscription may ask for: bad_frame"
    ),
    bound!(
        "dedupe-window-ms",
        limits.dedupe_window_ms,
        u64,
        0,
        "How long an id makes a second event a duplicate"
    ),
    SettingDef {
        name: "dedupe-window-ms-max",
        help: "Longest dedupe window a topic may ask for: bad_frame",
        kind: SettingKind::Number { min: 0, max: i64::MAX as u64 },
        scope: Scope::Bound,
        also: &[],
        get: |config| SettingValue::Number(config.limits.dedupe_window_ms_max),
        // Engine and store must agree: the store must not shorten a window that the engine has accepted.
        set: |config, value| {
            if let SettingValue::Number(number) = value {
                config.limits.dedupe_window_ms_max = number;
                config.store_options.dedupe_window_ms_max = number;
            }
        },
    },
    bound!("topics-max", limits.topics_max, usize, 1, "Topics: limit_reached"),
    bound!("groups-per-topic-max", limits.groups_per_topic_max, usize, 1, "Groups of a topic: limit_reached"),
    bound!(
        "members-per-group-max",
        limits.members_per_group_max,
        usize,
        1,
        "Members of a group: limit_reached"
    ),
    bound!(
        "partitions-total-max",
        limits.partitions_total_max,
        u64,
        1,
        "Partitions of all topics together: limit_reached"
    ),
    bound!(
        "cursors-total-max",
        limits.cursors_total_max,
        u64,
        1,
        "Groups times partitions, over all topics (half a KB of memory each): limit_reached"
    ),
    bound!(
        "inflight-total-max",
        limits.inflight_total_max,
        u64,
        1,
        "max_inflight of all subscriptions together, of one agent at most half: limit_reached"
    ),
    bound!(
        "subscriptions-per-connection-max",
        limits.subscriptions_per_connection_max,
        usize,
        1,
        "Subscriptions of a connection: limit_reached"
    ),
    bound!(
        "partitions-max",
        limits.partitions_max,
        u32,
        1,
        PARTITIONS_MAX as u64,
        &[],
        "Partitions of a topic: bad_frame"
    ),
    bound!("delay-ms-max", limits.delay_ms_max, u64, 0, "How far ahead a delayed event may lie: bad_frame"),
    bound!("credits-max", limits.credits_max, u64, 1, "Delivery credits of a connection: more are cut off"),
    bound!("batch-events-max", limits.batch_events_max, usize, 1, "Events of one batch: limit_reached"),
    bound!(
        "fetched-max",
        limits.fetched_max,
        usize,
        1,
        "Events read ahead per group and partition: reading pauses"
    ),
    bound!(
        "fetched-bytes-max",
        limits.fetched_bytes_max,
        usize,
        1,
        "Bytes read ahead per group and partition"
    ),
    bound!(
        "fetched-bytes-total-max",
        limits.fetched_bytes_total_max,
        usize,
        1,
        "Bytes read ahead for all groups together"
    ),
    bound!(
        "open-event-bytes-max",
        limits.open_event_bytes_max,
        usize,
        0,
        "Events in flight up to this size stay in memory; larger ones are read again to be sent again"
    ),
    bound!("tail-events-max", limits.tail_events_max, usize, 1, "Fresh events kept in memory per partition"),
    bound!(
        "tail-bytes-max",
        limits.tail_bytes_max,
        usize,
        1,
        "Bytes of fresh events kept in memory per partition"
    ),
    bound!(
        "tail-bytes-total-max",
        limits.tail_bytes_total_max,
        usize,
        1,
        "Bytes of fresh events kept in memory for all partitions together"
    ),
    bound!(
        "delivered-flush-ms",
        limits.delivered_flush_ms,
        u64,
        1,
        "How long a failed delivery's count may wait to be written"
    ),
    bound!(
        "sticky-keys-max",
        limits.sticky_keys_max,
        usize,
        1,
        "Keys of sticky groups whose member is remembered; beyond it idle keys may change their member"
    ),
    bound!(
        "sticky-waiting-max",
        limits.sticky_waiting_max,
        usize,
        1,
        "Events of a sticky group that wait for their key, per partition; beyond it the partition waits"
    ),
    bound!(
        "sticky-waiting-bodies-max",
        limits.sticky_waiting_bodies_max,
        usize,
        0,
        "Of those, events whose bodies stay in memory; the others are read again"
    ),
    bound!(
        "sticky-waiting-total-max",
        limits.sticky_waiting_total_max,
        usize,
        0,
        "Events that wait for their key, over all sticky groups; beyond it a partition waits for each of them"
    ),
    bound!("read-retry-ms", limits.read_retry_ms, u64, 1, "Pause before a failed read is tried again"),
    bound!(
        "clock-settle-ms",
        limits.clock_settle_ms,
        u64,
        0,
        "How long a step of the wall clock must last to be believed, and how long it must have been steady before anything is removed by age"
    ),
    bound!(
        "retention-interval-ms",
        limits.retention_interval_ms,
        u64,
        1,
        "How often retention looks at each topic"
    ),
    bound!(
        "compact-interval-ms",
        limits.compact_interval_ms,
        u64,
        1,
        "How often compaction looks at each topic that has it"
    ),
    bound!(
        "tombstone-ms",
        limits.tombstone_ms,
        u64,
        0,
        "How long the tombstone of a compacted topic's key stays"
    ),
    bound!("due-rows-max", limits.due_rows_max, usize, 1, "Delayed events moved to their topics per commit"),
    bound!(
        "reason-bytes-max",
        limits.reason_bytes_max,
        usize,
        0,
        REASON_BYTES_MAX as u64,
        &[],
        "Bytes of a NACK's reason that are kept"
    ),
    bound!("schema-bytes-max", limits.schema_bytes_max, usize, 1, 1 << 20, &[], "Bytes of a topic's schema"),
    bound!(
        "schemas-bytes-total-max",
        limits.schemas_bytes_total_max,
        usize,
        1,
        "Bytes of the schemas of all topics: limit_reached"
    ),
    bound!(
        "schema-versions-max",
        limits.schema_versions_max,
        u32,
        1,
        1000,
        &[],
        "Versions of a topic's schema that are kept; the oldest are dropped"
    ),
    bound!(
        "schema-work-max",
        limits.schema_work_max,
        u64,
        1,
        "Bytes of a payload times values of its topic's schema, above which it does not match"
    ),
    bound!(
        "schema-batch-work-max",
        limits.schema_batch_work_max,
        u64,
        1,
        "The same for all payloads of a batch; above it the batch is refused"
    ),
    bound!(
        "schema-check-events-max",
        limits.schema_check_events_max,
        u64,
        1,
        "Retained events of a topic that a new schema is compared with; if there are more, it must be forced"
    ),
    bound!(
        "schema-check-bytes-max",
        limits.schema_check_bytes_max,
        usize,
        1,
        "Bytes of retained events that a new schema is compared with; if there are more, it must be forced"
    ),
    bound!(
        "schema-check-delayed-rows-max",
        limits.schema_check_delayed_rows_max,
        u64,
        0,
        "Delayed events, of all topics, among which those of the topic are looked for to compare them with a new schema"
    ),
    bound!(
        "system-retention-ms",
        limits.system_retention_ms,
        u64,
        0,
        "Age of events in topics system.* from when they are made on; 0 = any"
    ),
    bound!(
        "system-retention-bytes",
        limits.system_retention_bytes,
        u64,
        0,
        "Size of topics system.* from when they are made on; 0 = any"
    ),
];
