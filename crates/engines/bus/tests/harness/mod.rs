//! The test harness (`Harness`): an engine with a store in memory, a clock that is moved by hand, and its output as text.

// Each test file uses only a part of the harness.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use millrace_bus::*;
use millrace_model::*;
use millrace_store::{KeyRange, MemoryStore, ReadLimit, Retention, Store};

pub struct Harness {
    pub bus: Bus,
    pub now: Now,
    pub limits: BusLimits,
    /// The machine's boot that the next start finds.
    pub boot: Option<Boot>,
    pub store: MemoryStore,
    /// How many events compaction has removed.
    pub removed: usize,
    /// Commits that were requested and not made yet, while `hold` is set.
    pub held: Vec<(Token, Batch)>,
    pub hold: bool,
    pub commits: usize,
    /// The principal of the requests from here on.
    pub by: Requester,
    /// The schema verdict that the next request brings along.
    pub checked: Option<Box<SchemaVerdict>>,
    /// The schemas in force, as the engine reported them.
    pub schemas: BTreeMap<TopicKey, Arc<TopicSchema>>,
    /// Comparisons with retained events that were requested and not made yet, while `hold_checks` is set.
    pub checks: Vec<(Token, RetainedCheck)>,
    pub hold_checks: bool,
    pub notes: Vec<Note>,
    requests: u64,
    out: Vec<String>,
}

pub fn topic(name: &str) -> TopicKey {
    TopicKey::parse(&format!("default/{name}")).expect("a legal topic")
}

pub fn group(name: &str) -> Group {
    Group::new(name).expect("a legal group")
}

pub fn event(payload: &str) -> NewEvent {
    NewEvent { id: None, body: Arc::new(EventBody::of(JsonText::parse(payload).expect("JSON"))) }
}

pub fn keyed(key: &str, payload: &str) -> NewEvent {
    let body = EventBody { key: Some(key.into()), ..EventBody::of(JsonText::parse(payload).expect("JSON")) };
    NewEvent { id: None, body: Arc::new(body) }
}

pub fn subscription(topic_name: &str, group_name: &str) -> Subscribe {
    Subscribe {
        topic: topic(topic_name),
        group: group(group_name),
        from: None,
        reset: false,
        max_inflight: None,
        ack_mode: Some(AckMode::Cumulative),
        sticky: false,
        filter: Filter::default(),
    }
}

impl Harness {
    pub fn new() -> Harness {
        Harness::with(BusLimits::default())
    }

    pub fn with(limits: BusLimits) -> Harness {
        let now = Now { mono: Mono(0), wall: Timestamp(1_000_000), steady_since: Mono(0) };
        Harness {
            bus: Bus::restore(limits.clone(), Snapshot::default(), now).expect("an empty bus"),
            now,
            limits,
            boot: None,
            store: MemoryStore::new(),
            removed: 0,
            held: Vec::new(),
            hold: false,
            commits: 0,
            by: Requester::Trusted,
            checked: None,
            schemas: BTreeMap::new(),
            checks: Vec::new(),
            hold_checks: false,
            notes: Vec::new(),
            requests: 0,
            out: Vec::new(),
        }
    }

    /// Kills the process and starts it again: only what was committed is left.
    pub fn restart(&mut self) {
        let rows = |space| self.rows(space, &KeyRange::all(), usize::MAX);
        let kv = |key: &str| self.find_row(Space::Kv, key);
        let bounds = self.store.streams().expect("a memory store");
        let snapshot = Snapshot {
            topics: rows(Space::Topics),
            groups: rows(Space::Groups),
            cursors: rows(Space::Cursors),
            attempts: rows(Space::Attempts),
            first_due: [DueBy::Wall, DueBy::Elapsed]
                .into_iter()
                .filter_map(|by| Some((by, keys::due_time(&self.due_rows(by, 1).first()?.0)?)))
                .collect(),
            elapsed: kv(keys::ELAPSED),
            ages: kv(keys::AGES),
            boot: self.boot,
            seed: self.requests,
            newest: bounds
                .iter()
                .filter(|bounds| bounds.next > Offset::FIRST)
                .map(|bounds| bounds.last_ts)
                .max(),
            streams: bounds.into_iter().map(|bounds| (bounds.stream, bounds.start, bounds.next)).collect(),
        };
        self.held.clear();
        self.bus = Bus::restore(self.limits.clone(), snapshot, self.now).expect("rows that were written");
    }

