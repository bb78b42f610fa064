//! The messages of a server that accepts: one line for programs on stdout, the console's address for people on
//! stderr, and the supervisor if there is one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use millrace_server::ConsoleFiles;
use serde::Serialize;

use crate::commands::serve::ServePlan;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Serialize)]
struct ReadyLine {
    ready: bool,
    http: String,
    ws: String,
    socket: Option<String>,
    store: String,
    /// Only present if `--probe-listen` was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<String>,
}

/// The addresses of a server that accepts.
pub(super) struct Accepting {
    pub(super) addr: SocketAddr,
    pub(super) probe: Option<SocketAddr>,
    pub(super) socket: Option<String>,
    pub(super) tls: bool,
    pub(super) console: ConsoleFiles,
}

impl Accepting {
    /// Taken before the settings move into the server.
    pub(super) fn of(plan: &ServePlan) -> Accepting {
        let server = &plan.config.server;
        let (tls, console) = (server.tls.is_some(), server.console.clone());
        Accepting { addr: plan.listen, probe: None, socket: None, tls, console }
    }

    pub(super) fn tell(&self, store: String) -> Result<(), Failure> {
        let (s, addr) = (if self.tls { "s" } else { "" }, self.addr);
        if self.console != ConsoleFiles::Off {
            let addr = reachable_from_here(addr);
            tracing::info!("the console is at http{s}://{addr}/console/");
        }
        let mut out = Output::new();
        out.json(&ReadyLine {
            ready: true,
            http: format!("http{s}://{addr}"),
            ws: format!("ws{s}://{addr}/"),
            socket: self.socket.clone(),
            store,
            probe: self.probe.map(|addr| format!("http{s}://{addr}")),
        })?;
        out.flush()
    }
}

/// Returns the address at which a client on this machine reaches a server that listens on `addr`: a server on every
/// address of the machine (0.0.0.0) listens on the loopback address, too.
pub(in crate::commands) fn reachable_from_here(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}
