//! Bodies of the HTTP interface. Bodies of requests are read by the same rules as frames.

mod capabilities;
mod connections;
mod dead_letters;
mod event_story;
mod events;
mod found;
mod group_members;
mod groups;
mod handlers;
mod jobs;
mod letters;
mod offsets;
mod os_messages;
mod problem;
mod publish;
mod schedules;
mod schemas;
mod seek;
mod server_settings;
mod server_stats;
mod sessions;
mod stats;
mod system;
mod topic;
mod trace;
mod waiting;
mod whoami;

pub use capabilities::{CapabilityDoc, CapabilityList, FedTopicDoc, HandledDoc};
pub use connections::{ConnectionDoc, ConnectionList};
pub use dead_letters::{
    DeadLetterTopic, DeadLetters, HandlerLetter, HandlerLetters, HandlerLettersPage, Replay, Replayed,
};
pub use event_story::{ClaimDoc, EventPlace, EventStory, GroupStanding, LetterPlace, LineageDoc};
pub use events::{EventsPage, write_events_page};
pub use found::{EventsFound, mark_withheld, write_events_found, write_found};
pub use group_members::{GroupPage, GroupPartition, GroupPaused, InflightDoc, InflightList, MemberDoc};
pub use groups::{GroupDoc, GroupList, GroupPlace};
pub use handlers::{
    HandlerDoc, HandlerForgotten, HandlerLetterChoice, HandlerLettersDone, HandlerList, LetterRefused,
    OpenClaimDoc, OpenClaims,
};
pub use jobs::{JobDoc, JobFailure, JobFilter, JobKind, JobList, JobPreview, JobRequest};
pub use letters::{
    ChosenLetters, ChosenReplayed, EditedLetter, LETTERS_CHOSEN_MAX, LetterReason, LetterSummary,
    LettersDeleted,
};
pub use offsets::{GroupOffsets, PartitionOffsets, TopicOffsets};
pub use os_messages::{OsAccepted, OsMessageDoc, OsMetadataDoc};
pub use problem::{PROBLEM_CONTENT_TYPE, Problem};
pub use publish::{PublishBody, write_publish_body};
pub use schedules::{ScheduleDoc, ScheduleList};
pub use schemas::{SchemaDoc, SchemaList};
pub use seek::{Seek, Sought};
pub use server_settings::{CapabilitySettingDoc, LogDoc, LogLineDoc, SettingDoc, SettingsDoc, TokenDoc};
pub use server_stats::{GroupFigures, LoopFigures, SeriesDoc, ServerFigures, ServerStatsDoc, StatsHistory};
pub use sessions::{HangingDoc, SessionDoc, SessionList};
pub use stats::{StatsDoc, TopicStats};
pub use system::{AuditDoc, GroupStats, MetricsDoc};
pub use topic::{
    CheckedDoc, StreamDoc, TopicBody, TopicDefaults, TopicDoc, TopicFigures, TopicGroupFigures, TopicList,
    parse_topic_patch,
};
pub use trace::{Trace, TraceNode, TracePlace, TraceWhat};
pub use waiting::{DelayedDoc, DelayedDone, DelayedList, TimerCancelled, TimerDoc, TimerList};
pub use whoami::{Limits, NamespaceDoc, NamespaceList, WhoAmI};

use crate::error::FrameError;

/// Returns the text of a body.
pub fn body_text(bytes: &[u8]) -> Result<&str, FrameError> {
    std::str::from_utf8(bytes)
        .map_err(|error| FrameError::bad_json(format_args!("the body is not UTF-8: {error}")))
}

/// Appends a document made of plain values, which always have a JSON form.
fn write_doc(out: &mut String, doc: &impl serde::Serialize) {
    out.push_str(&serde_json::to_string(doc).unwrap_or_default());
}