    pub fn open(&mut self, conn: u64) {
        self.input(Input::Open { conn: ConnId(conn), namespace: Namespace::default() });
    }

    pub fn input(&mut self, input: Input) {
        self.bus.handle(self.now, input);
        self.settle();
    }

    pub fn request(&mut self, conn: u64, request: Request) {
        self.requests += 1;
        let to = ReplyTo::Conn { conn: ConnId(conn), request: self.requests };
        let checked = self.checked.take();
        self.input(Input::Request { to, by: self.by.clone(), request, checked });
    }

    pub fn call(&mut self, request: Request) {
        self.requests += 1;
        let (to, checked) = (ReplyTo::Call { call: self.requests }, self.checked.take());
        self.input(Input::Request { to, by: self.by.clone(), request, checked });
    }

    /// Makes a request and returns what `pick` makes of its answer.
    pub fn reply<T>(&mut self, request: Request, pick: impl Fn(Reply) -> Option<T>) -> T {
        self.requests += 1;
        let to = ReplyTo::Call { call: self.requests };
        self.bus.handle(self.now, Input::Request { to, by: self.by.clone(), request, checked: None });
        let replies = self.bus.drain().into_iter().filter_map(|effect| match effect {
            Effect::Reply { reply, .. } => pick(reply),
            _ => None,
        });
        replies.last().expect("an answer at once")
    }

    pub fn publish(&mut self, topic_name: &str, payload: &str) {
        self.publish_event(topic_name, event(payload));
    }

    pub fn publish_event(&mut self, topic_name: &str, event: NewEvent) {
        self.call(Request::Publish(Publish { topic: topic(topic_name), event, deliver_at: None }));
    }

    pub fn ack(&mut self, conn: u64, topic_name: &str, group_name: &str, offset: u64) {
        self.ack_in(conn, topic_name, group_name, 0, offset, false);
    }

    pub fn ack_in(
        &mut self,
        conn: u64,
        topic_name: &str,
        group_name: &str,
        partition: u32,
        offset: u64,
        confirm: bool,
    ) {
        let (topic, group, partition) = (topic(topic_name), group(group_name), Partition(partition));
        self.request(conn, Request::Ack(Ack { topic, partition, group, offset: Offset(offset), confirm }));
    }

    pub fn nack(
        &mut self,
        conn: u64,
        topic_name: &str,
        group_name: &str,
        offset: u64,
        delay_ms: Option<u64>,
    ) {
        let nack = Nack {
            topic: topic(topic_name),
            partition: Partition(0),
            group: group(group_name),
            offset: Offset(offset),
            reason: Some("no".to_owned()),
            delay_ms,
            confirm: false,
        };
        self.request(conn, Request::Nack(nack));
    }

    pub fn give_back(&mut self, conn: u64, topic_name: &str, group_name: &str, offset: u64) {
        let (topic, group, partition) = (topic(topic_name), group(group_name), Partition(0));
        self.request(conn, Request::GiveBack(GiveBack { topic, partition, group, offset: Offset(offset) }));
    }

