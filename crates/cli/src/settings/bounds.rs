//! The bounds of the server: a catalogue of equal entries. Defaults are those of the crates that keep them.

use millrace_bus::REASON_BYTES_MAX;
use millrace_model::PARTITIONS_MAX;

use crate::settings::{Also, Kind, Scope, Setting, Value};

/// A number in the config: its name, place and type, its least and largest value.
macro_rules! bound {
    ($name:literal, $($field:ident).+, $type:ident, $min:literal, $help:literal) => {
        bound!($name, $($field).+, $type, $min, largest!($type), &[], $help)
    };
    ($name:literal, $($field:ident).+, $type:ident, $min:literal, $max:expr, $also:expr, $help:literal) => {
        Setting {
            name: $name,
            help: $help,
            kind: Kind::Number { min: $min, max: $max },
            scope: Scope::Bound,
            also: $also,
            get: |config| Value::Number(config.$($field).+ as u64),
            set: |config, value| {
                if let Value::Number(number) = value {
                    config.$($field).+ = number as $type;
                }
            },
        }
    };
}

/// Whole numbers of a TOML file are signed.
macro_rules! largest {
    (u32) => {
        u32::MAX as u64
    };
    ($type:ident) => {
        i64::MAX as u64
    };
}

pub(super) use {bound, largest};

