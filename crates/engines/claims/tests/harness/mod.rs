//! A test harness: several workers on one memory store, with a clock that the tests move.

// Each test file uses only a part of the harness.
#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, VecDeque};

use millrace_claims::*;
use millrace_model::*;
use millrace_store::{KeyRange, MemoryStore, ReadLimit, Retention, Store};

/// 08:00 UTC on 1 March 2026.
pub const START: Timestamp = Timestamp(1_772_352_000_000);

pub struct Harness {
    pub store: MemoryStore,
    pub now: Now,
    pub workers: BTreeMap<&'static str, Worker>,
    /// Runs that were requested and have not ended.
    pub runs: BTreeMap<&'static str, VecDeque<HandlerRun>>,
    /// Runs that the worker asked to cut off.
    pub cuts: Vec<RunId>,
    pub answers: Vec<Result<Option<StateCommit>, CommitError>>,
    pub notes: Vec<Note>,
    pub stopped: Vec<&'static str>,
    /// While set, commits are held back.
    pub hold: bool,
    pub held: Vec<(&'static str, Token, Batch)>,
    pub commits: usize,
    /// Batches that the store refuses as too large, besides those that really are.
    pub narrow: fn(&Batch) -> bool,
    /// The elapsed time of the publisher.
    pub elapsed: Elapsed,
    nonces: u64,
}

pub fn name(text: &str) -> TopicName {
    TopicName::new(text).expect("a sound harness")
}

pub fn key(text: &str) -> TopicKey {
    TopicKey::parse(&format!("default/{text}")).expect("a sound harness")
}

pub fn handler(id: &str, topic: &str) -> HandlerSpec {
    HandlerSpec {
        id: HandlerId::new(id).expect("a sound harness"),
        topic: name(topic),
        priority: 0,
        from: From::Backlog,
        settings: HandlerSettings::default(),
    }
}

pub fn out(topic: &str, payload: &str) -> OutEvent {
    let payload = JsonText::parse(payload).or_else(|_| JsonText::from_value(&payload));
    OutEvent::new(name(topic), payload.expect("a sound harness"))
}

pub fn identity(session: &str) -> WorkerIdentity {
    WorkerIdentity {
        namespace: Namespace::default(),
        session: SessionId::new(session).expect("a sound harness"),
        metadata: BTreeMap::new(),
        boot: None,
    }
}

/// A change that sets one entity.
pub fn ensure(entity: &str, fields: &str) -> StateChanges {
    let identity = Identity::Entity { type_name: "Thing".into(), key: entity.into() };
    let fields = Some(JsonText::parse(fields).expect("a sound harness"));
    StateChanges { intents: vec![Intent { identity, fields, schema: 1 }], ..StateChanges::default() }
}

pub fn failed(text: &str) -> Result<Vec<OutEvent>, RunError> {
    Err(RunError::Failed(text.to_owned()))
}

/// The default configuration without retention, which would disturb tests that count commits.
pub fn config() -> WorkerConfig {
    WorkerConfig { retention_interval_ms: 0, ..WorkerConfig::default() }
}

impl Harness {
    pub fn new() -> Harness {
        Harness {
            store: MemoryStore::new(),
            now: Now { mono: Mono(1), wall: START, steady_since: Mono(0) },
            workers: BTreeMap::new(),
            runs: BTreeMap::new(),
            cuts: Vec::new(),
            answers: Vec::new(),
            notes: Vec::new(),
            stopped: Vec::new(),
            hold: false,
            held: Vec::new(),
            commits: 0,
            narrow: |_| false,
            elapsed: Elapsed::restore(None, None, Now { mono: Mono(1), wall: START, steady_since: Mono(0) }),
            nonces: 0,
        }
    }

    /// A harness with one worker named `a` and these handlers.
    pub fn with(handlers: Vec<HandlerSpec>) -> Harness {
        let mut harness = Harness::new();
        harness.join("a", config(), handlers, Vec::new());
        harness
    }

    pub fn join(
        &mut self,
        who: &'static str,
        config: WorkerConfig,
        handlers: Vec<HandlerSpec>,
        schedules: Vec<ScheduleSpec>,
    ) {
        let worker = Worker::new(config, identity(who), handlers, schedules, self.nonces + 7)
            .expect("a sound harness");
        self.workers.insert(who, worker);
        self.runs.insert(who, VecDeque::new());
        self.input(who, Input::Tick);
    }

    /// The process dies with everything it had in memory.
    pub fn crash(&mut self, who: &'static str) {
        self.workers.remove(who);
        self.runs.remove(who);
        self.held.retain(|(held, _, _)| *held != who);
    }

