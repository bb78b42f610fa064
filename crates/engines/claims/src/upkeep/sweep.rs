//! Retention, in steps: finds out how far every stream may be trimmed, and trims it, a bounded number of rows at a
//! time. Used by workers at intervals, and by the command line on demand.
//!
//! Other processes work meanwhile, so what was read must stay true until it is acted on. A handler's lane (its position
//! in a stream) only moves forward: an old position keeps too much, never too little. An open claim moves back and
//! forth in its table as it is released and claimed again, so all claims of one handler are read at once, after its
//! lanes. A handler that registers in between changes a mark in the store, which every trim checks.
//!
//! A topic that no handler and no group has asked for keeps its events, however old: its handler may be deployed later.
//! The exception is `event.dead_letter`, which Millrace itself writes: it is not kept for a handler that may never
//! come.

mod rows;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_model::{
    Batch, Check, Durability, Namespace, Offset, Op, Space, Stream, Timestamp, TopicConfig, TopicKey, keys,
};

use crate::commits::action::DEAD_LETTER_TOPIC;
use crate::interface::input::{ReadQuery, ReadResult, StreamSpan};

/// Open claims of one handler that are read. With more of them everything is kept: the retention of events waits until
/// the handler has caught up.
const CLAIMS_MAX: usize = 50_000;

/// Rows of one step, whatever the rule says: their removal must fit into a batch.
const ROWS_MAX: usize = 10_000;

/// The rule of what a sweep may remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepRule {
    pub namespace: Namespace,
    pub now: Timestamp,
    /// Remove events older than this, of topics without retention settings of their own.
    pub events_before: Timestamp,
    /// Also remove events that some handler or group has not finished, and events that nobody has asked for. Open
    /// claims on them end as lost.
    pub unfinished_too: bool,
    /// Also apply the retention settings of topics.
    pub own_retention: bool,
    /// Also remove dead letters from before this time.
    pub dead_letters_before: Option<Timestamp>,
    /// Remove rows of sessions that were last alive before this time.
    pub sessions_before: Timestamp,
    pub rows_max: usize,
}

/// The next step for the caller. Answer a read with [`Sweep::on_read`]; after a commit just ask for the next step.
#[derive(Clone, Debug, PartialEq)]
pub enum SweepStep {
    Read(ReadQuery),
    /// The caller fills in a nonce. If the batch is refused, call [`Sweep::refused`].
    Commit(Batch),
    Done(Swept),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Trimmed offsets; if a stream has holes, a little more than events.
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
    /// The mark of handler registrations, as it was before anything else was read.
    mark: Option<Bytes>,
    /// Handlers, each with the topic it takes.
    handlers: Vec<(String, TopicKey)>,
    /// Handlers that may have claims, including those whose row cannot be read.
    claimants: Vec<String>,
    /// Topics that a handler takes or a group reads.
    wanted: BTreeSet<TopicKey>,
    /// Some handler has too many claims to read them all.
    too_many_claims: bool,
    /// Per stream: nothing at or above this offset may be removed.
    floors: BTreeMap<Stream, Offset>,
    lanes: BTreeMap<(String, Stream), Offset>,
    streams: Vec<StreamSpan>,
    ops: Vec<Op>,
    swept: Swept,
    /// How many events the trim under way adds to `swept`.
    trimming: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Mark,
    /// Reading a table; the next one follows.
    Table(usize),
    /// Reading the claims of the handler at this index of `claimants`.
    Claims(usize),
    Streams,
    /// Asking where the last of `streams` should start.
    Start,
    /// Removing rows of finished events of the last of `streams`, below this offset.
    Finished(Offset),
    Done,
}

const TABLES: [Space; 6] =
    [Space::Topics, Space::Handlers, Space::Lanes, Space::Cursors, Space::Sessions, Space::DeadLetters];

impl Sweep {
    pub fn new(rule: SweepRule) -> Sweep {
        let rule = SweepRule { rows_max: rule.rows_max.min(ROWS_MAX), ..rule };
        let from = format!("{}/", rule.namespace);
        Sweep {
            rule,
            stage: Stage::Mark,
            from,
            topics: BTreeMap::new(),
            mark: None,
            handlers: Vec::new(),
            claimants: Vec::new(),
            wanted: BTreeSet::new(),
            too_many_claims: false,
            floors: BTreeMap::new(),
            lanes: BTreeMap::new(),
            streams: Vec::new(),
            ops: Vec::new(),
            swept: Swept::default(),
            trimming: 0,
        }
    }

    /// A handler has registered that the sweep does not know: everything is read again.
    pub fn refused(&mut self) {
        let swept = Swept { events: self.swept.events - self.trimming, ..self.swept };
        *self = Sweep { swept, ..Sweep::new(self.rule.clone()) };
    }

    /// Holds as long as no handler has registered since the mark was read.
    fn no_new_handler(&self) -> Check {
        let (space, key) = (Space::Kv, keys::handlers_mark(&self.rule.namespace));
        match self.mark.clone() {
            Some(value) => Check::Equals { space, key, value },
            None => Check::Absent { space, key },
        }
    }

