//! The settings that most users need.

use std::net::SocketAddr;

use millrace_client::{FollowLeader, ServerList};
use millrace_model::{AckMode, Durability, Namespace};
use millrace_server::{AuditKind, ConsoleFiles};
use millrace_stores::{StoreUrl, without_secrets};

use crate::settings::{Also, Scope, SettingDef, SettingKind, SettingValue};

/// Declares a setting that is a text field of the config.
macro_rules! text {
    ($name:literal, $scope:ident, $field:ident, $kind:expr, $also:expr, $help:literal) => {
        SettingDef {
            name: $name,
            help: $help,
            kind: $kind,
            scope: Scope::$scope,
            also: $also,
            get: |config| SettingValue::Text(config.$field.clone()),
            set: |config, value| config.$field = value.to_string(),
        }
    };
}

/// Stands for every kind of audit record.
const AUDIT_ALL: &str = "all";

/// Where the demo keeps its events unless a store is given: a store of its own, because its events are invented.
pub(super) const DEMO_STORE: &str = "sqlite:///millrace-demo.db";

/// What the demo audits unless kinds are given, so that the console's page Access has records to show.
pub(super) const DEMO_AUDIT: [AuditKind; 2] = [AuditKind::Refusals, AuditKind::Admin];

const PATH: SettingKind = SettingKind::Text { what: "the path of a file", check: |_| true };

