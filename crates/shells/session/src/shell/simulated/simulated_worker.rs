//! The workers of a simulation, and the runs and answers that each of them has.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrace_claims::{HandlerRun, RunId, Worker};
use millrace_model::{HandlerId, Space, Timestamp, TopicKey, keys};
use millrace_store::{KeyRange, Store};

use crate::error::Result;
use crate::session::Session;
use crate::shell::mailbox::Answer;
use crate::typed::Handler;

/// Identifies a worker. A session that starts again is another worker, even with the same session id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SimulatedWorkerId(u64);

#[derive(Default)]
pub(super) struct Actors {
    added: u64,
    pub(super) all: BTreeMap<SimulatedWorkerId, SimulatedWorker>,
}

impl Actors {
    pub(super) fn add(&mut self, actor: SimulatedWorker) -> SimulatedWorkerId {
        self.added += 1;
        let id = SimulatedWorkerId(self.added);
        self.all.insert(id, actor);
        id
    }

    /// Returns whether there is or was more than one worker: then there may be claims that no present worker knows of.
    pub(super) fn have_company(&self) -> bool {
        self.added > 1
    }
}

pub(super) struct SimulatedWorker {
    pub(super) worker: Worker,
    pub(super) session: Session,
    pub(super) handlers: Arc<[Handler]>,
    specs: Vec<(TopicKey, HandlerId)>,
    pub(super) jobs: VecDeque<HandlerRun>,
    pub(super) answers: BTreeMap<RunId, Answer>,
    /// Set when the worker has ended, with the reason if the store failed.
    pub(super) stopped: Option<Option<String>>,
}

impl SimulatedWorker {
    pub(super) fn new(worker: Worker, session: Session, handlers: Vec<Handler>) -> Result<SimulatedWorker> {
        let topic = |spec: millrace_claims::HandlerSpec| {
            (TopicKey::new(session.namespace_name(), &spec.topic), spec.id)
        };
        let specs = handlers.iter().map(|handler| handler.spec().map(topic)).collect::<Result<_>>()?;
        Ok(SimulatedWorker {
            worker,
            specs,
            session,
            handlers: handlers.into(),
            jobs: VecDeque::new(),
            answers: BTreeMap::new(),
            stopped: None,
        })
    }

    /// Returns when the first open claim of each handler is due, of those that are due later than `after`. Claims that
    /// were due before may wait for others of their key.
    pub(super) fn claims_due(
        &self,
        store: &dyn Store,
        others: bool,
        after: Option<Timestamp>,
    ) -> Vec<(TopicKey, Timestamp)> {
        if !others {
            // All claims are this worker's own, and it knows when they are due.
            return Vec::new();
        }
        let namespace = self.session.namespace_name();
        let due = self.specs.iter().filter_map(|(topic, handler)| {
            let all = keys::claims_of(namespace.as_str(), handler);
            let mut range = KeyRange::prefix(&all);
            if let Some(after) = after {
                range.from = keys::claims_end(namespace.as_str(), handler, after);
            }
            let first = store.scan(Space::Claims, &range, 1).ok()?.pop()?;
            let due = first.key[all.len()..].split('/').next()?;
            Some((topic.clone(), Timestamp(u64::from_str_radix(due, 16).ok()?)))
        });
        due.collect()
    }
}
