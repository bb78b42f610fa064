//! An overview of all namespaces of a store.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use millrace_model::{Namespace, Space, Timestamp, TopicKey};
use millrace_store::KeyRange;
use serde::Serialize;

use super::standing::Standing;
use super::{Admin, AdminError, Liveness};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamespaceView {
    pub namespace: Namespace,
    /// Sessions that are alive.
    pub sessions: u64,
    /// Events that some handler has not finished, or whose type has no handler. Each event counts once.
    pub pending_events: u64,
    /// Pending events whose type has no handler.
    pub without_handler: u64,
    pub dead_letters: u64,
}

/// Returns whether the events of a topic are listed: those of the namespace, without the server's own topics.
pub(super) fn is_shown(namespace: &Namespace, topic: &TopicKey) -> bool {
    topic.namespace() == namespace.as_str() && !topic.topic().starts_with("system.")
}

impl Admin {
    /// Returns every namespace that has a topic, a handler, a session or a commit of state.
    pub fn namespace_names(&self) -> Result<BTreeSet<Namespace>, AdminError> {
        let mut names = BTreeSet::new();
        for space in [Space::Topics, Space::Handlers, Space::Sessions, Space::StateCommits] {
            let mut range = KeyRange::all();
            // A single row of each namespace is enough: continue behind all of its rows.
            while let Some(row) = self.store.scan(space, &range, 1)?.pop() {
                let name = row.key.split('/').next().unwrap_or_default();
                range.from = format!("{name}0");
                names.extend(Namespace::new(name));
            }
        }
        Ok(names)
    }

    /// Returns the same namespaces, each with its counts.
    pub fn namespaces(&self, now: Timestamp, session_ttl_ms: u64) -> Result<Vec<NamespaceView>, AdminError> {
        let streams = self.store.streams()?;
        let view = |namespace: Namespace| {
            let (mut pending_events, mut without_handler) = (0, 0);
            let standings = self.standings(&namespace)?;
            for bounds in streams.iter().filter(|bounds| is_shown(&namespace, &bounds.stream.topic)) {
                let of_topic = standings.iter().filter(|standing| standing.topic == bounds.stream.topic);
                let of_topic: Vec<&Standing> = of_topic.collect();
                let events = self.unfinished(&of_topic, bounds)?;
                pending_events += events;
                without_handler += if of_topic.is_empty() { events } else { 0 };
            }
            let sessions = self.sessions(&namespace, now, session_ttl_ms)?;
            Ok(NamespaceView {
                sessions: sessions.iter().filter(|session| session.liveness == Liveness::Alive).count()
                    as u64,
                pending_events,
                without_handler,
                dead_letters: self.count_letters(&format!("{namespace}/"))?,
                namespace,
            })
        };
        self.namespace_names()?.into_iter().map(view).collect()
    }

    /// Returns whether the store has any topic, handler, session or commit of state in the namespace.
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