    /// Lets time pass, waking the engine whenever it asked to be woken.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.mono + ms;
        while let Some(at) = self.bus.next_deadline().filter(|at| *at <= end) {
            let step = at.0.saturating_sub(self.now.mono.0);
            self.advance(step);
            self.settle();
        }
        self.advance(end.0 - self.now.mono.0);
        self.settle();
    }

    fn advance(&mut self, ms: u64) {
        self.now = Now { mono: self.now.mono + ms, wall: self.now.wall + ms, ..self.now };
    }

    pub fn release(&mut self) {
        self.hold = false;
        for (token, batch) in std::mem::take(&mut self.held) {
            let outcome = self.commit(batch);
            self.bus.handle(self.now, Input::Committed { token, outcome });
        }
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            self.bus.settle(self.now);
            let effects = self.bus.drain();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.perform(effect);
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        let input = match effect {
            Effect::Commit { token, batch } if self.hold => {
                self.held.push((token, batch));
                return;
            }
            Effect::Commit { token, batch } => {
                let outcome = self.commit(batch);
                Input::Committed { token, outcome }
            }
            Effect::Read { token, stream, from, events_max, bytes_max } => {
                Input::Page { token, page: Some(self.read(&stream, from, events_max, bytes_max)) }
            }
            Effect::Seek { token, streams, ts } => {
                let seek = |stream: &Stream| self.store.seek(stream, ts).expect("a memory store");
                Input::Found { token, offsets: Some(streams.iter().map(seek).collect()) }
            }
            Effect::FindStart { token, stream, older_than, bytes_max } => {
                let rule = Retention { older_than, bytes_max };
                let start = self.store.retention_start(&stream, rule).expect("a memory store");
                Input::Found { token, offsets: Some(vec![start]) }
            }
            Effect::ScanDue { token, waits, rows_max } => {
                Input::DueRows { token, rows: Some(self.due_rows(waits, rows_max)) }
            }
            Effect::ReadTopic { token, topic } => {
                let bounds = self.store.streams().expect("a memory store");
                let bounds = bounds.into_iter().filter(|bounds| bounds.stream.topic == topic);
                let bounds = bounds
                    .map(|of| LogBounds { stream: of.stream, start: of.start, next: of.next })
                    .collect();
                let row = self.find_row(Space::Topics, topic.as_str());
                let found = row.map(|row| StoredTopic { row, bounds });
                Input::TopicRead { token, found: Some(found) }
            }
            Effect::CheckRetained { token, check } if self.hold_checks => {
                return self.checks.push((token, check));
            }
            Effect::CheckRetained { token, check } => self.check_retained(token, &check),
            Effect::SchemaInForce { topic, schema: Some(schema) } => {
                self.schemas.insert(topic, schema);
                return;
            }
            Effect::SchemaInForce { topic, schema: None } => {
                self.schemas.remove(&topic);
                return;
            }
            Effect::Note(note) => return self.notes.push(note),
            other => return self.out.push(show(&other)),
        };
        self.bus.handle(self.now, input);
    }

    fn read(&self, stream: &Stream, from: Offset, events_max: usize, bytes_max: usize) -> ReadPage {
        let limit = ReadLimit { events_max, bytes_max };
        let page = self.store.read(stream, from, limit).expect("a memory store");
        ReadPage { events: page.events, through: page.through }
    }

    fn check_retained(&self, token: Token, check: &RetainedCheck) -> Input {
        let scan = |from: &str, rows_max| {
            Some(self.rows(Space::Due, &KeyRange { from: from.to_owned(), to: None }, rows_max))
        };
        let read = |stream: &Stream, from, events_max, bytes_max| {
            Some(self.read(stream, from, events_max, bytes_max))
        };
        Input::RetainedChecked { token, outcome: check.run(read, scan) }
    }

    pub fn release_checks(&mut self) {
        self.hold_checks = false;
        for (token, check) in std::mem::take(&mut self.checks) {
            let input = self.check_retained(token, &check);
            self.input(input);
        }
    }

    pub fn commit(&mut self, batch: Batch) -> Outcome {
        self.commits += 1;
        assert!(batch.bytes() <= BATCH_BYTES_MAX, "a batch of {} bytes", batch.bytes());
        for op in &batch.ops {
            if let Op::Remove { offsets, .. } = op {
                self.removed += offsets.len();
            }
        }
        let mut outcomes = self.store.commit(&[batch]).expect("a memory store");
        outcomes.pop().expect("an outcome for each batch")
    }

    fn rows(&self, space: Space, range: &KeyRange, rows_max: usize) -> Vec<(String, Bytes)> {
        let rows = self.store.scan(space, range, rows_max).expect("a memory store");
        rows.into_iter().map(|row| (row.key, row.value)).collect()
    }

    pub fn find_row(&self, space: Space, key: &str) -> Option<Bytes> {
        let range = KeyRange { from: key.to_owned(), to: Some(format!("{key}\0")) };
        self.rows(space, &range, 1).pop().map(|(_, value)| value)
    }

    #[track_caller]
    pub fn row(&self, space: Space, key: &str) -> Bytes {
        self.find_row(space, key).unwrap_or_else(|| panic!("there is no row {key}"))
    }

    /// Writes a row as nobody should.
    pub fn put_row(&mut self, space: Space, key: &str, value: Bytes) {
        self.store_alone(Op::Put { space, key: key.to_owned(), value });
    }

    pub fn delete_row(&mut self, space: Space, key: &str) {
        self.store_alone(Op::Delete { space, key: key.to_owned() });
    }

    fn store_alone(&mut self, op: Op) {
        let batch = Batch { nonce: 99, now: self.now.wall, ops: vec![op], ..Batch::default() };
        self.store.commit(&[batch]).expect("a memory store");
    }

    /// The rows of all tables that the bus writes.
    pub fn tables(&self) -> BTreeMap<(Space, String), Bytes> {
        let spaces = [
            Space::Topics,
            Space::Groups,
            Space::Cursors,
            Space::Attempts,
            Space::Due,
            Space::DueIds,
            Space::Kv,
        ];
        let all =
            |space| self.rows(space, &KeyRange::all(), usize::MAX).into_iter().map(move |row| (space, row));
        spaces.into_iter().flat_map(all).map(|(space, (key, value))| ((space, key), value)).collect()
    }

    pub fn count_rows(&self, space: Space) -> usize {
        self.rows(space, &KeyRange::all(), usize::MAX).len()
    }

    /// The events that are stored, of all streams.
    pub fn logs(&self) -> BTreeMap<Stream, Vec<Arc<Event>>> {
        let streams = self.store.streams().expect("a memory store");
        streams.into_iter().map(|bounds| (bounds.stream.clone(), self.log_of(&bounds.stream))).collect()
    }

    pub fn log(&self, topic_name: &str) -> Vec<Arc<Event>> {
        self.log_of(&topic(topic_name).stream(Partition(0)))
    }

    /// Where the log of a topic starts.
    pub fn start(&self, topic_name: &str) -> Offset {
        let stream = topic(topic_name).stream(Partition(0));
        let bounds = self.store.streams().expect("a memory store");
        bounds.iter().find(|bounds| bounds.stream == stream).map_or(Offset::FIRST, |bounds| bounds.start)
    }

    pub fn log_of(&self, stream: &Stream) -> Vec<Arc<Event>> {
        self.read(stream, Offset::FIRST, usize::MAX, usize::MAX).events
    }

    /// The payloads of the events that are stored, of all streams.
    pub fn payloads(&self) -> Vec<String> {
        self.logs().values().flatten().map(|event| event.body.payload.as_str().to_owned()).collect()
    }

    fn due_rows(&self, by: DueBy, rows_max: usize) -> Vec<(String, Bytes)> {
        let (from, to) = by.key_range();
        let range = KeyRange { from: from.to_owned(), to: to.map(str::to_owned) };
        self.rows(Space::Due, &range, rows_max)
    }

    pub fn incarnation_of(&self, topic: &TopicKey) -> Option<u64> {
        TopicRow::incarnation_of(&self.find_row(Space::Topics, &keys::topic(topic))?)
    }

    /// Returns the output since the last call, one line each.
    pub fn out(&mut self) -> Vec<String> {
        std::mem::take(&mut self.out)
    }

    #[track_caller]
    pub fn expect(&mut self, lines: &[&str]) {
        assert_eq!(self.out(), lines);
    }

    pub fn committed(&mut self, topic_name: &str, group_name: &str, partition: u32) -> u64 {
        let before = self.out();
        self.call(Request::Offsets { topic: topic(topic_name) });
        let line = self.out().pop().unwrap_or_default();
        self.out = before;
        let marker = format!("{partition}/{group_name}=");
        let at = line.find(&marker).unwrap_or_else(|| panic!("no {marker} in {line}"));
        line[at + marker.len()..].split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
    }
}

