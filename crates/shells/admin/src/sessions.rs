//! Sessions: which ones work in a namespace, and whether they are alive.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use millrace_model::{
    ClaimRow, HandlerRow, HangingRow, Namespace, RunCounts, SessionRow, Space, Timestamp, keys,
};
use millrace_store::KeyRange;
use serde::Serialize;

use super::handlers::is_leased;
use super::{Admin, AdminError};

/// A session that was silent for longer counts as dead: the default of `session_ttl_ms`.
pub const SESSION_TTL_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Liveness {
    Alive,
    /// The session's last heartbeat is older than its time to live.
    Dead,
    /// The session has ended properly.
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionView {
    pub session_id: String,
    pub liveness: Liveness,
    pub started_at: Timestamp,
    pub last_heartbeat: Timestamp,
    pub metadata: BTreeMap<String, String>,
    /// Runs of handlers that take longer than they may. For a session that is not alive: those it left behind.
    pub hanging: Vec<HangingRow>,
    /// How the session's runs have ended, as of its last heartbeat.
    pub counts: RunCounts,
}

/// A page of sessions, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionPage {
    /// Each with the events that it holds, by handler.
    pub sessions: Vec<(SessionView, BTreeMap<String, u64>)>,
    pub more: bool,
}

impl Admin {
    /// Returns a page of the sessions of the namespace: those after the session `after`, the newest first. Handlers are
    /// named if `may_see` is true for the topic that they take.
    pub fn session_page(
        &self,
        namespace: &Namespace,
        (after, max): (Option<&str>, usize),
        now: Timestamp,
        session_ttl_ms: u64,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<SessionPage, AdminError> {
        let seen = self.handlers_seen(namespace, may_see)?;
        let mut held = self.held_by_session(namespace, now, may_see)?;
        let all = self.sessions(namespace, now, session_ttl_ms)?;
        // If the session is gone meanwhile, the list begins again.
        let from = after.and_then(|after| all.iter().position(|one| one.session_id == after));
        let rest: Vec<_> = all.into_iter().skip(from.map_or(0, |at| at + 1)).collect();
        let more = rest.len() > max;
        let sessions = rest.into_iter().take(max).map(|mut view| {
            let holds = held.remove(&view.session_id).unwrap_or_default();
            view.hanging.retain(|run| seen.contains(run.handler.as_str()));
            (view, holds)
        });
        Ok(SessionPage { sessions: sessions.collect(), more })
    }

    /// The handlers of topics for which `may_see` is true.
    fn handlers_seen(
        &self,
        namespace: &Namespace,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<BTreeSet<String>, AdminError> {
        let mut seen = BTreeSet::new();
        self.each_row::<AdminError>(Space::Handlers, &KeyRange::prefix(&format!("{namespace}/")), |row| {
            let handler = HandlerRow::decode(&row.key, &row.value)?;
            if may_see(&handler.topic)? {
                seen.extend(row.key.rsplit('/').next().map(str::to_owned));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(seen)
    }

    fn held_by_session(
        &self,
        namespace: &Namespace,
        now: Timestamp,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<BTreeMap<String, BTreeMap<String, u64>>, AdminError> {
        let mut held: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        self.each_row::<AdminError>(Space::Claims, &KeyRange::prefix(&format!("{namespace}/")), |row| {
            let claim = ClaimRow::decode(&row.key, &row.value)?;
            if is_leased(&claim, now)
                && let Some(session) = claim.session
                && let Some((handler, stream, _)) = keys::claim_place(&row.key)
                && may_see(stream.topic.topic())?
            {
                *held.entry(session.into()).or_default().entry(handler.to_owned()).or_default() += 1;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(held)
    }

    /// Returns the sessions of the namespace, the newest first.
    pub fn sessions(
        &self,
        namespace: &Namespace,
        now: Timestamp,
        session_ttl_ms: u64,
    ) -> Result<Vec<SessionView>, AdminError> {
        let mut found = Vec::new();
        self.each_row::<AdminError>(Space::Sessions, &KeyRange::prefix(&format!("{namespace}/")), |row| {
            let session = SessionRow::decode(&row.key, &row.value)?;
            let silent_ms = now.0.saturating_sub(session.heartbeat.0);
            let liveness = match session.stopped {
                Some(_) => Liveness::Stopped,
                None if silent_ms > session_ttl_ms => Liveness::Dead,
                None => Liveness::Alive,
            };
            found.push(SessionView {
                session_id: row.key.rsplit('/').next().unwrap_or_default().to_owned(),
                liveness,
                started_at: session.started,
                last_heartbeat: session.heartbeat,
                metadata: session.metadata,
                hanging: session.hanging,
                counts: session.counts,
            });
            Ok(ControlFlow::Continue(()))
        })?;
        found.sort_by(|a, b| (b.started_at, &b.session_id).cmp(&(a.started_at, &a.session_id)));
        Ok(found)
    }
}
