//! Retention in slices: finds out how far every stream may be forgotten, and forgets it, a bounded number of rows at a
//! time. Used by workers now and then, and by the command line on demand.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    Batch, CursorRow, Durability, HandlerRow, LaneRow, Namespace, Offset, Op, Partition, SessionRow, Space,
    Stream, Timestamp, TopicConfig, TopicKey, TopicRow, keys,
};

use crate::input::{Look, Seen, StreamSpan};

/// What may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepRule {
    pub namespace: Namespace,
    pub now: Timestamp,
    /// Events older than this, of topics that have no retention of their own.
    pub events_before: Timestamp,
    /// Also events that some handler or group has not finished. Their open claims end as lost.
    pub unfinished_too: bool,
    /// Also apply the retention that topics have set themselves.
    pub own_retention: bool,
    /// Also dead letters from before then.
    pub dead_letters_before: Option<Timestamp>,
    /// Rows of sessions that were last alive before then.
    pub sessions_before: Timestamp,
    pub rows_max: usize,
}

/// What to do next. Looks are answered with [`Sweep::seen`]; after a commit just ask for the next step.
#[derive(Clone, Debug, PartialEq)]
pub enum SweepStep {
    Look(Look),
    /// A nonce must be filled in.
    Commit(Batch),
    Done(Swept),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Offsets that were forgotten; with holes in a stream a little more than events.
    pub events: u64,
    pub dead_letters: u64,
    pub sessions: u64,
}

#[derive(Debug)]
pub struct Sweep {
    rule: SweepRule,
    stage: Stage,
    /// Where the next page of rows begins.
    from: String,
    topics: BTreeMap<TopicKey, TopicConfig>,
    /// Handler and the topic it takes.
    handlers: Vec<(String, TopicKey)>,
    /// Nothing at or above this may go.
    floors: BTreeMap<Stream, Offset>,
    lanes: BTreeMap<(String, Stream), Offset>,
    streams: Vec<StreamSpan>,
    ops: Vec<Op>,
    swept: Swept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Reading a table; the next one follows.
    Table(usize),
    Streams,
    /// Where the last of `streams` should start.
    Start,
    /// Rows of finished events of the last of `streams` below this offset.
    Finished(Offset),
    Done,
}

const TABLES: [Space; 7] = [
    Space::Topics,
    Space::Handlers,
    Space::Lanes,
    Space::Claims,
    Space::Cursors,
    Space::Sessions,
    Space::DeadLetters,
];

impl Sweep {
    pub fn new(rule: SweepRule) -> Sweep {
        let from = format!("{}/", rule.namespace);
        Sweep {
            rule,
            stage: Stage::Table(0),
            from,
            topics: BTreeMap::new(),
            handlers: Vec::new(),
            floors: BTreeMap::new(),
            lanes: BTreeMap::new(),
            streams: Vec::new(),
            ops: Vec::new(),
            swept: Swept::default(),
        }
    }

    pub fn step(&mut self) -> SweepStep {
        if !self.ops.is_empty() {
            let ops = std::mem::take(&mut self.ops);
            let (now, durability) = (self.rule.now, Durability::Fsync);
            return SweepStep::Commit(Batch { now, durability, ops, ..Batch::default() });
        }
        let rows_max = self.rule.rows_max;
        match self.stage {
            Stage::Table(at) => SweepStep::Look(Look::Rows {
                space: TABLES[at],
                from: self.from.clone(),
                to: self.table_end(TABLES[at]),
                rows_max,
            }),
            Stage::Streams => {
                let namespace = self.rule.namespace.clone();
                SweepStep::Look(Look::Streams { namespace, topic: None })
            }
            Stage::Start => match self.streams.last() {
                Some(span) => match self.start_rule(&span.stream) {
                    Some((older_than, bytes_max)) => {
                        let stream = span.stream.clone();
                        SweepStep::Look(Look::RetentionStart { stream, older_than, bytes_max })
                    }
                    None => {
                        self.streams.pop();
                        self.step()
                    }
                },
                None => {
                    self.stage = Stage::Done;
                    SweepStep::Done(self.swept)
                }
            },
            Stage::Finished(below) => match self.streams.last() {
                Some(StreamSpan { stream, .. }) => SweepStep::Look(Look::Rows {
                    space: Space::Finished,
                    from: format!("{stream}/"),
                    to: format!("{stream}/{:016x}", below.0),
                    rows_max,
                }),
                None => SweepStep::Done(self.swept),
            },
            Stage::Done => SweepStep::Done(self.swept),
        }
    }

    fn table_end(&self, space: Space) -> String {
        let namespace = &self.rule.namespace;
        match (space, self.rule.dead_letters_before) {
            // Their keys begin with the time.
            (Space::DeadLetters, before) => {
                format!("{namespace}/{:012x}", before.unwrap_or(Timestamp(0)).0)
            }
            _ => format!("{namespace}0"),
        }
    }

    pub fn seen(&mut self, seen: Seen) {
        match (self.stage, seen) {
            (Stage::Table(at), Seen::Rows(rows)) => self.table(at, &rows),
            (Stage::Streams, Seen::Streams(streams)) => {
                self.streams = streams;
                self.set_floors();
                self.stage = Stage::Start;
            }
            (Stage::Start, Seen::Start(start)) => self.start(start),
            (Stage::Finished(_), Seen::Rows(rows)) => self.finished(&rows),
            _ => {}
        }
    }

