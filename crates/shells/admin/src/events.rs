//! Events, and the status of each with its handlers.

use std::sync::Arc;

use millrace_model::{
    ClaimRow, ClaimState, Ending, Event, EventId, FinishedRow, Namespace, Offset, Space, Timestamp, keys,
    lane_of,
};
use millrace_store::ReadLimit;
use serde::Serialize;

use super::namespaces::is_shown;
use super::standing::Standing;
use super::{Admin, AdminError};

/// The most events that a listing returns.
pub(super) const LIST_MAX: usize = 10_000;
const READ_BYTES_MAX: usize = 8 << 20;

/// The status over all handlers of the event: the worst ending, else whether a session works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pending,
    Claimed,
    Acked,
    Discarded,
    Lost,
    DeadLettered,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Claimed => "claimed",
            Status::Acked => "acked",
            Status::Discarded => "discarded",
            Status::Lost => "lost",
            Status::DeadLettered => "dead_lettered",
        }
    }
}

/// The status of an event with a single handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    pub handler_id: String,
    pub status: Status,
    pub session_id: Option<String>,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub lease_until: Option<Timestamp>,
    pub available_at: Option<Timestamp>,
    pub ack_at: Option<Timestamp>,
    pub dead_lettered_at: Option<Timestamp>,
    pub discarded_at: Option<Timestamp>,
    pub snoozes: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct EventView {
    pub event: Arc<Event>,
    pub claims: Vec<ClaimView>,
}

impl EventView {
    /// Returns the status; `pending` for an event that no handler has asked for.
    pub fn status(&self) -> Status {
        self.claims.iter().map(|claim| claim.status).max().unwrap_or(Status::Pending)
    }

    /// Returns the handler that the status is about, if any handler has touched the event.
    pub fn handler(&self) -> Option<&str> {
        let status = self.status();
        let mut of_status = self.claims.iter().filter(|claim| claim.status == status);
        of_status.next_back().filter(|_| status != Status::Pending).map(|claim| claim.handler_id.as_str())
    }

    /// Returns the handlers that have not finished the event.
    pub fn owing(&self) -> impl Iterator<Item = &ClaimView> {
        self.claims.iter().filter(|claim| matches!(claim.status, Status::Pending | Status::Claimed))
    }

    pub fn root(&self) -> &EventId {
        self.event.body.lineage.root.as_ref().unwrap_or(&self.event.id)
    }
}

impl Admin {
    /// Returns the newest events of the namespace, the oldest of them first. Topics of the server itself are left out.
    pub fn events(
        &self,
        namespace: &Namespace,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<EventView>, AdminError> {
        let limit = limit.min(LIST_MAX);
        let mut newest: Vec<Arc<Event>> = Vec::new();
        for bounds in self.store.streams()? {
            if !is_shown(namespace, &bounds.stream.topic) {
                continue;
            }
            let mut from = Offset(bounds.next.0.saturating_sub(limit as u64)).max(bounds.start);
            while from < bounds.next {
                let limit = ReadLimit { events_max: limit, bytes_max: READ_BYTES_MAX };
                let page = self.store.read(&bounds.stream, from, limit)?;
                if page.through < from {
                    break;
                }
                from = page.through.next();
                newest.extend(page.events);
            }
        }
        newest.sort_by(|a, b| (a.ts, &a.stream, a.offset).cmp(&(b.ts, &b.stream, b.offset)));
        newest.drain(..newest.len().saturating_sub(limit));
        let standings = self.standings(namespace)?;
        newest.into_iter().map(|event| self.view(event, &standings, now)).collect()
    }

    pub(super) fn view(
        &self,
        event: Arc<Event>,
        standings: &[Standing],
        now: Timestamp,
    ) -> Result<EventView, AdminError> {
        let mut claims = Vec::new();
        for standing in standings.iter().filter(|standing| standing.topic == event.stream.topic) {
            claims.extend(self.claim_view(&event, standing, now)?);
        }
        Ok(EventView { event, claims })
    }

    /// Returns `None` for an event that was never this handler's: the handler began behind it, or the record of its end
    /// is gone.
    fn claim_view(
        &self,
        event: &Event,
        standing: &Standing,
        now: Timestamp,
    ) -> Result<Option<ClaimView>, AdminError> {
        let handler_id = standing.id.to_string();
        let key = keys::finished(&event.stream, event.offset, &standing.id);
        if let Some(row) = self.row(Space::Finished, &key)? {
            return Ok(Some(finished(handler_id, FinishedRow::decode(&row.key, &row.value)?)));
        }
        if let Some(row) = standing.open.get(&(event.stream.clone(), event.offset)) {
            return Ok(Some(open(handler_id, row, now)));
        }
        let waits = event.offset >= standing.next(event.stream.partition, lane_of(event.body.priority));
        Ok(waits.then(|| ClaimView { handler_id, ..nothing() }))
    }
}

fn nothing() -> ClaimView {
    ClaimView {
        handler_id: String::new(),
        status: Status::Pending,
        session_id: None,
        attempts: 0,
        last_error: None,
        claimed_at: None,
        lease_until: None,
        available_at: None,
        ack_at: None,
        dead_lettered_at: None,
        discarded_at: None,
        snoozes: 0,
    }
}

fn finished(handler_id: String, row: FinishedRow) -> ClaimView {
    let status = match row.ending {
        Ending::Acked => Status::Acked,
        Ending::Discarded => Status::Discarded,
        Ending::DeadLettered => Status::DeadLettered,
        Ending::Lost => Status::Lost,
    };
    ClaimView {
        handler_id,
        status,
        session_id: row.session.map(String::from),
        attempts: row.attempts,
        last_error: row.error,
        ack_at: (status == Status::Acked).then_some(row.at),
        dead_lettered_at: (status == Status::DeadLettered).then_some(row.at),
        discarded_at: (status == Status::Discarded).then_some(row.at),
        ..nothing()
    }
}

fn open(handler_id: String, row: &ClaimRow, now: Timestamp) -> ClaimView {
    let leased = row.state == ClaimState::Leased;
    ClaimView {
        handler_id,
        status: if leased && now < row.due { Status::Claimed } else { Status::Pending },
        session_id: row.session.clone().map(String::from),
        attempts: row.attempts,
        snoozes: row.snoozes,
        last_error: row.error.clone(),
        // A claim that was never leased waits behind an earlier event of its key.
        claimed_at: (row.generation > 0).then_some(row.claimed_at),
        lease_until: leased.then_some(row.due),
        available_at: (!leased).then_some(row.due),
        ..nothing()
    }
}
