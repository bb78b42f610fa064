//! `/schedules`: events that sessions send by the clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleList {
    /// By name.
    pub schedules: Vec<ScheduleDoc>,
    /// Set if there are more: the next page comes `after` this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScheduleDoc {
    pub name: String,
    pub cron: String,
    pub zone: String,
    /// The expression in words, with its zone.
    pub words: String,
    pub event_type: String,
    /// False: paused.
    pub enabled: bool,
    /// The planned time of the latest fire; absent before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Fires so far, runs that were asked for included.
    pub fires: u64,
    /// Fires that were due and have not happened, as far as they were counted: 100 means that or more.
    pub missed: u64,
    /// When the first of these was due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overdue_since: Option<u64>,
    /// When a run was asked for that no session has made yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_asked_at: Option<u64>,
    /// The next five fires; none while it is paused.
    pub next: Vec<u64>,
}
