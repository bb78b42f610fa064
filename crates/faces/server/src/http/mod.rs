//! The endpoints of the HTTP interface, one file per subject.

pub(crate) mod actions;
pub(crate) mod capabilities;
pub(crate) mod chosen_letters;
pub(crate) mod cloud_events;
pub(crate) mod connections;
pub(crate) mod console;
pub(crate) mod dead_letters;
pub(crate) mod delayed;
pub(crate) mod durable_handlers;
pub(crate) mod event_filter;
pub(crate) mod event_search;
pub(crate) mod event_story;
pub(crate) mod events;
pub(crate) mod find_event;
pub(crate) mod group_metrics;
pub(crate) mod group_page;
pub(crate) mod groups;
pub(crate) mod handlers;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod lag;
pub(crate) mod loop_metrics;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod os_messages;
pub(crate) mod page;
pub(crate) mod process;
pub(crate) mod prometheus;
pub(crate) mod schedule_metrics;
pub(crate) mod schedules;
pub(crate) mod schemas;
pub(crate) mod server_stats;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod tail;
pub(crate) mod timers;
pub(crate) mod topic_access;
pub(crate) mod topic_figures;
pub(crate) mod topics;
pub(crate) mod trace;
pub(crate) mod whoami;
pub(crate) mod withheld;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_model::NameError;
use millrace_wire::ErrorCode;
use serde::Serialize;

use crate::refusal::Refusal;

/// A response with a JSON document.
pub(crate) fn document(status: StatusCode, doc: &impl Serialize) -> Response {
    match serde_json::to_string(doc) {
        Ok(text) => json(status, text),
        Err(error) => Refusal::new(ErrorCode::StorageFailed, format!("the answer has no JSON form: {error}"))
            .status(StatusCode::INTERNAL_SERVER_ERROR)
            .into_response(),
    }
}

/// A response with text that is JSON already.
pub(crate) fn json(status: StatusCode, text: impl Into<Body>) -> Response {
    let text: Body = text.into();
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

/// The refusal for a stored name that was legal once and is not any more: the store must be damaged.
pub(crate) fn damaged_name(error: &NameError) -> Refusal {
    Refusal::new(ErrorCode::StorageFailed, error.to_string()).status(StatusCode::INTERNAL_SERVER_ERROR)
}
