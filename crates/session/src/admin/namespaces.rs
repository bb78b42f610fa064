//! All namespaces of a store at a glance.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use millrace_model::{Namespace, Space, Timestamp};
use millrace_store::KeyRange;
use serde::Serialize;

use super::{Admin, AdminError, Liveness};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamespaceView {
    pub namespace: Namespace,
    /// Sessions that are alive.
    pub sessions: u64,
    /// Events that wait for a handler or are being handled, counted once per handler.
    pub pending_events: u64,
    pub dead_letters: u64,
}

impl Admin {
    /// Every namespace that has a topic, a handler or a session.
    pub fn namespaces(&self, now: Timestamp, session_ttl_ms: u64) -> Result<Vec<NamespaceView>, AdminError> {
        let mut names = BTreeSet::new();
        for space in [Space::Topics, Space::Handlers, Space::Sessions, Space::StateCommits] {
            let mut range = KeyRange::all();
            // One row of each namespace is enough: go on behind all of its rows.
            while let Some(row) = self.store.scan(space, &range, 1)?.pop() {
                let name = row.key.split('/').next().unwrap_or_default();
                range.from = format!("{name}0");
                names.extend(Namespace::new(name));
            }
        }
        let streams = self.store.streams()?;
        let view = |namespace: Namespace| {
            let mut pending_events = 0;
            for standing in self.standings(&namespace)? {
                pending_events += self.unfinished(&standing, &streams)?;
            }
            let sessions = self.sessions(&namespace, now, session_ttl_ms)?;
            Ok(NamespaceView {
                sessions: sessions.iter().filter(|session| session.liveness == Liveness::Alive).count()
                    as u64,
                pending_events,
                dead_letters: self.count_rows(Space::DeadLetters, &format!("{namespace}/"))?,
                namespace,
            })
        };
        names.into_iter().map(view).collect()
    }

    /// Whether anything was ever filed under the namespace.
    pub fn knows(&self, namespace: &Namespace) -> Result<bool, AdminError> {
        let range = KeyRange::prefix(&format!("{namespace}/"));
        for space in [Space::Topics, Space::Handlers, Space::Sessions, Space::StateCommits] {
            let mut found = false;
            self.each_row::<AdminError>(space, &range, |_| {
                found = true;
                Ok(ControlFlow::Break(()))
            })?;
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