    pub fn publish(&mut self, event: OutEvent) -> EventId {
        let changes = StateChanges { event: Some(event), ..StateChanges::default() };
        self.nonces += 1;
        let (topics, namespace) = (Topics::default(), Namespace::default());
        let batch = imperative(
            &config(),
            &namespace,
            &topics,
            changes,
            (self.now, &mut self.elapsed),
            self.nonces << 20,
        )
        .expect("a sound harness");
        let outcome = self.store.commit(&[batch]).expect("a sound harness").remove(0);
        let Outcome::Done(done) = outcome else { panic!("{outcome:?}") };
        self.news();
        done.appended[0].id.clone()
    }

    /// A unique number.
    pub fn draw(&mut self) -> u64 {
        self.nonces += 1;
        self.nonces << 20
    }

    pub fn news(&mut self) {
        for who in self.workers.keys().copied().collect::<Vec<_>>() {
            self.input(who, Input::News { topics: None });
        }
    }

    pub fn input(&mut self, who: &'static str, input: Input) {
        let Some(worker) = self.workers.get_mut(who) else { return };
        worker.handle(self.now, input);
        for effect in worker.drain() {
            self.effect(who, effect);
        }
    }

    fn effect(&mut self, who: &'static str, effect: Effect) {
        match effect {
            Effect::Commit { token, batch } if self.hold => self.held.push((who, token, batch)),
            Effect::Commit { token, batch } => self.commit(who, token, &batch),
            Effect::Read { token, query } => {
                let result = Some(self.read(&query));
                self.input(who, Input::ReadDone { token, result });
            }
            Effect::Run(run) => self.runs.entry(who).or_default().push_back(run),
            Effect::Cut { run } => self.cuts.push(run),
            Effect::Answer { result, .. } => self.answers.push(result),
            Effect::Note(note) => self.notes.push(note),
            Effect::Stopped { .. } => self.stopped.push(who),
        }
    }

    fn commit(&mut self, who: &'static str, token: Token, batch: &Batch) {
        assert!(batch.bytes() <= BATCH_BYTES_MAX);
        if (self.narrow)(batch) {
            return self.input(who, Input::TooLarge { token, bytes: batch.bytes(), limit: 7 });
        }
        self.commits += 1;
        let outcome = self.store.commit(std::slice::from_ref(batch)).expect("a sound harness").remove(0);
        self.input(who, Input::Committed { token, outcome });
    }

    /// Commits the batches that are held; batches that follow from them are held again.
    pub fn step(&mut self) {
        for (who, token, batch) in std::mem::take(&mut self.held) {
            self.commit(who, token, &batch);
        }
    }

    pub fn release_commits(&mut self) {
        self.hold = false;
        for (who, token, batch) in std::mem::take(&mut self.held) {
            self.commit(who, token, &batch);
        }
    }

    pub fn read(&self, query: &ReadQuery) -> ReadResult {
        match query {
            ReadQuery::Rows { space, from, to, rows_max } => {
                let range = KeyRange { from: from.clone(), to: Some(to.clone()) };
                let rows = self.store.scan(*space, &range, *rows_max).expect("a sound harness");
                ReadResult::Rows(rows.into_iter().map(|row| (row.key, row.value)).collect())
            }
            ReadQuery::Streams { namespace, .. } => {
                let streams = self.store.streams().expect("a sound harness").into_iter();
                let mine = streams.filter(|bounds| bounds.stream.topic.namespace() == namespace.as_str());
                ReadResult::Streams(
                    mine.map(|b| StreamSpan {
                        stream: b.stream,
                        start: b.start,
                        next: b.next,
                        last_ts: b.last_ts,
                    })
                    .collect(),
                )
            }
            ReadQuery::RetentionStart { stream, older_than, bytes_max } => {
                let rule = Retention { older_than: *older_than, bytes_max: *bytes_max };
                ReadResult::Start(self.store.retention_start(stream, rule).expect("a sound harness"))
            }
        }
    }

    /// Takes the next run of this worker; it stays open until it is finished.
    pub fn next_run(&mut self, who: &'static str) -> HandlerRun {
        self.runs.get_mut(who).and_then(VecDeque::pop_front).expect("a run")
    }

    pub fn waiting_runs(&self, who: &'static str) -> usize {
        self.runs.get(who).map_or(0, VecDeque::len)
    }

    pub fn finish(&mut self, who: &'static str, run: &HandlerRun, result: Result<Vec<OutEvent>, RunError>) {
        self.input(who, Input::Finished { run: run.run, result });
    }

