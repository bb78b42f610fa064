//! The settings of the CQRS loop: its socket, its rules, its bounds.

use crate::settings::bounds::{bound, largest};
use crate::settings::{Scope, SettingDef, SettingKind, SettingValue};

/// The value for a socket at its default path.
pub(crate) const SOCKET_DEFAULT: &str = "default";
/// The value for no socket.
pub(crate) const SOCKET_NONE: &str = "none";

/// Declares an on/off setting of the loop.
macro_rules! switch {
    ($name:literal, $scope:ident, $($field:ident).+, $help:literal) => {
        SettingDef {
            name: $name,
            help: $help,
            kind: SettingKind::Flag,
            scope: Scope::$scope,
            also: &[],
            get: |config| SettingValue::Flag(config.$($field).+),
            set: |config, value| config.$($field).+ = value == SettingValue::Flag(true),
        }
    };
}

pub(super) static SETTINGS: &[SettingDef] = &[
    SettingDef {
        name: "socket",
        help: "Path of the NDJSON socket of the CQRS loop; default = millrace/millrace.sock in $XDG_RUNTIME_DIR or the \
               temp directory, none = no socket",
        kind: SettingKind::Text { what: "a path, default or none", check: |text| !text.is_empty() },
        scope: Scope::Socket,
        also: &[],
        get: |config| SettingValue::Text(config.socket.clone()),
        set: |config, value| config.socket = value.to_string(),
    },
    switch!(
        "lenient-metadata",
        Serve,
        server.kernel.lenient_metadata,
        "Give messages without metadata, id or timestamp what they lack, instead of 422"
    ),
    switch!(
        "require-auth",
        Serve,
        server.kernel.require_auth,
        "The first message of a connection of the socket must be Syscall.Authenticate with a valid token: 401"
    ),
    bound!(
        "request-timeout-ms",
        server.kernel.router.request_timeout_ms,
        u64,
        0,
        "A request of the loop without an outcome after this long is answered with 504; 0 = never"
    ),
    bound!("mailbox-max", server.kernel.router.mailbox_max, usize, 1, "Messages in one mailbox: 503"),
    bound!(
        "os-connection-messages-max",
        server.kernel.router.conn_messages_max,
        usize,
        1,
        "Unanswered messages of one connection of the loop: reading from it pauses"
    ),
    bound!(
        "os-user-lane-max",
        server.kernel.router.user_lane_max,
        usize,
        1,
        "Messages that wait for their turn in the loop: 503"
    ),
    bound!(
        "os-system-lane-max",
        server.kernel.router.system_lane_max,
        usize,
        1,
        "The same of the loop's own messages, and the most of them between two others"
    ),
    bound!(
        "os-pending-max",
        server.kernel.router.pending_max,
        usize,
        1,
        "Requests of the loop that wait for their outcome: 503"
    ),
    bound!(
        "os-lineage-max",
        server.kernel.router.lineage_max,
        usize,
        1,
        "Messages a capability has finished with and may still name as a cause: older ones are a fault"
    ),
    bound!("timers-max", server.kernel.router.timers_max, usize, 1, "Timers set and not yet fired: 503"),
    bound!(
        "timers-per-connection-max",
        server.kernel.router.conn_timers_max,
        usize,
        1,
        "The same of one connection: 503"
    ),
    bound!(
        "timer-retry-ms",
        server.kernel.router.timer_retry_ms,
        u64,
        1,
        "Pause before a timer tries again to send what could not be taken"
    ),
    bound!(
        "os-event-dropped-ms",
        server.kernel.router.event_dropped_ms,
        u64,
        0,
        "Between two Sys.EventDropped about one subscriber: the next one tells how many there were"
    ),
    switch!(
        "timers-durable",
        Bound,
        server.kernel.router.durable_timers,
        "Keep timers in the store, so that they outlive the process"
    ),
    bound!(
        "actor-requests-max",
        server.kernel.router.actor_requests_max,
        usize,
        1,
        "Requests of one capability that wait for their outcome: 503 to the capability"
    ),
    bound!(
        "capabilities-max",
        server.kernel.router.capabilities_max,
        usize,
        1,
        "Capabilities that run: refused"
    ),
    bound!(
        "trace-records-max",
        server.kernel.router.trace_records_max,
        usize,
        0,
        "Records of what the loop saw, kept in memory: the oldest make room"
    ),
    bound!(
        "trace-data-bytes-max",
        server.kernel.router.trace_data_bytes_max,
        usize,
        0,
        4096,
        &[],
        "Bytes of a message's data kept in its record; 0 = none"
    ),
    switch!(
        "os-routing-events",
        Serve,
        server.kernel.router.routing_events,
        "Say the event Sys.Routed for every message that was routed, to capabilities that subscribe to it"
    ),
    switch!(
        "trace-store",
        Serve,
        server.trace_store,
        "Keep what the loop sees in topic system.router.trace, for millrace trace --stored"
    ),
    bound!(
        "trace-records-waiting-max",
        server.trace_records_waiting_max,
        usize,
        1,
        "Records of the kept trace that wait to be written: more are left out and counted"
    ),
    bound!(
        "os-line-bytes-max",
        server.kernel.line_bytes_max,
        usize,
        256,
        1 << 30,
        &[],
        "Bytes of a line of the loop, in both directions: 413"
    ),
    bound!(
        "os-unsent-bytes-max",
        server.kernel.unsent_bytes_max,
        usize,
        1,
        "Bytes waiting for one connection of the loop: reading from it pauses"
    ),
    bound!(
        "os-slow-reader-ms",
        server.kernel.slow_reader_ms,
        u64,
        1,
        "A connection of the socket that takes nothing for this long is closed"
    ),
    bound!(
        "os-connections-max",
        server.kernel.connections_max,
        usize,
        1,
        "Connections of the socket: one more gets 503 and is closed"
    ),
    bound!(
        "os-auth-ms-max",
        server.kernel.auth_ms_max,
        u64,
        1,
        "With require-auth, a connection of the socket that sends nothing for this long is closed"
    ),
    bound!(
        "os-inbox-max",
        server.kernel.inbox_max,
        usize,
        1,
        1 << 20,
        &[],
        "Commands from other threads that the loop has not read yet: for one more, the sender waits"
    ),
    bound!(
        "os-crowded-max",
        server.kernel.backpressure_max,
        usize,
        1,
        "Messages that wait for their turn: above, capabilities wait before they say more"
    ),
    bound!(
        "os-flush-turns-max",
        server.kernel.flush_turns_max,
        u32,
        1,
        "Answers are written after this many turns at the latest"
    ),
    bound!(
        "os-commit-ops-max",
        server.kernel.commit_ops_max,
        usize,
        1,
        1 << 16,
        &[],
        "Timers set or ended in one write to the store: the rest waits for the next"
    ),
    bound!(
        "timer-give-up-ms",
        server.kernel.router.timer_give_up_ms,
        u64,
        0,
        "A durable timer waits this long for a subscriber of its event, and for one that answers 503: then it is lost"
    ),
    bound!(
        "capability-manifest-ms",
        server.child.manifest_ms,
        u64,
        1,
        "Time for a child process to say its manifest: its start fails"
    ),
    bound!(
        "capability-restarts-max",
        server.child.restarts_max,
        usize,
        0,
        "Restarts of a child process within the window: then it is unhealthy, 503"
    ),
    bound!(
        "capability-restart-window-ms",
        server.child.restart_window_ms,
        u64,
        1,
        "The window for capability-restarts-max"
    ),
    bound!(
        "capability-restart-pause-ms",
        server.child.restart_pause_ms,
        u64,
        0,
        "Pause before a child process that ended is started again"
    ),
    bound!(
        "capability-event-ms",
        server.child.event_ms,
        u64,
        0,
        "An event that a child process has read and does not answer counts as finished after this"
    ),
    bound!(
        "capability-ahead-bytes",
        server.child.ahead_bytes,
        usize,
        4096,
        1 << 20,
        &[],
        "Bytes written to a child process and not read by it (the size of its pipe, in whole pages): the rest waits"
    ),
    bound!(
        "capability-handover-ms",
        server.kernel.handover_ms,
        u64,
        0,
        "Time for a capability that a reload replaced to finish; its successor waits, then the rest is 503; 0 = no end"
    ),
    bound!(
        "capability-end-ms",
        server.child.end_ms,
        u64,
        0,
        "From the end of its stdin until a child process is killed"
    ),
    bound!(
        "capability-log-lines-max",
        server.child.log_lines_max,
        usize,
        0,
        "Lines of a child process's stderr that are logged in a second: the rest is left out and counted"
    ),
    bound!(
        "feed-window",
        server.feeds.window,
        u32,
        1,
        4096,
        &[],
        "Events of a topic on their way to a capability or in its mailbox: the rest waits in the log"
    ),
    bound!(
        "feed-retry-ms",
        server.feeds.retry_ms,
        u64,
        1,
        "Before an event that a capability could not process comes again; doubled with each attempt"
    ),
    bound!("feed-retry-ms-max", server.feeds.retry_ms_max, u64, 1, "The most that doubling makes of it"),
    bound!(
        "feed-topics-max",
        server.feeds.topics_max,
        usize,
        0,
        "Topics one capability may be fed from by Bus.Subscribe: 429"
    ),
    bound!("memory-keys-max", server.memory.keys_max, usize, 1, "Paths that hold a value in Memory: 503"),
    bound!("memory-bytes-max", server.memory.bytes_max, usize, 1, "Paths and values of Memory together: 503"),
    bound!("memory-key-bytes-max", server.memory.key_bytes_max, usize, 1, "Bytes of a path of Memory: 422"),
    bound!(
        "memory-value-bytes-max",
        server.memory.value_bytes_max,
        usize,
        1,
        "Bytes of a value of Memory: 413"
    ),
    bound!(
        "memory-page-bytes-max",
        server.memory.page_bytes_max,
        usize,
        1,
        "Bytes of a page of Memory.List: the rest is for the next page"
    ),
];
