//! The settings as resolved: what the rest of the program reads.

use crate::settings::SOCKET_DEFAULT;
use millrace_bus::BusLimits;
use millrace_server::{ServerSettings, SqliteOptions};

/// Its default is the default of every setting.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) listen: String,
    pub(crate) store: String,
    pub(crate) socket: String,
    pub(crate) tls_cert: String,
    pub(crate) tls_key: String,
    pub(crate) limits: BusLimits,
    pub(crate) server: ServerSettings,
    pub(crate) sqlite: SqliteOptions,
    pub(crate) log_format: String,
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) tls_ca: String,
    pub(crate) namespace: String,
    pub(crate) reconnect_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: "127.0.0.1:7070".into(),
            store: "sqlite:///millrace.db".into(),
            socket: SOCKET_DEFAULT.into(),
            tls_cert: String::new(),
            tls_key: String::new(),
            limits: BusLimits::default(),
            server: ServerSettings::default(),
            sqlite: SqliteOptions::default(),
            log_format: "text".into(),
            url: "ws://127.0.0.1:7070/".into(),
            token: String::new(),
            tls_ca: String::new(),
            namespace: "default".into(),
            reconnect_ms: 30_000,
        }
    }
}
