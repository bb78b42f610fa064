//! The settings of traces, which also have OpenTelemetry's own variables.

use crate::settings::{Also, Scope, SettingDef, SettingKind, SettingValue};

/// Hides what stands before the last `@`: an address with a password is refused, and its refusal must not show it.
fn without_user(address: &str) -> String {
    let Some((before, host)) = address.rsplit_once('@') else { return address.to_owned() };
    let scheme = before.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    format!("{scheme}***@{host}")
}

pub(super) static SETTINGS: &[SettingDef] = &[
    SettingDef {
        name: "otlp-endpoint",
        help: "Collector of traces: OTLP over HTTP, at this address with /v1/traces behind it",
        kind: SettingKind::Address {
            what: "an address such as http://127.0.0.1:4318, without user and password: otlp-headers is for secrets",
            check: |text| {
                let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
                // A password in the address would be shown: headers are for secrets.
                rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '?', '#', ' ']))
            },
            shown: without_user,
        },
        scope: Scope::Serve,
        also: &[("OTEL_EXPORTER_OTLP_ENDPOINT", Also::SameValue)],
        get: |config| SettingValue::Text(config.otlp.endpoint.clone()),
        set: |config, value| config.otlp.endpoint = value.to_string(),
    },
    SettingDef {
        name: "otlp-headers",
        help: "Headers for the collector, as name=value with commas between them",
        kind: SettingKind::Secret,
        scope: Scope::Serve,
        also: &[("OTEL_EXPORTER_OTLP_HEADERS", Also::SameValue)],
        get: |config| SettingValue::Text(config.otlp.headers.clone()),
        set: |config, value| config.otlp.headers = value.to_string(),
    },
    SettingDef {
        name: "otlp-service-name",
        help: "The name of this server in traces",
        kind: SettingKind::Text {
            what: "1 to 255 characters",
            check: |text| (1..=255).contains(&text.len()),
        },
        scope: Scope::Serve,
        also: &[("OTEL_SERVICE_NAME", Also::SameValue)],
        get: |config| SettingValue::Text(config.otlp.service_name.clone()),
        set: |config, value| config.otlp.service_name = value.to_string(),
    },
];
