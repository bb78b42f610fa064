//! A process of the world of workers: its engine while it lives, and the handlers that run in it.

use std::collections::BTreeMap;

use millrace_claims::{
    HandlerRun, HandlerSpec, Input, ReadQuery, ReadResult, RunError, RunId, StreamSpan, Worker,
    WorkerIdentity,
};
use millrace_model::{
    ClaimRow, HandlerOrder, LaneRow, Namespace, Offset, OrderKey, SessionId, Space, Timestamp, TopicKey, keys,
};
use millrace_store::{KeyRange, Retention, Row, Store};

use super::counter::{self, CounterRead};
use super::plan::{Work, changes, emits};
use crate::clock::Reader;

pub(crate) struct Process {
    name: String,
    pub(crate) life: u64,
    pub(crate) worker: Option<Worker>,
    runs: BTreeMap<RunId, Script>,
    pub(crate) wake_ms: Option<u64>,
    pub(crate) idle_wakes: u32,
    pub(crate) effects: usize,
    /// Ready work that this process has left alone although it is idle, and since when.
    pub(crate) slept_over: Option<(String, u64)>,
    /// How far the process's wall clock is off.
    pub(crate) skew_ms: i64,
    /// Reads the clock as the process does, doubting large steps.
    pub(crate) reader: Reader,
}

/// How one run proceeds.
struct Script {
    run: HandlerRun,
    work: Work,
    next: u32,
    last_ms: u64,
    fails_at: Option<u32>,
    /// The counter as the run read it, if the run is to increment it; taken by its last commit.
    counter: Option<CounterRead>,
    /// The last commit was sent: once it is answered, the outcome of the run no longer matters.
    acked: bool,
    commit_failed: bool,
    waits_for_answer: bool,
}

pub(crate) enum Step {
    Wait(u64),
    Say(Box<Input>),
    /// The process ends with the run.
    Die,
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
            reader: Reader::new(0),
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
            boot: None,
        }
    }

    pub(crate) fn begin(&mut self, worker: Worker, reader: Reader) {
        self.reader = reader;
        self.worker = Some(worker);
        self.wake_ms = None;
    }

    pub(crate) fn end(&mut self) {
        self.worker = None;
        self.life += 1;
        self.runs.clear();
        self.slept_over = None;
    }

    pub(crate) fn begin_run(
        &mut self,
        run: HandlerRun,
        work: Work,
        last_ms: u64,
        fails_at: Option<u32>,
        counter: Option<CounterRead>,
    ) {
        let (id, next, commit_failed, waits_for_answer) = (run.run, 0, false, false);
        let acked = false;
        let script =
            Script { run, work, next, last_ms, fails_at, counter, acked, commit_failed, waits_for_answer };
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
        } else if script.acked {
            // The event has ended: a failure from here on does not repeat it.
            if run.0.is_multiple_of(2) { failed("too late") } else { Ok(Vec::new()) }
        } else if script.fails_at == Some(script.next) {
            Err(bad_luck(run))
        } else if script.next < script.work.commits {
            let commit = changes(&event, handler, script.next);
            script.next += 1;
            script.waits_for_answer = true;
            return Some(Step::Say(Box::new(Input::Commit { run, commit })));
        } else if script.last_ms > 0 {
            return Some(Step::Wait(std::mem::take(&mut script.last_ms)));
        } else if script.work.kills {
            return Some(Step::Die);
        } else if script.work.poison {
            failed("poison")
        } else if let Some(read) = script.counter.take() {
            (script.acked, script.waits_for_answer) = (true, true);
            let (commit, emitted) = (counter::increment(&read), emits(script.work, &event, handler));
            return Some(Step::Say(Box::new(Input::CommitAndAck { run, commit, emitted })));
        } else {
            Ok(emits(script.work, &event, handler))
        };
        self.runs.remove(&run);
        Some(Step::Say(Box::new(Input::Finished { run, result })))
    }
}

/// Returns one of the ways in which a run can end without success.
fn bad_luck(run: RunId) -> RunError {
    let text = || "bad luck".to_owned();
    match run.0 % 6 {
        0 => RunError::Snooze { after_ms: 40, reason: text() },
        1 => RunError::RetryAfter { after_ms: 70, error: text() },
        2 => RunError::Discard { reason: text() },
        _ => RunError::Failed(text()),
    }
}

pub(crate) fn read(store: &dyn Store, query: &ReadQuery) -> ReadResult {
    match query {
        ReadQuery::Rows { space, from, to, rows_max } => {
            let range = KeyRange { from: from.clone(), to: Some(to.clone()) };
            let rows = store.scan(*space, &range, *rows_max).unwrap_or_default();
            ReadResult::Rows(rows.into_iter().map(|row| (row.key, row.value)).collect())
        }
        ReadQuery::Streams { namespace, .. } => {
            let streams = store.streams().unwrap_or_default().into_iter();
            let mine = streams.filter(|bounds| bounds.stream.topic.namespace() == namespace.as_str());
            let spans = mine.map(|bounds| StreamSpan {
                stream: bounds.stream,
                start: bounds.start,
                next: bounds.next,
                last_ts: bounds.last_ts,
            });
            ReadResult::Streams(spans.collect())
        }
        ReadQuery::RetentionStart { stream, older_than, bytes_max } => {
            let rule = Retention { older_than: *older_than, bytes_max: *bytes_max };
            ReadResult::Start(store.retention_start(stream, rule).unwrap_or(Offset::FIRST))
        }
    }
}

/// Returns something that a worker could claim now, if there is anything.
pub(crate) fn oldest_ready(store: &dyn Store, handlers: &[HandlerSpec], now: Timestamp) -> Option<String> {
    let namespace = Namespace::default();
    let first = |space, from: String, to: String| {
        let rows = store.scan(space, &KeyRange { from, to: Some(to) }, 1).unwrap_or_default();
        rows.into_iter().next()
    };
    handlers.iter().find_map(|handler| {
        let claims = keys::claims_of(namespace.as_str(), &handler.id);
        let due = match handler.settings.order {
            Some(HandlerOrder::Key) => first_of_its_key(store, &claims, now),
            _ => first(Space::Claims, claims, keys::claims_end(namespace.as_str(), &handler.id, now)),
        };
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

/// Returns a claim that is due and waits for no other claim of its key.
fn first_of_its_key(store: &dyn Store, claims: &str, now: Timestamp) -> Option<Row> {
    let rows = store.scan(Space::Claims, &KeyRange::prefix(claims), usize::MAX).unwrap_or_default();
    let read = |row: &Row| {
        let (_, stream, offset) = keys::claim_place(&row.key)?;
        Some((stream, offset, ClaimRow::decode(&row.key, &row.value).ok()?))
    };
    let open: Vec<_> = rows.iter().filter_map(read).collect();
    rows.into_iter().find(|row| {
        let Some((stream, offset, claim)) = read(row) else { return true };
        let keyless = claim.order_key == Some(OrderKey::NONE);
        let first = open
            .iter()
            .all(|(of, other, row)| row.order_key != claim.order_key || *of != stream || *other >= offset);
        claim.due <= now && (keyless || first)
    })
}