    fn table(&mut self, at: usize, rows: &[(String, Bytes)]) {
        for (key, value) in rows {
            // A row that cannot be read keeps nothing from going, except where it stands for somebody's place.
            self.row(TABLES[at], key, value);
        }
        if rows.len() >= self.rule.rows_max {
            self.from = rows.last().map_or_else(String::new, |(key, _)| format!("{key}\0"));
            return;
        }
        self.from = format!("{}/", self.rule.namespace);
        self.stage = if at + 1 < TABLES.len() { Stage::Table(at + 1) } else { Stage::Streams };
    }

    fn row(&mut self, space: Space, key: &str, value: &[u8]) {
        match space {
            Space::Topics => {
                if let (Ok(topic), Ok(row)) = (TopicKey::parse(key), TopicRow::decode(key, value)) {
                    self.topics.insert(topic, row.config);
                }
            }
            Space::Handlers => {
                let topic = HandlerRow::decode(key, value).ok().map(|row| row.topic);
                let topic =
                    topic.and_then(|topic| TopicKey::parse(&format!("{}/{topic}", self.rule.namespace)).ok());
                let id = key.split('/').nth(1).map(str::to_owned);
                self.handlers.extend(id.zip(topic));
            }
            Space::Lanes => {
                let parts: Vec<&str> = key.split('/').collect();
                if let [_, handler, topic, partition, "-"] = parts.as_slice() {
                    let next = LaneRow::decode(key, value).map_or(Offset::ZERO, |row| row.unseen_from());
                    if let Some(stream) = self.stream(topic, partition) {
                        self.lanes.insert(((*handler).to_owned(), stream), next);
                    }
                }
            }
            Space::Claims => {
                if let Some((_, stream, offset)) = keys::claim_place(key) {
                    self.floor(stream, offset);
                }
            }
            Space::Cursors => {
                let parts: Vec<&str> = key.split('/').collect();
                if let [_, topic, _, partition] = parts.as_slice() {
                    let next = CursorRow::decode(key, value).map_or(Offset::ZERO, |row| row.committed.next());
                    if let Some(stream) = self.stream(topic, partition) {
                        self.floor(stream, next);
                    }
                }
            }
            Space::Sessions => {
                let alive = SessionRow::decode(key, value)
                    .map(|row| row.stopped.unwrap_or(row.heartbeat).max(row.heartbeat));
                if alive.is_ok_and(|alive| alive < self.rule.sessions_before) {
                    self.swept.sessions += 1;
                    self.ops.push(Op::Delete { space, key: key.to_owned() });
                }
            }
            Space::DeadLetters => {
                self.swept.dead_letters += 1;
                self.ops.push(Op::Delete { space, key: key.to_owned() });
            }
            _ => {}
        }
    }

    fn stream(&self, topic: &str, partition: &str) -> Option<Stream> {
        let topic = TopicKey::parse(&format!("{}/{topic}", self.rule.namespace)).ok()?;
        Some(topic.stream(Partition(partition.parse().ok()?)))
    }

    fn floor(&mut self, stream: Stream, offset: Offset) {
        let floor = self.floors.entry(stream).or_insert(offset);
        *floor = (*floor).min(offset);
    }

    /// A handler that has not looked at a stream yet needs all of it.
    fn set_floors(&mut self) {
        for span in self.streams.clone() {
            for (handler, topic) in self.handlers.clone() {
                if topic == span.stream.topic {
                    let place = (handler, span.stream.clone());
                    let next = self.lanes.get(&place).copied().unwrap_or(Offset::ZERO);
                    self.floor(span.stream.clone(), next);
                }
            }
        }
    }

    /// A topic's own retention wins; a compacted topic keeps what compaction leaves.
    fn start_rule(&self, stream: &Stream) -> Option<(Option<Timestamp>, Option<u64>)> {
        let config = self.topics.get(&stream.topic);
        if config.is_some_and(|config| config.compact) {
            return None;
        }
        let (ms, bytes) = config.map_or((None, None), |config| (config.retention_ms, config.retention_bytes));
        if ms.is_some() || bytes.is_some() {
            let older_than = ms.map(|ms| self.rule.now.saturating_sub(ms));
            return self.rule.own_retention.then_some((older_than, bytes));
        }
        Some((Some(self.rule.events_before), None))
    }

    fn keeps_unfinished(&self, stream: &Stream) -> bool {
        let config = self.topics.get(&stream.topic);
        let own =
            config.is_some_and(|config| config.retention_ms.is_some() || config.retention_bytes.is_some());
        !own && !self.rule.unfinished_too
    }

    fn start(&mut self, found: Offset) {
        let Some(span) = self.streams.last() else { return };
        let floor = self.floors.get(&span.stream).copied().filter(|_| self.keeps_unfinished(&span.stream));
        let start = floor.map_or(found, |floor| found.min(floor)).max(span.start);
        if start > span.start {
            self.swept.events += start.0 - span.start.0;
            self.ops.push(Op::Trim { stream: span.stream.clone(), start });
        }
        self.stage = Stage::Finished(start);
    }

    fn finished(&mut self, rows: &[(String, Bytes)]) {
        self.ops.extend(rows.iter().map(|(key, _)| Op::Delete { space: Space::Finished, key: key.clone() }));
        if rows.len() < self.rule.rows_max {
            self.streams.pop();
            self.stage = Stage::Start;
        }
    }
}