fn show(effect: &Effect) -> String {
    match effect {
        Effect::Deliver { conn, group, event, attempts } => {
            let again = if *attempts > 1 { format!(" attempt {attempts}") } else { String::new() };
            let (topic, at) = (event.stream.topic.topic(), event.stream.partition);
            format!(
                "{}<- {group} {topic}/{at}/{} {}{again}",
                conn.0,
                event.offset,
                event.body.payload.as_str()
            )
        }
        Effect::Reply { reply, .. } => match reply {
            Reply::Published { at: Some((partition, offset)), .. } => {
                format!("published {partition}/{offset}")
            }
            Reply::Published { due, .. } => format!("delayed to {}", due.unwrap_or_default().0),
            Reply::PublishedBatch { offsets, .. } => {
                let places: Vec<_> = offsets.iter().map(|(p, o)| format!("{p}/{o}")).collect();
                format!("published {}", places.join(" "))
            }
            Reply::Subscribed { partitions, .. } => format!("subscribed {}", places(partitions)),
            Reply::Sought { partitions, .. } => format!("sought {}", places(partitions)),
            Reply::Offsets(view) => {
                let cursors = view.partitions.iter().flat_map(|(log, groups)| {
                    groups.iter().map(move |(name, g)| {
                        format!("{}/{name}={} lag {}", log.partition, g.committed, g.lag)
                    })
                });
                format!("offsets {} ", cursors.collect::<Vec<_>>().join(" "))
            }
            Reply::Refused(error) => format!("refused {}: {error}", error.code().as_str()),
            Reply::Unsubscribed { .. } => "unsubscribed".to_owned(),
            Reply::Acked => "acked".to_owned(),
            Reply::Nacked => "nacked".to_owned(),
            Reply::FlowAdded => "flow".to_owned(),
            Reply::Topic { created, topic } => {
                let schema = topic.schema.as_ref().map(show_schema).unwrap_or_default();
                format!("topic {} created={created}{schema}", topic.topic.topic())
            }
            Reply::TopicDeleted { topic } => format!("deleted {}", topic.topic()),
            Reply::GroupPaused { topic, group, paused } => {
                format!("paused {} {group} {paused}", topic.topic())
            }
            other => format!("{other:?}"),
        },
        Effect::Notice { conn, error, .. } => format!("{}! {error}", conn.0),
        Effect::Stopped => "stopped".to_owned(),
        other => format!("{other:?}"),
    }
}

fn show_schema(schema: &SchemaView) -> String {
    let range =
        |range: &CheckedRange| format!(" checked {}/{}-{}", range.partition, range.from, range.through);
    let mut checked: String = schema.checked.ranges.iter().map(range).collect();
    if schema.checked.delayed > 0 {
        checked += &format!(" and {} delayed", schema.checked.delayed);
    }
    schema
        .version
        .map_or_else(|| " without schema".to_owned(), |version| format!(" schema {version}{checked}"))
}

fn places(partitions: &[(Partition, Offset)]) -> String {
    partitions.iter().map(|(p, o)| format!("{p}/{o}")).collect::<Vec<_>>().join(" ")
}
