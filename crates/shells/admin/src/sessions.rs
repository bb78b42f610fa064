//! Sessions: which ones work in a namespace, and whether they are alive.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use millrace_model::{HangingRow, Namespace, RunCounts, SessionRow, Space, Timestamp};
use millrace_store::KeyRange;
use serde::Serialize;

use super::{Admin, AdminError};

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

impl Admin {
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
