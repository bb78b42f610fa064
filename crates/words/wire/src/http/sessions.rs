//! `GET /sessions`: programs that run durable handlers.

use std::collections::BTreeMap;

use millrace_model::RunCounts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    /// The newest first.
    pub sessions: Vec<SessionDoc>,
    /// Set if there are more: the next page comes `after` this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionDoc {
    pub session: String,
    /// `alive`, `dead` (silent for longer than its time to live) or `stopped`.
    pub state: String,
    pub started: u64,
    /// The last sign of life.
    pub heartbeat: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<String>,
    /// Everything else that the program has said about itself.
    pub metadata: BTreeMap<String, String>,
    /// Events that it holds now, by handler.
    pub holds: BTreeMap<String, u64>,
    /// Runs that take longer than they may, or that a session that is gone left behind.
    pub hanging: Vec<HangingDoc>,
    /// How its runs have ended, as of its last sign of life.
    #[schemars(with = "BTreeMap<String, u64>")]
    pub runs: RunCounts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HangingDoc {
    pub handler: String,
    pub event: String,
    /// When the run began.
    pub since: u64,
    /// The event is attempted again without this run.
    pub cut_off: bool,
}