pub(super) static SETTINGS: &[SettingDef] = &[
    text!(
        "listen",
        Serve,
        listen,
        SettingKind::Text {
            what: "an address such as 127.0.0.1:7070",
            check: |text| text.parse::<SocketAddr>().is_ok()
        },
        &[("BUS_PORT", Also::Port)],
        "Address for WebSocket and HTTP; port 0 picks a free one"
    ),
    text!(
        "probe-listen",
        Serve,
        probe_listen,
        SettingKind::Text {
            what: "an address such as 127.0.0.1:7071",
            check: |text| text.parse::<SocketAddr>().is_ok()
        },
        &[],
        "A second address that serves only /healthz, /readyz and /metrics, whatever crowds the first"
    ),
    text!(
        "store",
        Store,
        store,
        SettingKind::Address {
            what: "sqlite:///FILE (relative), sqlite:////DIR/FILE (absolute), memory:, postgres://…, \
                   s3://BUCKET/PREFIX, mongodb://… or dir:///FOLDER",
            check: |text| text.parse::<StoreUrl>().is_ok(),
            shown: without_secrets,
        },
        &[],
        "Where events are kept"
    ),
    SettingDef {
        name: "demo",
        help: "Run a small shop on the server, to have something to look at: orders, payments, a slow group, dead letters, \
               delayed events. Needs a store with nothing else in it; without --store sqlite:///millrace-demo.db, \
               without --audit refusals,admin",
        kind: SettingKind::Flag,
        scope: Scope::Serve,
        also: &[],
        get: |config| SettingValue::Flag(config.demo),
        set: |config, value| config.demo = value == SettingValue::Flag(true),
    },
    SettingDef {
        name: "durability",
        help: "How durable an event is once its publish is confirmed, for topics that do not set their own",
        kind: SettingKind::Choice(&["fsync", "os", "memory", "replicated"]),
        scope: Scope::Serve,
        also: &[],
        get: |config| SettingValue::Text(config.limits.durability.as_str().into()),
        set: |config, value| {
            config.limits.durability = Durability::parse(&value.to_string()).unwrap_or(Durability::Fsync);
        },
    },
    SettingDef {
        name: "ack-mode",
        help: "The events that an ACK completes, for clients that do not say and topics that do not set their own",
        kind: SettingKind::Choice(&["cumulative", "individual"]),
        scope: Scope::Serve,
        also: &[],
        get: |config| SettingValue::Text(config.limits.ack_mode.as_str().into()),
        set: |config, value| {
            config.limits.ack_mode = AckMode::parse(&value.to_string()).unwrap_or_default();
        },
    },
    SettingDef {
        name: "insecure",
        help: "Without tokens: serve everyone who can reach the address, by whatever host name",
        kind: SettingKind::Flag,
        scope: Scope::Serve,
        also: &[],
        get: |config| SettingValue::Flag(config.server.insecure),
        set: |config, value| config.server.insecure = value == SettingValue::Flag(true),
    },
    text!("tls-cert", Serve, tls_cert, PATH, &[], "PEM file with the certificate and its chain: TLS only"),
    text!("tls-key", Serve, tls_key, PATH, &[], "PEM file with the certificate's private key"),
    text!(
        "tls-client-ca",
        Serve,
        tls_client_ca,
        PATH,
        &[],
        "PEM file with the authorities of client certificates, which stand for agents by auth.certificates"
    ),
    text!(
        "first-token",
        Serve,
        first_token,
        PATH,
        &[],
        "File with a token that may do everything, for the agent admin: the first start makes it (mode 0600)"
    ),
    SettingDef {
        name: "allow-origin",
        help: "Web pages of other hosts that may connect, as browsers write their origin; * for all",
        kind: SettingKind::List {
            what: "origins such as https://example.org, or *",
            check: |text| text == "*" || text.split_once("://").is_some_and(|(_, host)| !host.is_empty()),
        },
        scope: Scope::Serve,
        also: &[],
        get: |config| SettingValue::List(config.server.allow_origins.clone()),
        set: |config, value| {
            if let SettingValue::List(items) = value {
                config.server.allow_origins = items;
            }
        },
    },
    SettingDef {
        name: "no-auto-create",
        help: "Do not create topics on first publish or subscribe",
        kind: SettingKind::Flag,
        scope: Scope::Serve,
        also: &[],
        get: |config| SettingValue::Flag(!config.limits.auto_create),
        set: |config, value| config.limits.auto_create = value != SettingValue::Flag(true),
    },
    SettingDef {
        name: "metrics-interval-ms",
        help: "How often an event with all counters goes to topic system.metrics; 0 = never",
        kind: SettingKind::Number { min: 0, max: u32::MAX as u64 },
        scope: Scope::Serve,
        also: &[],
        get: |config| SettingValue::Number(config.server.metrics_interval_ms),
        set: |config, value| {
            if let SettingValue::Number(number) = value {
                config.server.metrics_interval_ms = number;
            }
        },
    },
    SettingDef {
        name: "console",
        help: "Whether to serve the web console at /console/",
        kind: SettingKind::Choice(&["on", "off"]),
        scope: Scope::Serve,
        also: &[],
        get: |config| {
            let is_off = config.server.console == ConsoleFiles::Off;
            SettingValue::Text(if is_off { "off" } else { "on" }.to_owned())
        },
        set: |config, value| {
            if value.to_string() == "off" {
                config.server.console = ConsoleFiles::Off;
            } else if config.server.console == ConsoleFiles::Off {
                config.server.console = ConsoleFiles::BuiltIn;
            }
        },
    },
    SettingDef {
        name: "console-dir",
        help: "Serve the console's files from this folder instead of the binary's own: for those who write them",
        kind: SettingKind::Text { what: "the path of a folder", check: |_| true },
        scope: Scope::Serve,
        also: &[],
        get: |config| match &config.server.console {
            ConsoleFiles::Folder(folder) => SettingValue::Text(folder.display().to_string()),
            _ => SettingValue::Text(String::new()),
        },
        set: |config, value| {
            let folder = value.to_string();
            if !folder.is_empty() && config.server.console != ConsoleFiles::Off {
                config.server.console = ConsoleFiles::Folder(folder.into());
            }
        },
    },
    SettingDef {
        name: "audit",
        help: "Records published to topic system.bus.audit: refusals, admin, publish, subscribe, read, ack, redelivery, or all",
        kind: SettingKind::List {
            what: "refusals, admin, publish, subscribe, read, ack, redelivery, or all",
            check: |text| text == AUDIT_ALL || text.parse::<AuditKind>().is_ok(),
        },
        scope: Scope::Serve,
        also: &[],
        get: |config| {
            SettingValue::List(config.server.audit.iter().map(|kind| kind.as_str().to_owned()).collect())
        },
        set: |config, value| {
            if let SettingValue::List(items) = value {
                let kinds = |item: &String| match item.parse() {
                    Ok(kind) => vec![kind],
                    // The check accepts only kinds and `AUDIT_ALL`, so this is the latter.
                    Err(()) => AuditKind::ALL.to_vec(),
                };
                config.server.audit = items.iter().flat_map(kinds).collect();
            }
        },
    },
    text!(
        "url",
        Client,
        url,
        SettingKind::Text {
            what: "ws://HOST:PORT/, wss://HOST:PORT/ (TLS), http(s)://HOST:PORT/ or HOST:PORT; several with commas \
                   between them, all with TLS or none",
            check: |text| ServerList::parse(&[text]).is_ok()
        },
        &[("BUS_URL", Also::SameValue)],
        "The server's address; of servers that share a store several, with commas between them"
    ),
    SettingDef {
        name: "follow-leader",
        help: "When a server names a leader that is not in url: auto (follow, with a token only over TLS), always, \
               listed (do not)",
        kind: SettingKind::Choice(&["auto", "always", "listed"]),
        scope: Scope::Client,
        also: &[],
        get: |config| SettingValue::Text(config.follow_leader.as_str().into()),
        set: |config, value| {
            config.follow_leader = FollowLeader::parse(&value.to_string()).unwrap_or_default();
        },
    },
    text!("token", Client, token, SettingKind::Secret, &[], "Bearer token, if the server wants one"),
    text!(
        "tls-ca",
        Client,
        tls_ca,
        PATH,
        &[],
        "PEM file with the authorities to trust for wss://, instead of the system's"
    ),
    text!(
        "client-cert",
        Client,
        client_cert,
        PATH,
        &[],
        "PEM file with a client certificate (and its chain), instead of a token"
    ),
    text!("client-key", Client, client_key, PATH, &[], "PEM file with the client certificate's private key"),
    text!(
        "namespace",
        Client,
        namespace,
        SettingKind::Text {
            what: "1 to 255 characters of A-Z a-z 0-9 . _ : - without empty dot segments",
            check: |text| Namespace::new(text).is_ok(),
        },
        &[],
        "Namespace of the topics"
    ),
    SettingDef {
        name: "reconnect-ms",
        help: "How long to try to reconnect after a connection is lost; 0 gives up at once",
        kind: SettingKind::Number { min: 0, max: u32::MAX as u64 },
        scope: Scope::Client,
        also: &[],
        get: |config| SettingValue::Number(config.reconnect_ms),
        set: |config, value| {
            if let SettingValue::Number(number) = value {
                config.reconnect_ms = number;
            }
        },
    },
    text!(
        "log-format",
        Everywhere,
        log_format,
        SettingKind::Choice(&["text", "json"]),
        &[],
        "Form of the log on stderr"
    ),
];
