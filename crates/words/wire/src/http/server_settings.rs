//! `GET /settings` and `GET /log`: how the server was set up, and what it has said.

use std::collections::BTreeMap;

use millrace_model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingsDoc {
    /// Empty for a server inside another program, which sets it up without settings.
    pub settings: Vec<SettingDoc>,
    /// Tokens and certificates, without anything that would let somebody in.
    pub tokens: Vec<TokenDoc>,
    pub capabilities: Vec<CapabilitySettingDoc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingDoc {
    /// The name of the flag, without the dashes.
    pub name: String,
    /// Text, a number, a flag or a list. A secret is `(secret)`; in an address, the password is left out.
    pub value: Value,
    /// `default`, `flag`, or the file or environment variable.
    pub from: String,
    pub default: Value,
    /// The values it may have, in words.
    pub accepts: String,
    /// Whether it is one of the bounds.
    pub bound: bool,
    /// Says how a change takes effect: by `restart` or by `SIGHUP`.
    pub changes: String,
    pub about: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenDoc {
    pub agent: String,
    /// `token` or `certificate`.
    pub kind: String,
    /// The name in the certificate, which is no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    pub scopes: Vec<String>,
    /// `*` stands for all.
    pub namespaces: Vec<String>,
    pub roles: Vec<String>,
    /// From this time on it is not accepted any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub expires: Option<Timestamp>,
    pub expired: bool,
    /// Its own rate, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<u64>,
}

/// An entry of `[[capability]]`. Arguments and values of variables may be secrets, so they are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilitySettingDoc {
    pub name: String,
    pub program: String,
    /// Whether it is started again when it ends by itself.
    pub restart: bool,
    /// Names of variables that are added to its environment.
    pub env: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogDoc {
    /// The newest first.
    pub lines: Vec<LogLineDoc>,
    /// Lines of any level since the start that are kept no longer.
    pub forgotten: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLineDoc {
    #[schemars(schema_with = "schema::ts")]
    pub ts: Timestamp,
    /// `error`, `warn` or `info`.
    pub level: String,
    pub target: String,
    pub message: String,
    /// The line's other members, as text.
    pub fields: BTreeMap<String, String>,
    /// The line was longer than what is kept of one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}
