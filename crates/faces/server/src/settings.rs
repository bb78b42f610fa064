//! Every bound of the edges, with its default and what happens when it is reached.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_broker::BrokerSettings;
use millrace_child::{ChildLimits, ChildSettings};
use millrace_kernel::{FeedLimits, KernelSettings, MemoryLimits};
use millrace_telemetry::Tracer;
use millrace_wire::http::SettingDoc;

use crate::accept::http_sockets_max;
use crate::access::{Rate, TokenSettings};
use crate::http::console::ConsoleFiles;
use crate::observe::{AuditKinds, LogRing};

/// PEM files: the certificate with its chain, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The authorities of client certificates; without them the server asks for no client certificate.
    pub client_ca: Option<ClientAuthority>,
}

/// The authorities that sign client certificates, and whether a client needs one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthority {
    pub file: PathBuf,
    /// A connection without a certificate is accepted, because its requests may bring a token instead.
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Origins besides the server's own host that browsers may send, as they write them (`https://example.org`); `*`
    /// allows all. Requests from other origins get 403.
    pub allow_origins: Vec<String>,
    /// Access without tokens is open on purpose: requests with any `Host` are served. Otherwise, and as long as there
    /// are no tokens, a request must name a loopback address, `localhost`, the address listened on or the host of an
    /// allowed origin, or gets 403.
    pub insecure: bool,
    /// The accepted tokens and certificates; with none, everybody may do everything. At most [`crate::TOKENS_MAX`].
    pub tokens: Vec<TokenSettings>,
    /// Rates of requests, for one connection and for all connections with the same token: above them, `rate_limited`.
    /// Acknowledgements, FLOW and PING are free, because refusing them would only make more work.
    pub connection_rate: Rate,
    pub token_rate: Rate,
    /// A WebSocket without a token must authenticate within this time, or it is closed with 1008.
    pub auth_ms_max: u64,
    /// With tokens configured: WebSockets that have not authenticated yet. To admit one more, the oldest one of the
    /// address that has most of them is closed with 1013.
    pub unauthenticated_connections_max: usize,
    /// The largest frame of such a WebSocket: above it, `too_large`.
    pub unauthenticated_frame_bytes_max: usize,
    /// TLS instead of plain text.
    pub tls: Option<TlsFiles>,
    /// WebSocket connections. To admit one more, the newest of the caller that has most is closed with 1013, if the
    /// newcomer's caller has fewer; else the newcomer is refused with 503. With tokens a caller is the token's agent,
    /// without tokens an address.
    pub connections_max: usize,
    /// HTTP connections with a place. To admit one more, a connection that waits for its peer is closed: see
    /// `fairness/places.rs`. If all are being served, the newcomer's request waits. A connection that becomes a
    /// WebSocket no longer counts here.
    pub http_connections_max: usize,
    /// HTTP connections beyond those, whose requests wait for a place; probes are answered here. To admit one more, the
    /// caller that has most of them loses the one that has waited longest, which gets 503.
    pub http_connections_waiting_max: usize,
    /// HTTP connections of the listener for probes, by the same rules.
    pub probe_connections_max: usize,
    /// The share that one caller may have of `bodies_bytes_max` and of `pages_bytes_max`: its further bodies and pages
    /// wait. A caller with more than this share of `http_connections_max` is the first to lose connections.
    pub caller_share_percent: usize,
    /// While others wait, a peer may take this long to send a body or to read a response, and beyond it as long as its
    /// bytes take at `crowd_bytes_per_second`. Then it is closed, with 503 where it can be told.
    pub crowd_patience_ms: u64,
    pub crowd_bytes_per_second: u64,
    /// The largest frame, or body of a request that is not an array of events: above it, `too_large`.
    pub frame_bytes_max: usize,
    /// The largest body of a request with an array of events: above it, `too_large`.
    pub batch_body_bytes_max: usize,
    /// Bytes of all bodies being read at a time: more wait, at most `request_read_ms_max` (then 503 `limit_reached`). A
    /// body that may become larger than its caller's share of this is read alone.
    pub bodies_bytes_max: usize,
    /// Bytes of WebSocket frames that have begun and are not complete, together; above it, the caller with most of them
    /// loses a connection.
    pub frames_bytes_max: usize,
    /// The head or the body of a request must have arrived after this long, or the connection is closed.
    pub request_read_ms_max: u64,
    /// If the peer reads nothing of an HTTP response for this long, the connection is closed.
    pub response_write_ms_max: u64,
    /// Requests of one connection that wait for an answer: at this many, reading from the connection pauses.
    pub unanswered_max: usize,
    /// Frames read from one socket before they are handed to the engine together.
    pub slice_frames_max: usize,
    /// A write that makes no progress for this long ends the connection: its leases go to others.
    pub slow_reader_ms: u64,
    /// A silent connection is pinged this often.
    pub ping_ms: u64,
    /// Pings without an answer after which a connection counts as gone.
    pub pings_missed_max: u32,
    /// Topics in one page of `GET /topics` and `GET /dead-letters`. A full page says where to go on.
    pub list_max: usize,
    /// Events and bytes in one page of `GET /topics/{topic}/events`. A page that is cut says where to go on.
    pub page_events_max: usize,
    pub page_bytes_max: usize,
    /// How long a request that asks for a position of a shared store waits until this server's copy has it; then 503
    /// `limit_reached`.
    pub position_wait_ms_max: u64,
    /// Pages read from the store at a time: more wait.
    pub reads_max: usize,
    /// Events that one search looks at, at most: it then answers with what it found and where to go on.
    pub scan_events_max: usize,
    /// Tails (`GET /topics/{topic}/tail`) and searches that wait for events, at a time: one more is refused with 503.
    pub tails_max: usize,
    /// The web console, from the binary or from a folder.
    pub console: ConsoleFiles,
    /// Bytes of pages being read and of pages that their client has not read yet, all together: more wait. A page
    /// counts twice its bound (events and response) while it is made, then with its own size until it is written or
    /// `response_write_ms_max` ends it. Other responses are small; `http_connections_max` bounds them.
    pub pages_bytes_max: usize,
    /// Topics with lines of their own in `/metrics`: the rest is summed up under `topic="(other)"`.
    pub topic_labels_max: usize,
    /// Groups with lines of their own in `/metrics`: the rest is summed up in the same way.
    pub group_labels_max: usize,
    /// How often an event is published to `system.metrics`; 0 = never.
    pub metrics_interval_ms: u64,
    /// Where spans of traces go. Without it nothing is traced.
    pub tracer: Option<Tracer>,
    /// The kinds of records published to `system.bus.audit`; none by default.
    pub audit: AuditKinds,
    /// Audit records that wait to be published: more are dropped and counted.
    pub audit_records_max: usize,
    /// Whether to record the messages of the CQRS loop in topic `system.router.trace`.
    pub trace_store: bool,
    /// Records of that trace that wait to be written: more are dropped and counted.
    pub trace_records_waiting_max: usize,
    /// How long a stop may take.
    pub grace_ms: u64,
    pub broker: BrokerSettings,
    /// The CQRS loop.
    pub kernel: KernelSettings,
    pub memory: MemoryLimits,
    /// Child processes of the loop.
    pub capabilities: Vec<ChildSettings>,
    pub child: ChildLimits,
    /// Topics of the bus that are fed to capabilities.
    pub feeds: FeedLimits,
    /// Every setting of the program as `GET /settings` shows it, without secrets.
    pub described: Arc<[SettingDoc]>,
    /// The last lines of the log, for `GET /log`; the program writes them.
    pub log: Arc<LogRing>,
}

