//! The test harness (`Harness`): an engine with a store of plain maps, a clock that is moved by hand, and its output as
//! text.

// Each test file uses only a part of the harness.
#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use millrace_bus::*;
use millrace_model::*;

pub struct Harness {
    pub bus: Bus,
    pub now: Now,
    pub limits: BusLimits,
    /// The machine's boot that the next start finds.
    pub boot: Option<Boot>,
    pub tables: BTreeMap<(Space, String), Bytes>,
    pub logs: BTreeMap<Stream, Vec<Arc<Event>>>,
    pub starts: BTreeMap<Stream, Offset>,
    pub removed: BTreeSet<(Stream, Offset)>,
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
            tables: BTreeMap::new(),
            logs: BTreeMap::new(),
            starts: BTreeMap::new(),
            removed: BTreeSet::new(),
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
        let rows = |space| {
            let rows = self.tables.iter().filter(|((at, _), _)| *at == space);
            rows.map(|((_, key), value)| (key.clone(), value.clone())).collect::<Vec<_>>()
        };
        let streams = self.logs.iter().map(|(stream, log)| {
            let start = self.starts.get(stream).copied().unwrap_or(Offset::FIRST);
            (stream.clone(), start, Offset(log.len() as u64 + 1))
        });
        let snapshot = Snapshot {
            topics: rows(Space::Topics),
            groups: rows(Space::Groups),
            cursors: rows(Space::Cursors),
            tries: rows(Space::Attempts),
            first_due: [DueBy::Wall, DueBy::Elapsed]
                .into_iter()
                .filter_map(|by| Some((by, keys::due_time(&self.due_rows(by, 1).first()?.0)?)))
                .collect(),
            elapsed: self.tables.get(&(Space::Kv, keys::ELAPSED.to_owned())).cloned(),
            ages: self.tables.get(&(Space::Kv, keys::AGES.to_owned())).cloned(),
            boot: self.boot,
            seed: self.requests,
            newest: self.logs.values().filter_map(|log| log.last()).map(|event| event.ts).max(),
            streams: streams.collect(),
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
            Effect::Read { token, stream, from, events_max, .. } => {
                Input::Page { token, page: Some(self.read(&stream, from, events_max)) }
            }
            Effect::Seek { token, streams, ts } => {
                let seek = |stream: &Stream| {
                    let log = self.logs.get(stream).map_or(&[][..], |log| log);
                    log.iter()
                        .find(|event| event.ts >= ts)
                        .map_or(Offset(log.len() as u64 + 1), |event| event.offset)
                };
                Input::Found { token, offsets: Some(streams.iter().map(seek).collect()) }
            }
            Effect::FindStart { token, stream, older_than, .. } => {
                let log = self.logs.get(&stream).map_or(&[][..], |log| log);
                let cut = older_than.unwrap_or_default();
                let next = Offset(log.len() as u64 + 1);
                let start = log.iter().find(|event| event.ts >= cut).map_or(next, |event| event.offset);
                Input::Found { token, offsets: Some(vec![start]) }
            }
            Effect::ScanDue { token, waits, rows_max } => {
                Input::DueRows { token, rows: Some(self.due_rows(waits, rows_max)) }
            }
            Effect::ReadTopic { token, topic } => {
                let row = self.tables.get(&(Space::Topics, topic.as_str().to_owned()));
                let reaches =
                    self.logs.iter().filter(|(stream, _)| stream.topic == topic).map(|(stream, log)| Reach {
                        stream: stream.clone(),
                        start: self.starts.get(stream).copied().unwrap_or(Offset::FIRST),
                        next: Offset(log.len() as u64 + 1),
                    });
                let found = row.map(|row| StoredTopic { row: row.clone(), reaches: reaches.collect() });
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

    fn read(&self, stream: &Stream, from: Offset, events_max: usize) -> ReadPage {
        let log = self.logs.get(stream).cloned().unwrap_or_default();
        let start = self.starts.get(stream).copied().unwrap_or(Offset::FIRST).max(from);
        let there = |event: &Arc<Event>| {
            event.offset >= start && !self.removed.contains(&(stream.clone(), event.offset))
        };
        let events: Vec<_> = log.into_iter().filter(there).take(events_max).collect();
        let through = events.last().map_or(from, |event| event.offset);
        ReadPage { events, through }
    }

    fn check_retained(&self, token: Token, check: &RetainedCheck) -> Input {
        let scan = |from: &str, rows_max| {
            let rows = self.tables.range((Space::Due, from.to_owned())..);
            let rows = rows.take_while(|((space, _), _)| *space == Space::Due).take(rows_max);
            Some(rows.map(|((_, key), value)| (key.clone(), value.clone())).collect())
        };
        let read = |stream: &Stream, from, events_max, _| Some(self.read(stream, from, events_max));
        let outcome = check.run(read, scan);
        Input::RetainedChecked { token, outcome }
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
        for (at, check) in batch.checks.iter().enumerate() {
            let found = match check {
                Check::Absent { space, key } => self.tables.get(&(*space, key.clone())).cloned().map(Some),
                Check::Present { space, key } => {
                    (!self.tables.contains_key(&(*space, key.clone()))).then_some(None)
                }
                Check::Incarnation { topic, incarnation } => {
                    (self.incarnation_of(topic) != Some(*incarnation)).then_some(None)
                }
                Check::IdTaken(TakenId { topic, id, dedupe_window_ms }) => {
                    let taken = self.taken(topic, id, *dedupe_window_ms, batch.now);
                    taken.is_none().then_some(None)
                }
                _ => panic!("a check the bus does not use"),
            };
            if let Some(found) = found {
                return Outcome::Refused(Refusal { check: at, found });
            }
        }
        let (mut appended, mut kept) = (Vec::new(), false);
        for op in batch.ops {
            match op {
                Op::Append(append) => {
                    appended.push(self.append(append, batch.now, batch.nonce, appended.len() as u32));
                }
                Op::Delay(delay) => appended.push(self.delay(delay, batch.now)),
                Op::Put { space, key, value } => {
                    let standing = self.tables.get(&(space, key.clone())).filter(|_| space == Space::Topics);
                    let incarnation = standing.and_then(|row| TopicRow::incarnation_of(row));
                    let row = TopicRow::decode(&key, &value).ok();
                    let other =
                        incarnation.zip(row).filter(|(incarnation, row)| row.incarnation != *incarnation);
                    kept |= other.is_some();
                    let value =
                        other.map_or(value, |(incarnation, row)| TopicRow { incarnation, ..row }.encode());
                    self.tables.insert((space, key), value);
                }
                Op::PutNew { space, key, value } => {
                    self.tables.entry((space, key)).or_insert(value);
                }
                Op::Claim(_) | Op::Reconcile(_) => {
                    panic!("an operation the bus does not use")
                }
                Op::Delete { space, key } => {
                    self.tables.remove(&(space, key));
                }
                Op::Trim { stream, start } => {
                    self.starts.insert(stream, start);
                }
                Op::Remove { stream, offsets, compacted_to } => {
                    assert!(offsets.iter().all(|offset| *offset < compacted_to));
                    self.removed.extend(offsets.into_iter().map(|offset| (stream.clone(), offset)));
                }
                Op::Drop { topic } => {
                    self.logs.retain(|stream, _| stream.topic != topic);
                    self.starts.retain(|stream, _| stream.topic != topic);
                    self.removed.retain(|(stream, _)| stream.topic != topic);
                }
            }
        }
        Outcome::Done(Done { incarnation_kept: kept, ..appended.into() })
    }

    fn append(&mut self, append: Append, now: Timestamp, nonce: u64, ordinal: u32) -> Appended {
        let Append { stream, event, dedupe_window_ms } = append;
        if let Some(id) = &event.id
            && let Some(first) = self.taken(&stream.topic, id, dedupe_window_ms, now)
        {
            return first;
        }
        let log = self.logs.entry(stream.clone()).or_default();
        let offset = Offset(log.len() as u64 + 1);
        let id = event.id.unwrap_or_else(|| EventId::mint(now, nonce, ordinal));
        let partition = stream.partition;
        log.push(Arc::new(Event { stream, offset, ts: now, id: id.clone(), body: event.body }));
        Appended { partition, offset, ts: now, id, duplicate: false, due: None }
    }

    fn due_rows(&self, by: DueBy, rows_max: usize) -> Vec<(String, Bytes)> {
        let (from, to) = by.key_range();
        let mine = |key: &str| key >= from && to.is_none_or(|to| key < to);
        let rows = self.tables.iter().filter(|((space, key), _)| *space == Space::Due && mine(key));
        rows.take(rows_max).map(|((_, key), value)| (key.clone(), value.clone())).collect()
    }

    fn delay(&mut self, delay: Delay, now: Timestamp) -> Appended {
        let Delay { topic, id, dedupe_window_ms, due, key, row } = delay;
        let incarnation = self.incarnation_of(&topic).unwrap_or_default();
        if let Some(first) = self.taken(&topic, &id, dedupe_window_ms, now) {
            return first;
        }
        if dedupe_window_ms > 0 {
            let held = format!("{key} {}", due.0);
            self.tables.insert((Space::DueIds, keys::due_id(&topic, incarnation, &id)), held.into());
        }
        self.tables.insert((Space::Due, key), DueRow { incarnation, ..*row }.encode());
        waiting(id, now, due, false)
    }

    pub fn incarnation_of(&self, topic: &TopicKey) -> Option<u64> {
        TopicRow::incarnation_of(self.tables.get(&(Space::Topics, keys::topic(topic)))?)
    }

    fn taken(&self, topic: &TopicKey, id: &EventId, window_ms: u64, now: Timestamp) -> Option<Appended> {
        if window_ms == 0 {
            return None;
        }
        let since = now.saturating_sub(window_ms);
        let all = self.logs.values().flatten();
        let first = all.filter(|e| e.stream.topic == *topic && e.ts >= since).find(|e| e.id == *id);
        if let Some(e) = first {
            let (partition, offset, ts) = (e.stream.partition, e.offset, e.ts);
            return Some(Appended { partition, offset, ts, id: id.clone(), duplicate: true, due: None });
        }
        let row = self.tables.get(&(Space::DueIds, keys::due_id(topic, self.incarnation_of(topic)?, id)))?;
        let (key, due) = std::str::from_utf8(row).ok()?.split_once(' ')?;
        let (key, due) = (key.to_owned(), Timestamp(due.parse().ok()?));
        self.tables.contains_key(&(Space::Due, key)).then(|| waiting(id.clone(), now, due, true))
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

fn waiting(id: EventId, now: Timestamp, due: Timestamp, duplicate: bool) -> Appended {
    let (partition, offset) = (Partition(0), Offset::ZERO);
    Appended { partition, offset, ts: now, id, duplicate, due: Some(due) }
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
            Reply::Written => "written".to_owned(),
            Reply::Acked => "acked".to_owned(),
            Reply::Nacked => "nacked".to_owned(),
            Reply::FlowAdded => "flow".to_owned(),
            Reply::Topic { created, topic } => {
                let schema = topic.schema.as_ref().map(show_schema).unwrap_or_default();
                format!("topic {} created={created}{schema}", topic.topic.topic())
            }
            Reply::TopicDeleted { topic } => format!("deleted {}", topic.topic()),
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
