//! `/handlers`: durable handlers, what they have open, and their dead letters.

use millrace_model::{Offset, Partition, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::FrameError;
use crate::http::LETTERS_CHOSEN_MAX;

/// `GET /handlers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandlerList {
    /// By id.
    pub handlers: Vec<HandlerDoc>,
    /// Set if there are more: the next page comes `after` this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HandlerDoc {
    pub handler: String,
    /// The event type that it takes.
    pub topic: String,
    pub registered: u64,
    /// Paused from outside, in all sessions. A pause in a program's own settings is not visible here.
    pub paused: bool,
    /// Events that the handler has not finished, those of the next counts included.
    pub pending: u64,
    /// Events that a session holds.
    pub claimed: u64,
    /// Events that wait for their next attempt, or until a snooze is over.
    pub waiting: u64,
    /// When the first of these is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due: Option<u64>,
    /// Events with at least one failed attempt.
    pub retrying: u64,
    pub dead_letters: u64,
    /// The age of the oldest unfinished event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// Sessions that hold events of the handler now.
    pub sessions: u64,
}

/// `GET /handlers/{handler}/claims`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenClaims {
    pub handler: String,
    pub topic: String,
    /// In the order of partitions and offsets.
    pub claims: Vec<OpenClaimDoc>,
    /// Set if there are more: the next page comes `after` this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Errors are withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenClaimDoc {
    #[schemars(with = "u32")]
    pub partition: Partition,
    #[schemars(with = "u64")]
    pub offset: Offset,
    /// Absent if the event is gone from the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The event's time.
    #[schemars(with = "u64")]
    pub ts: Timestamp,
    /// `claimed`: a session holds it. `waiting`: for its next attempt, or until a snooze is over. `free`: any session
    /// may take it.
    pub state: String,
    /// Failed attempts.
    pub attempts: u32,
    pub snoozes: u32,
    /// The session that holds the event, or held it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<u64>,
    /// When the lease of a claimed event ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<u64>,
    /// When a waiting event is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
    /// The error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `POST /handlers/{handler}/dead-letters/replay` and `.../delete`: named letters, or a page of all, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HandlerLetterChoice {
    /// Ids of the events; a page of all letters if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<String>>,
    /// Without `events`: letters behind this, `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Without `events`: most letters of the page; 500 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl HandlerLetterChoice {
    pub fn parse(text: &str) -> Result<HandlerLetterChoice, FrameError> {
        if text.trim().is_empty() {
            return Ok(HandlerLetterChoice::default());
        }
        let choice: HandlerLetterChoice = serde_json::from_str(text).map_err(|error| {
            FrameError::bad_frame(format!("the choice of letters cannot be read: {error}"))
        })?;
        let named = choice.events.as_ref().map_or(1, Vec::len);
        if !(1..=LETTERS_CHOSEN_MAX).contains(&named) {
            let why = format!("{named} events are named: it must be from 1 to {LETTERS_CHOSEN_MAX}");
            return Err(FrameError::bad_frame(why));
        }
        if choice.limit.is_some_and(|limit| !(1..=LETTERS_CHOSEN_MAX).contains(&limit)) {
            let why = format!("limit must be a whole number from 1 to {LETTERS_CHOSEN_MAX}");
            return Err(FrameError::bad_frame(why));
        }
        Ok(choice)
    }
}

/// The fate of the letters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandlerLettersDone {
    pub handler: String,
    /// The events of the letters that were replayed or deleted.
    pub done: Vec<String>,
    /// Letters that were not replayed, and why. They are still there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<LetterRefused>,
    /// Events that were named and have no letter of this handler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Set if there may be more letters: the next page comes `after` this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LetterRefused {
    pub id: String,
    pub detail: String,
}

/// A handler that was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandlerForgotten {
    pub handler: String,
}