impl ServerSettings {
    /// Connections that all bounds together allow at a time: the process needs as many file descriptors.
    pub fn sockets_max(&self) -> usize {
        let strangers = if self.tokens.is_empty() { 0 } else { self.unauthenticated_connections_max };
        let http = http_sockets_max(self.http_connections_max, self.http_connections_waiting_max);
        let probes = http_sockets_max(self.probe_connections_max, self.http_connections_waiting_max);
        [self.connections_max, strangers, http, probes, self.kernel.connections_max]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        ServerSettings {
            allow_origins: Vec::new(),
            insecure: false,
            tokens: Vec::new(),
            connection_rate: Rate { per_second: 0, burst: 200 },
            token_rate: Rate { per_second: 0, burst: 1000 },
            auth_ms_max: 5_000,
            unauthenticated_connections_max: 64,
            unauthenticated_frame_bytes_max: 4096,
            tls: None,
            connections_max: 1024,
            http_connections_max: 256,
            http_connections_waiting_max: 64,
            probe_connections_max: 16,
            caller_share_percent: 50,
            crowd_patience_ms: 1000,
            crowd_bytes_per_second: 8192,
            frame_bytes_max: 1 << 20,
            batch_body_bytes_max: 12 << 20,
            bodies_bytes_max: 64 << 20,
            frames_bytes_max: 64 << 20,
            request_read_ms_max: 30_000,
            response_write_ms_max: 30_000,
            unanswered_max: 4096,
            slice_frames_max: 256,
            slow_reader_ms: 30_000,
            ping_ms: 60_000,
            pings_missed_max: 2,
            list_max: 1000,
            page_events_max: 10_000,
            page_bytes_max: 4 << 20,
            position_wait_ms_max: 3000,
            reads_max: 8,
            scan_events_max: 100_000,
            tails_max: 32,
            console: ConsoleFiles::BuiltIn,
            pages_bytes_max: 128 << 20,
            topic_labels_max: 100,
            group_labels_max: 100,
            metrics_interval_ms: 10_000,
            tracer: None,
            audit: AuditKinds::default(),
            audit_records_max: 1024,
            trace_store: false,
            trace_records_waiting_max: 65_536,
            grace_ms: 5000,
            broker: BrokerSettings::default(),
            kernel: KernelSettings::default(),
            memory: MemoryLimits::default(),
            capabilities: Vec::new(),
            child: ChildLimits::default(),
            feeds: FeedLimits::default(),
            described: Arc::default(),
            log: Arc::default(),
        }
    }
}