    pub fn ok(&mut self, who: &'static str) -> HandlerRun {
        let run = self.next_run(who);
        self.finish(who, &run, Ok(Vec::new()));
        run
    }

    pub fn fail(&mut self, who: &'static str) -> HandlerRun {
        let run = self.next_run(who);
        self.finish(who, &run, failed("no luck"));
        run
    }

    /// Makes a handler's `commit()` and returns its answer.
    pub fn commit_run(
        &mut self,
        who: &'static str,
        run: &HandlerRun,
        commit: StateChanges,
    ) -> Result<Option<StateCommit>, CommitError> {
        self.input(who, Input::Commit { run: run.run, commit });
        self.answers.pop().expect("an answer")
    }

    /// Lets time pass; workers are woken at their deadlines.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.mono + ms;
        loop {
            let next =
                self.workers.iter().filter_map(|(who, worker)| Some((worker.next_deadline()?, *who))).min();
            let Some((at, who)) = next.filter(|(at, _)| *at <= end) else { break };
            self.to(at.max(self.now.mono));
            self.input(who, Input::Tick);
        }
        self.to(end);
    }

    fn to(&mut self, at: Mono) {
        self.now.wall = self.now.wall + (at.0 - self.now.mono.0);
        self.now.mono = at;
    }

    /// Lets time pass while all runs succeed. Returns how many did.
    pub fn pass_working(&mut self, ms: u64) -> usize {
        let (end, mut done) = (self.now.mono + ms, 0);
        loop {
            for who in self.workers.keys().copied().collect::<Vec<_>>() {
                while self.waiting_runs(who) > 0 {
                    self.ok(who);
                    done += 1;
                }
            }
            let next = self.workers.values().filter_map(Worker::next_deadline).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            let wait = at.0.saturating_sub(self.now.mono.0);
            self.pass(wait);
        }
        self.to(end);
        done
    }

    pub fn rows(&self, space: Space) -> Vec<(String, String)> {
        let rows = self.store.scan(space, &KeyRange::all(), usize::MAX).expect("a sound harness");
        rows.into_iter()
            .map(|row| (row.key, String::from_utf8(row.value.to_vec()).expect("a sound harness")))
            .collect()
    }

    pub fn claims(&self) -> Vec<ClaimRow> {
        let rows = self.store.scan(Space::Claims, &KeyRange::all(), usize::MAX).expect("a sound harness");
        rows.iter().map(|row| ClaimRow::decode(&row.key, &row.value).expect("a sound harness")).collect()
    }

    /// The newest dead letter, with the store's rows about it.
    pub fn letter(&self) -> DeadLetter {
        let (key, value) = self.rows(Space::DeadLetters).pop().expect("a dead letter");
        let value: bytes::Bytes = value.into_bytes().into();
        let row = DeadLetterRow::decode(&key, &value).expect("a sound harness");
        let stream = DeadLetter::stream_of(&Namespace::default(), &row).expect("a sound harness");
        let value_of = |space, wanted: String| {
            let found = self.rows(space).into_iter().find(|(key, _)| *key == wanted);
            found.map(|(_, value)| bytes::Bytes::from(value.into_bytes()))
        };
        let events = self.events(stream.topic.topic());
        DeadLetter {
            event: events.into_iter().find(|event| event.id == row.event_id),
            handler: value_of(Space::Handlers, keys::handler(&Namespace::default(), &row.handler)),
            finished: value_of(Space::Finished, keys::finished(&stream, row.offset, &row.handler)),
            is_open: false,
            key,
            value,
            stream,
            row,
        }
    }

    pub fn finished(&self) -> Vec<FinishedRow> {
        let rows = self.store.scan(Space::Finished, &KeyRange::all(), usize::MAX).expect("a sound harness");
        rows.iter().map(|row| FinishedRow::decode(&row.key, &row.value).expect("a sound harness")).collect()
    }

    pub fn endings(&self) -> Vec<Ending> {
        self.finished().iter().map(|row| row.ending).collect()
    }

    pub fn events(&self, topic: &str) -> Vec<std::sync::Arc<Event>> {
        let limit = ReadLimit { events_max: usize::MAX, bytes_max: usize::MAX };
        let stream = key(topic).stream(Partition(0));
        self.store.read(&stream, Offset::FIRST, limit).expect("a sound harness").events
    }

    pub fn payloads(&self, topic: &str) -> Vec<String> {
        self.events(topic)
            .iter()
            .map(|event| event.body.payload.as_str().trim_matches('"').to_owned())
            .collect()
    }
}
