//! The network edges of the bus: WebSocket and HTTP on one port.
//!
//! Edges parse, check and translate; they decide nothing. A frame becomes a request of the engine (`from_wire`), an
//! answer or delivery becomes a frame (`to_wire`), and everything in between is bounds: how many connections, how
//! large a frame, how much may wait for a slow reader, how long a silent peer is believed to be there.
//!
//! What it does not do: no decisions (the engine makes them), no JSON shapes (the wire crate has them), no threads of
//! the store (the runtime has them), no command line.
//!
//! Start with [`Server::start`].

mod accept;
mod access;
mod app;
mod body;
mod crowd;
mod drain_body;
mod from_wire;
mod host;
mod http;
mod observe;
mod origin;
mod os;
mod params;
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
pub use http::openapi::document as openapi;
pub use millrace_kernel::{
    Capability, Changed, ChildLimits, ChildSettings, FeedLimits, Guard, LoopHandle, LoopSettings,
    MemoryLimits, PlaceError, SocketFile, become_guarded, default_path,
};
pub use millrace_store_sqlite::SqliteOptions;
pub use observe::{AuditKind, AuditKinds};
pub use reload::{Reload, ReloadError, Reloaded, Reloader};
pub use server::{ServeError, Server};
pub use settings::{ClientAuthority, ServerSettings, TlsFiles};
pub use tls::TlsError;
