//! Bounds of the server's edges: connections, frames, bodies, pages, rates, labels of metrics, audit records.

use crate::settings::bounds::{bound, largest};
use crate::settings::{Scope, SettingDef, SettingKind, SettingValue};

pub(super) static SETTINGS: &[SettingDef] = &[
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
        "A WebSocket without a token must send AUTH within this time: closed with 1008"
    ),
    bound!(
        "unauthenticated-connections-max",
        server.unauthenticated_connections_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "WebSockets that have sent no token yet: for one more, the oldest is closed with 1013"
    ),
    bound!(
        "unauthenticated-frame-bytes-max",
        server.unauthenticated_frame_bytes_max,
        usize,
        512,
        u32::MAX as u64 >> 3,
        &[],
        "Bytes of a frame before AUTH: too_large"
    ),
    bound!(
        "connections-max",
        server.connections_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "WebSocket connections: one more gets a place of the caller that has most, or 503"
    ),
    bound!(
        "http-connections-max",
        server.http_connections_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "HTTP connections at a time: for one more, one that waits for its peer is closed"
    ),
    bound!(
        "http-connections-waiting-max",
        server.http_connections_waiting_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "HTTP connections beyond, whose requests wait for a place (probes do not): 503"
    ),
    bound!(
        "probe-connections-max",
        server.probe_connections_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "HTTP connections of probe-listen at a time"
    ),
    bound!(
        "caller-share-percent",
        server.caller_share_percent,
        usize,
        1,
        100,
        &[],
        "Share of bodies-bytes-max and pages-bytes-max that one token or address may hold: its further requests wait"
    ),
    bound!(
        "crowd-patience-ms",
        server.crowd_patience_ms,
        u64,
        0,
        "While others wait, a body or answer may take this long, and the time its bytes take: 503"
    ),
    bound!(
        "crowd-bytes-per-second",
        server.crowd_bytes_per_second,
        u64,
        1,
        "While others wait, the least a peer must send of a body or take of an answer"
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
        "frames-bytes-max",
        server.frames_bytes_max,
        usize,
        1024,
        "Bytes of WebSocket frames that are not complete: above, a connection of the caller with most is closed"
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
    bound!(
        "scan-events-max",
        server.scan_events_max,
        usize,
        1,
        "Events that one search looks at: it answers with what it found and where to go on"
    ),
    bound!(
        "tails-max",
        server.tails_max,
        usize,
        0,
        u32::MAX as u64 >> 3,
        &[],
        "Tails and waiting searches at a time: 503"
    ),
    bound!("page-bytes-max", server.page_bytes_max, usize, 1, "Bytes of one page of GET /topics/T/events"),
    bound!(
        "position-wait-ms-max",
        server.position_wait_ms_max,
        u64,
        0,
        "How long a read waits for the position of a shared store that it asks for: limit_reached"
    ),
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
];
