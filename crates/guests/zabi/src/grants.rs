//! The capabilities that a process may use. Nothing is granted unless it is named.

use std::sync::Arc;

use crate::aio::FileRoot;
use crate::bus::BusPort;
use crate::catalog::Capability;
use crate::tcp::{NetAllowList, TcpPolicy};

/// The capabilities of one process:
///
/// ```
/// use millrace_zabi::{Grants, TcpPolicy};
///
/// let grants = Grants::none().sys_loop().net_tcp(TcpPolicy::loopback());
/// ```
///
/// A capability that is not granted is not listed, and opening it returns -4.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    pub(crate) sys_loop: bool,
    pub(crate) sys_info: bool,
    pub(crate) net_tcp: Option<TcpPolicy>,
    pub(crate) net_http: Option<NetAllowList>,
    pub(crate) file_aio: Option<FileRoot>,
    pub(crate) event_bus: Option<Arc<dyn BusPort>>,
    pub(crate) async_default: bool,
    pub(crate) argv: Option<Vec<Vec<u8>>>,
    pub(crate) env: Option<Vec<Vec<u8>>>,
}

impl Grants {
    pub fn none() -> Grants {
        Grants::default()
    }

    /// Grants waiting for handles and timers.
    #[must_use]
    pub fn sys_loop(mut self) -> Grants {
        self.sys_loop = true;
        self
    }

    /// Grants facts about the machine, its clocks, and random bytes.
    #[must_use]
    pub fn sys_info(mut self) -> Grants {
        self.sys_info = true;
        self
    }

    /// Grants the arguments that the guest is to see; by convention the first is its name.
    #[must_use]
    pub fn proc_argv<T: Into<Vec<u8>>>(mut self, arguments: impl IntoIterator<Item = T>) -> Grants {
        self.argv = Some(arguments.into_iter().map(Into::into).collect());
        self
    }

    /// Grants the environment variables that the guest is to see, each `NAME=VALUE`. Those of the host are not passed
    /// on.
    #[must_use]
    pub fn proc_env<T: Into<Vec<u8>>>(mut self, variables: impl IntoIterator<Item = T>) -> Grants {
        self.env = Some(variables.into_iter().map(Into::into).collect());
        self
    }

    /// Grants the connections and listeners that the policy allows.
    #[must_use]
    pub fn net_tcp(mut self, policy: TcpPolicy) -> Grants {
        self.net_tcp = Some(policy);
        self
    }

    /// Grants serving HTTP on the addresses that the list allows.
    #[must_use]
    pub fn net_http(mut self, listen: NetAllowList) -> Grants {
        self.net_http = Some(listen);
        self
    }

    /// Grants the files beneath a folder, which the guest sees as `/`.
    #[must_use]
    pub fn file_aio(mut self, root: FileRoot) -> Grants {
        self.file_aio = Some(root);
        self
    }

    /// Grants publishing to and subscribing on this bus.
    #[must_use]
    pub fn event_bus(mut self, bus: Arc<dyn BusPort>) -> Grants {
        self.event_bus = Some(bus);
        self
    }

    /// Grants futures of the host's demonstration selectors.
    #[must_use]
    pub fn async_default(mut self) -> Grants {
        self.async_default = true;
        self
    }

    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::SysLoop => self.sys_loop,
            Capability::SysInfo => self.sys_info,
            Capability::NetHttp => self.net_http.is_some(),
            Capability::NetTcp => self.net_tcp.is_some(),
            Capability::AsyncDefault => self.async_default,
            Capability::EventBus => self.event_bus.is_some(),
            Capability::FileAio => self.file_aio.is_some(),
            Capability::ProcArgv => self.argv.is_some(),
            Capability::ProcEnv => self.env.is_some(),
        }
    }

    /// Returns what is granted, in the order of the list that the guest sees.
    pub fn list(&self) -> Vec<Capability> {
        Capability::ALL.into_iter().filter(|capability| self.has(*capability)).collect()
    }
}