    pub fn step(&mut self) -> SweepStep {
        if !self.ops.is_empty() {
            let ops = std::mem::take(&mut self.ops);
            let trims = ops.iter().any(|op| matches!(op, Op::Trim { .. }));
            let checks = if trims { vec![self.no_new_handler()] } else { Vec::new() };
            let (now, durability) = (self.rule.now, Durability::Fsync);
            return SweepStep::Commit(Batch { now, durability, checks, ops, ..Batch::default() });
        }
        self.trimming = 0;
        let rows_max = self.rule.rows_max;
        match self.stage {
            Stage::Mark => {
                let from = keys::handlers_mark(&self.rule.namespace);
                let to = format!("{from}\0");
                SweepStep::Read(ReadQuery::Rows { space: Space::Kv, from, to, rows_max: 1 })
            }
            Stage::Claims(at) => match self.claimants.get(at) {
                Some(handler) => {
                    let from = format!("{}/{handler}/", self.rule.namespace);
                    let to = format!("{}/{handler}0", self.rule.namespace);
                    SweepStep::Read(ReadQuery::Rows { space: Space::Claims, from, to, rows_max: CLAIMS_MAX })
                }
                None => {
                    self.stage = Stage::Streams;
                    self.step()
                }
            },
            Stage::Table(at) => SweepStep::Read(ReadQuery::Rows {
                space: TABLES[at],
                from: self.from.clone(),
                to: self.table_end(TABLES[at]),
                rows_max,
            }),
            Stage::Streams => {
                let namespace = self.rule.namespace.clone();
                SweepStep::Read(ReadQuery::Streams { namespace, topic: None })
            }
            Stage::Start => match self.streams.last() {
                Some(span) => match self.start_rule(&span.stream) {
                    Some((older_than, bytes_max)) => {
                        let stream = span.stream.clone();
                        SweepStep::Read(ReadQuery::RetentionStart { stream, older_than, bytes_max })
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
                Some(StreamSpan { stream, .. }) => SweepStep::Read(ReadQuery::Rows {
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
            // Keys of dead letters begin with the time.
            (Space::DeadLetters, before) => {
                format!("{namespace}/{:012x}", before.unwrap_or(Timestamp(0)).0)
            }
            _ => format!("{namespace}0"),
        }
    }

    pub fn on_read(&mut self, result: ReadResult) {
        match (self.stage, result) {
            (Stage::Mark, ReadResult::Rows(rows)) => {
                self.mark = rows.into_iter().next().map(|(_, value)| value);
                self.stage = Stage::Table(0);
            }
            (Stage::Claims(at), ReadResult::Rows(rows)) => {
                self.too_many_claims |= rows.len() >= CLAIMS_MAX;
                for (_, stream, offset) in rows.iter().filter_map(|(key, _)| keys::claim_place(key)) {
                    self.floor(stream, offset);
                }
                self.stage = Stage::Claims(at + 1);
            }
            (Stage::Table(at), ReadResult::Rows(rows)) => self.on_table_rows(at, &rows),
            (Stage::Streams, ReadResult::Streams(streams)) => {
                self.streams = streams;
                self.set_floors();
                self.stage = Stage::Start;
            }
            (Stage::Start, ReadResult::Start(start)) => self.on_retention_start(start),
            (Stage::Finished(_), ReadResult::Rows(rows)) => self.on_finished_rows(&rows),
            _ => {}
        }
    }

    /// Returns the rule for where a stream should start; `None` if it keeps everything. A topic's own retention wins; a
    /// compacted topic keeps what compaction leaves.
    fn start_rule(&self, stream: &Stream) -> Option<(Option<Timestamp>, Option<u64>)> {
        let config = self.topics.get(&stream.topic);
        // Events about dead letters are notices of Millrace itself: they do not wait for a future handler.
        let is_awaited = stream.topic.topic() != DEAD_LETTER_TOPIC && !self.wanted.contains(&stream.topic);
        let needed = self.too_many_claims || is_awaited;
        if needed && self.keeps_unfinished(stream) || config.is_some_and(|config| config.compact) {
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

    fn on_retention_start(&mut self, found: Offset) {
        let Some(span) = self.streams.last() else { return };
        let floor = self.floors.get(&span.stream).copied().filter(|_| self.keeps_unfinished(&span.stream));
        let start = floor.map_or(found, |floor| found.min(floor)).max(span.start);
        if start > span.start {
            self.trimming = start.0 - span.start.0;
            self.swept.events += self.trimming;
            self.ops.push(Op::Trim { stream: span.stream.clone(), start });
        }
        self.stage = Stage::Finished(start);
    }

    fn on_finished_rows(&mut self, rows: &[(String, Bytes)]) {
        self.ops.extend(rows.iter().map(|(key, _)| Op::Delete { space: Space::Finished, key: key.clone() }));
        if rows.len() < self.rule.rows_max {
            self.streams.pop();
            self.stage = Stage::Start;
        }
    }
}
