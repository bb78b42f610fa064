//! The resolved settings, which the rest of the program reads.

use crate::settings::SOCKET_DEFAULT;
use millrace_bus::BusLimits;
use millrace_client::FollowLeader;
use millrace_runs::RunsLimits;
use millrace_server::ServerSettings;
use millrace_stores::StoreOptions;
use millrace_wasm::guest_process::GuestLimits;
use millrace_wasm::{HostOptions, InstanceLimits, RunLimits};

/// The config. Its `Default` is the default of every setting.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) listen: String,
    /// Empty = no such listener.
    pub(crate) probe_listen: String,
    pub(crate) store: String,
    pub(crate) demo: bool,
    pub(crate) cluster: ClusterSettings,
    pub(crate) socket: String,
    pub(crate) tls_cert: String,
    pub(crate) tls_key: String,
    pub(crate) tls_client_ca: String,
    /// Empty = no such token.
    pub(crate) first_token: String,
    pub(crate) limits: BusLimits,
    pub(crate) server: ServerSettings,
    pub(crate) store_options: StoreOptions,
    pub(crate) otlp: OtlpSettings,
    pub(crate) log_format: String,
    pub(crate) url: String,
    pub(crate) follow_leader: FollowLeader,
    pub(crate) token: String,
    pub(crate) tls_ca: String,
    pub(crate) client_cert: String,
    pub(crate) client_key: String,
    pub(crate) namespace: String,
    pub(crate) reconnect_ms: u64,
    pub(crate) run: RunSettings,
    pub(crate) guest: GuestSettings,
}

/// The settings of the collector of traces.
#[derive(Clone, Debug)]
pub(crate) struct OtlpSettings {
    /// Empty = nothing is traced.
    pub(crate) endpoint: String,
    pub(crate) headers: String,
    pub(crate) service_name: String,
}

impl Default for OtlpSettings {
    fn default() -> Self {
        OtlpSettings { endpoint: String::new(), headers: String::new(), service_name: "millrace".into() }
    }
}

/// The settings of a store that several servers share.
#[derive(Clone, Debug)]
pub(crate) struct ClusterSettings {
    /// Empty = made from the address that the server listens on.
    pub(crate) advertise: String,
    pub(crate) cache: String,
    /// 0 = for ever.
    pub(crate) store_wait_ms: u64,
    /// 0 = the engine's own.
    pub(crate) lead_timeout_ms: u64,
    /// 0 = the engine's own.
    pub(crate) follow_ms: u64,
    /// 0 = the engine's own.
    pub(crate) commit_interval_ms: u64,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings {
            advertise: String::new(),
            cache: "millrace-cache".into(),
            store_wait_ms: 0,
            lead_timeout_ms: 0,
            follow_ms: 0,
            commit_interval_ms: 0,
        }
    }
}

/// The settings of `millrace run`.
#[derive(Clone, Debug)]
pub(crate) struct RunSettings {
    pub(crate) clock: String,
    pub(crate) budget: u64,
    pub(crate) tick_ms_max: u64,
    /// 0 = the default of the module's generation.
    pub(crate) buffer: u64,
    pub(crate) allow: Vec<String>,
    /// Empty = no seed.
    pub(crate) seed: String,
    pub(crate) step_fuel_max: u64,
    pub(crate) step_ms_max: u64,
    pub(crate) memory_bytes_max: u64,
    /// 0 = no limit.
    pub(crate) wall_ms_max: u64,
}

/// The settings of `millrace guest`.
#[derive(Clone, Debug)]
pub(crate) struct GuestSettings {
    pub(crate) memory_bytes_max: u64,
    pub(crate) step_ms_max: u64,
    /// 0 = no limit.
    pub(crate) wall_ms_max: u64,
}

impl Default for GuestSettings {
    fn default() -> Self {
        let limits = GuestLimits::default();
        GuestSettings {
            memory_bytes_max: limits.memory_bytes_max as u64,
            step_ms_max: limits.step_ms_max,
            wall_ms_max: limits.wall_ms_max.unwrap_or(0),
        }
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        let (instance, run) = (InstanceLimits::default(), RunLimits::default());
        RunSettings {
            clock: "real".into(),
            budget: RunsLimits::default().max_internal_steps_per_tick as u64,
            tick_ms_max: HostOptions::default().tick_ms_max,
            buffer: 0,
            allow: Vec::new(),
            seed: String::new(),
            step_fuel_max: run.step_fuel_max,
            step_ms_max: run.step_wall_ms_max,
            memory_bytes_max: instance.memory_bytes_max as u64,
            wall_ms_max: run.wall_ms_max.unwrap_or(0),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: "127.0.0.1:7070".into(),
            probe_listen: String::new(),
            store: "sqlite:///millrace.db".into(),
            demo: false,
            cluster: ClusterSettings::default(),
            socket: SOCKET_DEFAULT.into(),
            tls_cert: String::new(),
            tls_key: String::new(),
            tls_client_ca: String::new(),
            first_token: String::new(),
            limits: BusLimits::default(),
            server: ServerSettings::default(),
            store_options: StoreOptions::default(),
            otlp: OtlpSettings::default(),
            log_format: "text".into(),
            url: "ws://127.0.0.1:7070/".into(),
            follow_leader: FollowLeader::default(),
            token: String::new(),
            tls_ca: String::new(),
            client_cert: String::new(),
            client_key: String::new(),
            namespace: "default".into(),
            reconnect_ms: 30_000,
            run: RunSettings::default(),
            guest: GuestSettings::default(),
        }
    }
}
