//! One process of the world of workers: its engine while it lives, and the handlers that run in it.

use std::collections::BTreeMap;

use millrace_claims::{
    HandlerSpec, Input, Look, Run, RunError, RunId, Seen, StreamSpan, Worker, WorkerIdentity,
};
use millrace_model::{ClaimRow, LaneRow, Namespace, Offset, SessionId, Space, Timestamp, TopicKey, keys};
use millrace_store::{KeyRange, Retention, Store};

use super::plan::{Work, changes, emits};

pub(crate) struct Process {
    name: String,
    pub(crate) life: u64,
    pub(crate) worker: Option<Worker>,
    runs: BTreeMap<RunId, Script>,
    pub(crate) wake_ms: Option<u64>,
    pub(crate) idle_wakes: u32,
    pub(crate) effects: usize,
    /// What was ready, and since when this one has been idle all the same.
    pub(crate) slept_over: Option<(String, u64)>,
    /// How far its wall clock is off.
    pub(crate) skew_ms: i64,
}

/// How one run goes.
struct Script {
    run: Run,
    work: Work,
    next: u32,
    last_ms: u64,
    fails_at: Option<u32>,
    commit_failed: bool,
    waits_for_answer: bool,
}

pub(crate) enum Step {
    Wait(u64),
    Say(Box<Input>),
}

impl Process {
    pub(crate) fn new(number: usize) -> Process {
        Process {
            name: format!("p{number}"),
            life: 0,
            worker: None,
            runs: BTreeMap::new(),
            wake_ms: None,
            idle_wakes: 0,
            effects: 0,
            slept_over: None,
            skew_ms: 0,
        }
    }

    pub(crate) fn session(&self) -> &str {
        &self.name
    }

    pub(crate) fn identity(&self) -> WorkerIdentity {
        WorkerIdentity {
            namespace: Namespace::default(),
            session: SessionId::new(&self.name).expect("a legal id"),
            metadata: BTreeMap::new(),
        }
    }

    pub(crate) fn begin(&mut self, worker: Worker) {
        self.worker = Some(worker);
        self.wake_ms = None;
    }

    pub(crate) fn end(&mut self) {
        self.worker = None;
        self.life += 1;
        self.runs.clear();
        self.slept_over = None;
    }

    pub(crate) fn begin_run(&mut self, run: Run, work: Work, last_ms: u64, fails_at: Option<u32>) {
        let (id, next, commit_failed, waits_for_answer) = (run.run, 0, false, false);
        let script = Script { run, work, next, last_ms, fails_at, commit_failed, waits_for_answer };
        self.runs.insert(id, script);
    }

    pub(crate) fn answered(&mut self, run: RunId, ok: bool) {
        if let Some(script) = self.runs.get_mut(&run) {
            script.waits_for_answer = false;
            script.commit_failed |= !ok;
        }
    }

    pub(crate) fn next_step(&mut self, run: RunId, handlers: &[HandlerSpec]) -> Option<Step> {
        let script = self.runs.get_mut(&run)?;
        if script.waits_for_answer {
            return None;
        }
        let failed = |text: &str| Err(RunError::Failed(text.to_owned()));
        let (event, handler) = (script.run.event.clone(), &handlers[script.run.handler].id);
        let result = if script.commit_failed {
            failed("a commit failed")
        } else if script.fails_at == Some(script.next) {
            failed("bad luck")
        } else if script.next < script.work.commits {
            let commit = changes(&event, handler, script.next);
            script.next += 1;
            script.waits_for_answer = true;
            return Some(Step::Say(Box::new(Input::Commit { run, commit })));
        } else if script.last_ms > 0 {
            return Some(Step::Wait(std::mem::take(&mut script.last_ms)));
        } else if script.work.poison {
            failed("poison")
        } else {
            Ok(emits(script.work, &event, handler))
        };
        self.runs.remove(&run);
        Some(Step::Say(Box::new(Input::Finished { run, result })))
    }
}

pub(crate) fn look(store: &dyn Store, look: &Look) -> Seen {
    match look {
        Look::Rows { space, from, to, rows_max } => {
            let range = KeyRange { from: from.clone(), to: Some(to.clone()) };
            let rows = store.scan(*space, &range, *rows_max).unwrap_or_default();
            Seen::Rows(rows.into_iter().map(|row| (row.key, row.value)).collect())
        }
        Look::Streams { namespace, .. } => {
            let streams = store.streams().unwrap_or_default().into_iter();
            let mine = streams.filter(|bounds| bounds.stream.topic.namespace() == namespace.as_str());
            let spans = mine.map(|bounds| StreamSpan {
                stream: bounds.stream,
                start: bounds.start,
                next: bounds.next,
            });
            Seen::Streams(spans.collect())
        }
        Look::RetentionStart { stream, older_than, bytes_max } => {
            let rule = Retention { older_than: *older_than, bytes_max: *bytes_max };
            Seen::Start(store.retention_start(stream, rule).unwrap_or(Offset::FIRST))
        }
    }
}

/// Something that a worker could claim now, if there is anything.
pub(crate) fn oldest_ready(store: &dyn Store, handlers: &[HandlerSpec], now: Timestamp) -> Option<String> {
    let namespace = Namespace::default();
    let first = |space, from: String, to: String| {
        let rows = store.scan(space, &KeyRange { from, to: Some(to) }, 1).unwrap_or_default();
        rows.into_iter().next()
    };
    handlers.iter().find_map(|handler| {
        let claims = keys::claims_of(namespace.as_str(), &handler.id);
        let due = first(Space::Claims, claims, keys::claims_end(namespace.as_str(), &handler.id, now));
        if let Some(row) = due {
            let generation = ClaimRow::decode(&row.key, &row.value).map_or(0, |row| row.generation);
            return Some(format!("{} generation {generation}", row.key));
        }
        let topic = TopicKey::new(&namespace, &handler.topic);
        let streams = store.streams().unwrap_or_default().into_iter();
        let mut mine = streams.filter(|bounds| bounds.stream.topic == topic);
        mine.find_map(|bounds| {
            let key = keys::lane(&handler.id, &bounds.stream, None);
            let row = first(Space::Lanes, key.clone(), format!("{key}\0"));
            let next = row
                .and_then(|row| LaneRow::decode(&row.key, &row.value).ok())
                .map_or(Offset::FIRST, |row| row.next);
            (next < bounds.next).then(|| format!("{} from {next} for {}", bounds.stream, handler.id))
        })
    })
}