pub(super) static SETTINGS: &[Setting] = &[
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
    Setting {
        name: "dedupe-window-ms-max",
        help: "Longest dedupe window a topic may ask for: bad_frame",
        kind: Kind::Number { min: 0, max: i64::MAX as u64 },
        scope: Scope::Bound,
        also: &[],
        get: |config| Value::Number(config.limits.dedupe_window_ms_max),
        // Engine and store must agree: what the engine lets in, the store must not cut.
        set: |config, value| {
            if let Value::Number(number) = value {
                config.limits.dedupe_window_ms_max = number;
                config.sqlite.dedupe_window_ms_max = number;
            }
        },
    },
    bound!(
        "dedupe-ids-max",
        sqlite.dedupe_ids_max,
        usize,
        1,
        u32::MAX as u64 - 1,
        &[],
        "Ids remembered for dedupe, about 24 bytes each: the oldest are forgotten"
    ),
    bound!("grace-ms", server.grace_ms, u64, 0, "How long a stop may take to finish what is in hand"),
    bound!(
        "connection-rate",
        server.connection_rate.per_second,
        u64,
        0,
        "Requests per second of a connection, 0 = any: rate_limited"
    ),
    bound!(
        "connection-burst",
        server.connection_rate.burst,
        u64,
        1,
        "Requests of a connection at once, after a pause; the upgrade to a WebSocket is one of them"
    ),
    bound!(
        "token-rate",
        server.token_rate.per_second,
        u64,
        0,
        "Requests per second of all who bring the same token, 0 = any: rate_limited"
    ),
    bound!("token-burst", server.token_rate.burst, u64, 1, "Requests of a token at once, after a pause"),
    bound!(
        "auth-ms-max",
        server.auth_ms_max,
        u64,
        1,
        "A WebSocket without a token must send AUTH within this time"
    ),
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
        "How long a delivery's count may wait to be written"
    ),
    bound!("read-retry-ms", limits.read_retry_ms, u64, 1, "Pause before a failed read is tried again"),
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
    bound!(
        "connections-max",
        server.connections_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "WebSocket connections: more are refused with 503"
    ),
    bound!(
        "http-connections-max",
        server.http_connections_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "HTTP connections at a time: for one more, the one that has waited longest for a request is closed"
    ),
    bound!("frame-bytes-max", server.frame_bytes_max, usize, 1024, "Bytes of a frame or body: too_large"),
    bound!(
        "batch-body-bytes-max",
        server.batch_body_bytes_max,
        usize,
        1024,
        "Bytes of a body with an array of events: too_large"
    ),
    bound!(
        "bodies-bytes-max",
        server.bodies_bytes_max,
        usize,
        1024,
        u32::MAX as u64 >> 3,
        &[],
        "Bytes of bodies being read at a time: more wait"
    ),
    bound!(
        "request-read-ms-max",
        server.request_read_ms_max,
        u64,
        1,
        "How long a request may take to arrive"
    ),
    bound!(
        "response-write-ms-max",
        server.response_write_ms_max,
        u64,
        1,
        "An HTTP answer of which nothing is taken for this long ends its connection"
    ),
    bound!(
        "unanswered-max",
        server.unanswered_max,
        usize,
        1,
        "Unanswered requests of a connection: reading pauses"
    ),
    bound!(
        "slice-frames-max",
        server.slice_frames_max,
        usize,
        1,
        "Frames of a connection handed over together"
    ),
    bound!(
        "slow-reader-ms",
        server.slow_reader_ms,
        u64,
        1,
        "A connection whose reader takes nothing for this long is dropped"
    ),
    bound!("ping-ms", server.ping_ms, u64, 1, "A silent connection is asked for a sign of life this often"),
    bound!("pings-missed-max", server.pings_missed_max, u32, 1, "Signs of life a connection may owe"),
    bound!("list-max", server.list_max, usize, 1, "Topics of one page of GET /topics and GET /dead-letters"),
    bound!("page-events-max", server.page_events_max, usize, 1, "Events of one page of GET /topics/T/events"),
    bound!("page-bytes-max", server.page_bytes_max, usize, 1, "Bytes of one page of GET /topics/T/events"),
    bound!(
        "reads-max",
        server.reads_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "Pages read at a time: more wait"
    ),
    bound!(
        "pages-bytes-max",
        server.pages_bytes_max,
        usize,
        1024,
        u32::MAX as u64 >> 3,
        &[],
        "Bytes of pages being made or waiting for their readers: more wait"
    ),
    bound!(
        "topic-labels-max",
        server.topic_labels_max,
        usize,
        0,
        "Topics with metrics of their own: the rest is summed up"
    ),
    bound!(
        "group-labels-max",
        server.group_labels_max,
        usize,
        0,
        "Groups with metrics of their own: the rest is summed up"
    ),
    bound!(
        "audit-records-max",
        server.audit_records_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "Records of the audit waiting to be published: more are dropped and counted"
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
    bound!(
        "notes-max",
        server.runtime.notes_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "Notes of the engine waiting for the log and the audit: more are dropped and counted"
    ),
    bound!(
        "outbound-bytes-pause",
        server.runtime.outbox_soft_bytes,
        usize,
        1,
        "Bytes waiting for a reader: deliveries pause"
    ),
    bound!(
        "outbound-bytes-max",
        server.runtime.outbox_hard_bytes,
        usize,
        1,
        "Bytes waiting for a reader: it is dropped"
    ),
    bound!(
        "request-units-max",
        server.runtime.request_units_max,
        u32,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "Requests waiting, each one plus one per KiB: askers wait"
    ),
    bound!(
        "turn-requests-max",
        server.runtime.turn_requests_max,
        usize,
        1,
        "Requests decided before effects leave"
    ),
    bound!(
        "backlog-batches-max",
        server.runtime.backlog_batches_max,
        usize,
        1,
        "Batches waiting for the disk: requests wait"
    ),
    bound!(
        "backlog-bytes-max",
        server.runtime.backlog_bytes_max,
        usize,
        1,
        "Bytes waiting for the disk: requests wait"
    ),
    bound!(
        "commit-batches-max",
        server.runtime.commit_batches_max,
        usize,
        1,
        "Batches merged into one commit"
    ),
    bound!("commit-bytes-max", server.runtime.commit_bytes_max, usize, 1, "Bytes merged into one commit"),
    bound!("maintain-rows-max", server.runtime.maintain_rows_max, usize, 1, "Rows of housekeeping at a time"),
    bound!(
        "maintain-interval-ms",
        server.runtime.maintain_interval_ms,
        u64,
        1,
        "Pause between slices of housekeeping"
    ),
    bound!(
        "watch-interval-ms",
        server.runtime.watch_interval_ms,
        u64,
        1,
        "How often the store is asked what other processes have committed"
    ),
    bound!("readers", server.runtime.readers, usize, 1, 1024, &[], "Threads that read"),
    bound!(
        "wait-ms-max",
        server.runtime.wait_ms_max,
        u64,
        1,
        "How often the wall clock is looked at, at least"
    ),
    bound!(
        "store-readers-max",
        sqlite.readers_max,
        usize,
        1,
        1024,
        &[],
        "Read connections to the SQLite file: more wait"
    ),
    bound!(
        "store-wal-bytes",
        sqlite.wal_bytes,
        u64,
        4096,
        "Size of the WAL from which on it is checkpointed; a commit waits for it at four times this"
    ),
    bound!(
        "store-fold-events",
        sqlite.fold_events,
        u64,
        1,
        "Events whose places are kept in memory before they are folded into a table"
    ),
    bound!(
        "store-busy-timeout-ms",
        sqlite.busy_timeout_ms,
        u64,
        0,
        u32::MAX as u64 >> 1,
        &[],
        "How long locks of other programs on the SQLite file are waited for"
    ),
    bound!("store-fold-bytes", sqlite.fold_bytes, u64, 1, "Bytes of events before their places are folded"),
];
