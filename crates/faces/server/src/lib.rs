//! The network edges of the bus: WebSocket and HTTP on one port.
//!
//! Edges parse, check and translate; they decide nothing. `from_wire` turns a frame into a request of the engine,
//! `to_wire` turns an answer or delivery into a frame. The rest of the crate enforces bounds: how many connections, how
//! large a frame, how much may wait for a slow reader, after how much silence a peer counts as gone.
//!
//! Not here: decisions (the engine makes them), JSON shapes (the wire crate has them), threads of the store (the
//! broker has them), the command line.
//!
//! A server of a store that several servers share either leads ([`Server`]) or follows ([`Follower`]).
//!
//! Start with [`Server::start`].

mod accept;
mod access;
mod advertise;
mod app;
mod body;
mod connections;
mod drain_body;
mod edge;
mod fairness;
mod follower;
mod from_wire;
mod host;
mod http;
mod jobs;
mod kernel;
mod latencies;
mod lead_doubt;
mod moved;
mod observe;
mod origin;
mod params;
mod position;
mod refusal;
mod reload;
mod routes;
mod server;
mod settings;
mod socket;
mod tls;
mod to_wire;
mod ws;

pub use access::{
    CertificateName, NamespaceRule, Proof, Rate, Scope, TOKENS_MAX, TokenDigest, TokenSettings,
};
pub use advertise::{AdvertiseError, AdvertisedUrl};
pub use follower::{FollowPhase, FollowStatus, FollowedStore, Follower, Unreachable};
pub use http::console::ConsoleFiles;
pub use http::openapi::document as openapi;
pub use lead_doubt::LeadDoubter;
pub use millrace_child::{Changed, ChildLimits, ChildSettings};
pub use millrace_kernel::{
    Capability, FeedLimits, KernelHandle, KernelSettings, MemoryLimits, NotReloaded, SocketFile,
    SocketPathError, default_path,
};
pub use millrace_wire::http::SettingDoc;
pub use observe::{AuditKind, AuditKinds, LogLevel, LogLine, LogRing};
pub use reload::{Reload, ReloadError, Reloaded, Reloader};
pub use server::{Deposer, ServeError, Server};
pub use settings::{ClientAuthority, ServerSettings, TlsFiles};
pub use tls::TlsError;
