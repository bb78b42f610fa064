//! The settings of a store that several servers share: where a server is reached, when it takes the lead, where its copy
//! is kept.

use millrace_server::AdvertisedUrl;

use crate::settings::config::ClusterSettings;
use crate::settings::{Scope, SettingDef, SettingKind, SettingValue};

/// A leader places a record every third of the timeout; with less than this, a busy machine would lose the lead.
const LEAD_TIMEOUT_MS_MIN: u64 = 500;
/// A day: longer than any pause that makes sense here.
const DAY_MS: u64 = 24 * 3600 * 1000;
/// Every publish may wait for this long.
const MINUTE_MS: u64 = 60 * 1000;

/// Declares a number of the settings of a shared store.
macro_rules! number {
    ($name:literal, $field:ident, $max:expr, $help:literal) => {
        SettingDef {
            name: $name,
            help: $help,
            kind: SettingKind::Number { min: 0, max: $max },
            scope: Scope::Store,
            also: &[],
            get: |config| SettingValue::Number(config.cluster.$field),
            set: |config, value| {
                if let SettingValue::Number(number) = value {
                    config.cluster.$field = number;
                }
            },
        }
    };
}

impl ClusterSettings {
    /// Checks what the kinds of the settings below cannot say.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.lead_timeout_ms {
            given @ 1..LEAD_TIMEOUT_MS_MIN => Err(format!(
                "lead-timeout-ms is {given}: it must be 0 for the engine's own, or at least {LEAD_TIMEOUT_MS_MIN}"
            )),
            _ => Ok(()),
        }
    }
}

pub(super) static SETTINGS: &[SettingDef] = &[
    SettingDef {
        name: "advertise",
        help: "With a shared store: the URL that others reach this server by; made from --listen if it is not given",
        kind: SettingKind::Text {
            what: "http://HOST:PORT or https://HOST[:PORT]",
            check: |text| text.parse::<AdvertisedUrl>().is_ok(),
        },
        scope: Scope::Serve,
        also: &[],
        get: |config| SettingValue::Text(config.cluster.advertise.clone()),
        set: |config, value| config.cluster.advertise = value.to_string(),
    },
    SettingDef {
        name: "cache",
        help: "With a shared store: the folder of this machine's copy of it",
        kind: SettingKind::Text { what: "the path of a folder", check: |text| !text.is_empty() },
        scope: Scope::Store,
        also: &[],
        get: |config| SettingValue::Text(config.cluster.cache.clone()),
        set: |config, value| config.cluster.cache = value.to_string(),
    },
    number!(
        "store-wait-ms",
        store_wait_ms,
        i64::MAX as u64,
        "With a shared store: how long to wait at the start for an engine that cannot be reached; 0 = for ever"
    ),
    number!(
        "lead-timeout-ms",
        lead_timeout_ms,
        DAY_MS,
        "With a shared store: a leader silent for this long is replaced; 0 = 5000, with object storage 15000"
    ),
    number!(
        "follow-ms",
        follow_ms,
        DAY_MS,
        "With a shared store: how often a server that follows looks for news; 0 = 50, with object storage 500"
    ),
    number!(
        "commit-interval-ms",
        commit_interval_ms,
        MINUTE_MS,
        "With a shared store: commits begin at least this long after one another; 0 = at once, with object storage 100"
    ),
];
