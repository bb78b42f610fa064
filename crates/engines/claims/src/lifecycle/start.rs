//! The start and the end of a session: what it reads first, how it registers, and how it stops.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    AgesRow, Check, ClaimRow, Elapsed, ElapsedRow, HandlerRow, LaneRow, Mono, Now, Offset, Op, SessionRow,
    Space, Timestamp, keys,
};

use crate::commits::action::{Action, FollowUp};
use crate::commits::batch_builder::Topics;
use crate::interface::effect::{Effect, Note};
use crate::interface::input::{ReadQuery, ReadResult, StreamSpan, Token};
use crate::interface::spec::From;
use crate::worker::{Pending, Phase, Worker};

/// Topics, handlers and schedules of a namespace that a session reads at once; it learns of further ones as it meets
/// them.
const ROWS_MAX: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NamespaceRead {
    Topics,
    Handlers,
    Schedules,
    Streams,
    Elapsed,
    /// The anchor from which ages were last counted.
    Ages,
}

impl NamespaceRead {
    /// Everything that a session must read before it can work.
    const ALL: [NamespaceRead; 6] = [
        NamespaceRead::Topics,
        NamespaceRead::Handlers,
        NamespaceRead::Schedules,
        NamespaceRead::Streams,
        NamespaceRead::Elapsed,
        NamespaceRead::Ages,
    ];
}

/// The results of the reads so far.
#[derive(Debug, Default)]
pub(crate) struct Startup {
    wanted: Vec<NamespaceRead>,
    under_way: usize,
    retry_at: Option<Mono>,
    handlers: BTreeMap<String, Bytes>,
    streams: Vec<StreamSpan>,
    ages: Option<AgesRow>,
}

impl Startup {
    pub(crate) fn retry_at(&self) -> Option<Mono> {
        self.retry_at
    }
}

impl Worker {
    pub(crate) fn start_up(&mut self, now: Now) {
        self.phase = Phase::Starting;
        self.began = now.wall;
        self.startup.wanted = NamespaceRead::ALL.to_vec();
        self.start_wanted_reads();
    }

    fn start_wanted_reads(&mut self) {
        self.startup.retry_at = None;
        for read in std::mem::take(&mut self.startup.wanted) {
            self.startup.under_way += 1;
            self.start_read(read);
        }
    }

    fn start_read(&mut self, read: NamespaceRead) {
        let namespace = &self.identity.namespace;
        let rows = |space| ReadQuery::Rows {
            space,
            from: [namespace.as_str(), "/"].concat(),
            // The character after the slash ends the range.
            to: [namespace.as_str(), "0"].concat(),
            rows_max: ROWS_MAX,
        };
        let setting = |key: &str| {
            let (from, to) = (key.to_owned(), [key, "\0"].concat());
            ReadQuery::Rows { space: Space::Kv, from, to, rows_max: 1 }
        };
        let query = match read {
            NamespaceRead::Topics => rows(Space::Topics),
            NamespaceRead::Handlers => rows(Space::Handlers),
            NamespaceRead::Schedules => rows(Space::Schedules),
            NamespaceRead::Streams => ReadQuery::Streams { namespace: namespace.clone(), topic: None },
            NamespaceRead::Elapsed => setting(keys::ELAPSED),
            NamespaceRead::Ages => setting(keys::AGES),
        };
        let token = self.token(Pending::NamespaceRead(read));
        self.effects.push(Effect::Read { token, query });
    }

    pub(crate) fn on_read(&mut self, now: Now, token: Token, result: Option<ReadResult>) {
        match self.pending.remove(&token) {
            Some(Pending::NamespaceRead(read)) => self.on_namespace_read(now, read, result),
            Some(Pending::FirstClaim(handler)) => self.on_first_claim(handler, result),
            Some(Pending::Stranded(handler)) => self.on_stranded_rows(now, handler, result),
            Some(Pending::DueRead(by, what)) => self.on_due_rows(now, by, what, result),
            Some(Pending::SweepRead) => self.on_sweep_read(now, result),
            Some(other) => {
                self.pending.insert(token, other);
            }
            None => {}
        }
    }

    /// Reads when the first of a handler's open claims, of any session, is due. In order of keys, claims that were due
    /// at the handler's own claim and were not taken wait for other events of their key: time alone does not make them
    /// ready, so they are left out.
    pub(crate) fn read_first_claim(&mut self, handler: usize, claimed_at: Timestamp) {
        let (namespace, handler_state) = (self.identity.namespace.as_str(), &self.handlers[handler]);
        let all = keys::claims_of(namespace, &handler_state.spec.id);
        let to = [all.trim_end_matches('/'), "0"].concat();
        let from = match handler_state.is_ordered() {
            true => keys::claims_end(namespace, &handler_state.spec.id, claimed_at),
            false => all,
        };
        let query = ReadQuery::Rows { space: Space::Claims, from, to, rows_max: 1 };
        let token = self.token(Pending::FirstClaim(handler));
        self.effects.push(Effect::Read { token, query });
    }

    fn on_first_claim(&mut self, handler: usize, result: Option<ReadResult>) {
        let Some(ReadResult::Rows(rows)) = result else { return };
        let due = rows.first().and_then(|(key, value)| ClaimRow::decode(key, value).ok()).map(|row| row.due);
        if let Some(due) = due {
            self.handlers[handler].ready_again_at(due);
        }
    }

    fn on_namespace_read(&mut self, now: Now, read: NamespaceRead, result: Option<ReadResult>) {
        let starting = self.phase == Phase::Starting;
        if starting {
            self.startup.under_way -= 1;
        }
        match (read, result) {
            (NamespaceRead::Topics, Some(ReadResult::Rows(rows))) => self.on_topic_rows(rows),
            (NamespaceRead::Handlers, Some(ReadResult::Rows(rows))) => {
                self.on_handler_rows(now, &rows);
                self.startup.handlers = rows.into_iter().collect();
            }
            (NamespaceRead::Schedules, Some(ReadResult::Rows(rows))) => self.on_schedule_rows(now, &rows),
            (NamespaceRead::Elapsed, Some(ReadResult::Rows(rows))) => {
                // Without a readable row, waiting delays are counted by the wall clock.
                let row = rows.first().and_then(|(key, value)| ElapsedRow::decode(key, value).ok());
                match row {
                    Some(row) if !starting => self.elapsed.meet(row, now),
                    None if !starting => {}
                    row => self.elapsed = Elapsed::restore(row, self.identity.boot, now),
                }
            }
            (NamespaceRead::Streams, Some(ReadResult::Streams(streams))) => self.startup.streams = streams,
            (NamespaceRead::Ages, Some(ReadResult::Rows(rows))) => {
                // An unreadable row counts as none: then the newest event counts.
                let row = rows.first().and_then(|(key, value)| AgesRow::decode(key, value).ok());
                self.startup.ages = row;
            }
            // Reading failed. A working session reads again anyway.
            _ if starting => {
                self.startup.wanted.push(read);
                self.startup.retry_at = Some(now.mono + self.config.event_poll_interval_ms);
            }
            _ => {}
        }
        if starting && self.startup.under_way == 0 && self.startup.wanted.is_empty() {
            self.register(now);
        }
    }

    /// Done before the session writes events of its own, because their times would be from its own clock.
    fn restore_ages(&mut self, now: Now) {
        let written = self.startup.streams.iter().filter(|span| span.next > Offset::FIRST);
        let of_users = written.filter(|span| !span.stream.topic.is_system());
        let newest = of_users.map(|span| span.last_ts).max();
        self.ages.found(self.startup.ages, newest, self.identity.boot, now);
    }

    /// Usually nothing has changed since the last read.
    fn on_topic_rows(&mut self, rows: Vec<(String, Bytes)>) {
        if rows != self.topic_rows {
            self.topics = Topics::from_rows(&rows);
            self.topic_rows = rows;
        }
    }

    pub(crate) fn retry_start(&mut self, now: Now) {
        if self.startup.retry_at.is_some_and(|at| at <= now.mono) {
            self.start_wanted_reads();
        }
    }

    /// Writes the session's row, and a row for each new handler. The first claims are in the same commit.
    fn register(&mut self, now: Now) {
        self.phase = Phase::Working;
        self.restore_ages(now);
        self.refresh_at = now.mono + self.config.refresh_interval_ms;
        self.sweep_at = now.mono + self.config.retention_interval_ms;
        self.heartbeat(now);
        self.read_stranded(now);
        self.on_delayed();
        self.note_unused_settings();
        let Startup { handlers, streams, .. } = std::mem::take(&mut self.startup);
        for at in 0..self.handlers.len() {
            let mark = self.prng.next().to_string();
            let handler = &self.handlers[at];
            let key = keys::handler(&self.identity.namespace, &handler.spec.id);
            let topic = handler.spec.topic.as_str().to_owned();
            let known = handlers.get(&key);
            let before = known.and_then(|value| HandlerRow::decode(&key, value).ok());
            if before.as_ref().is_some_and(|row| row.topic == topic) {
                continue;
            }
            let paused = before.is_some_and(|row| row.paused);
            let row = HandlerRow { topic, registered: now.wall, paused };
            let check = match known {
                Some(value) => {
                    Check::Equals { space: Space::Handlers, key: key.clone(), value: value.clone() }
                }
                None => Check::Absent { space: Space::Handlers, key: key.clone() },
            };
            let marked = keys::handlers_mark(&self.identity.namespace);
            let mut ops = vec![
                Op::Put { space: Space::Handlers, key, value: row.encode() },
                Op::Put { space: Space::Kv, key: marked, value: mark.into() },
            ];
            let mine = streams.iter().filter(|span| span.stream.topic == handler.topic);
            let backlog: u64 = mine.clone().map(|span| span.next.0.saturating_sub(span.start.0)).sum();
            if handler.spec.from == From::Backlog && backlog >= self.config.backlog_warn_events {
                self.effects.push(Effect::Note(Note::Backlog { handler: at, events: backlog }));
            }
            if handler.spec.from == From::Now {
                ops.extend(mine.map(|span| Op::PutNew {
                    space: Space::Lanes,
                    key: keys::lane(&handler.spec.id, &span.stream, None),
                    value: LaneRow::from_now(span.next).encode(),
                }));
            }
            self.queue_action(now, Action { checks: vec![check], ops, follow_up: FollowUp::Nothing });
        }
    }

    /// Reports settings for handlers that this session does not run: a misspelt id would otherwise go unnoticed.
    fn note_unused_settings(&mut self) {
        let known = |id: &str| self.handlers.iter().any(|handler| handler.spec.id.as_str() == id);
        let unused: Vec<String> = self.config.handlers.keys().filter(|id| !known(id)).cloned().collect();
        self.effects.extend(unused.into_iter().map(|id| Effect::Note(Note::UnusedSettings { id })));
    }

    pub(crate) fn heartbeat(&mut self, now: Now) {
        if now.mono < self.heartbeat_at {
            return;
        }
        self.heartbeat_at = now.mono + self.config.session_heartbeat_interval_ms;
        let action = self.session_action(now, false);
        self.queue_action(now, action);
    }

    fn session_action(&self, now: Now, stopped: bool) -> Action {
        let row = SessionRow {
            started: self.began,
            heartbeat: now.wall,
            stopped: stopped.then_some(now.wall),
            metadata: self.identity.metadata.clone(),
            hanging: self.hanging_rows(),
            counts: self.counts,
        };
        let key = keys::session(&self.identity.namespace, &self.identity.session);
        let mut ops = vec![Op::Put { space: Space::Sessions, key, value: row.encode() }];
        // The anchor that ages are counted from, for the next process that removes by age.
        if self.config.retention_interval_ms > 0 {
            let ages = self.ages.row(self.identity.boot, now);
            ops.extend(ages.map(|ages| Op::Put {
                space: Space::Kv,
                key: keys::AGES.to_owned(),
                value: ages.encode(),
            }));
        }
        Action { checks: Vec::new(), ops, follow_up: FollowUp::Nothing }
    }

    /// Reads the rows again that others may have changed: topics may have more partitions, schedules may be disabled,
    /// handlers paused.
    pub(crate) fn refresh(&mut self, now: Now) {
        if now.mono < self.refresh_at {
            return;
        }
        self.refresh_at = now.mono + self.config.refresh_interval_ms;
        self.read_stranded(now);
        let under_way = |worker: &Worker, what| {
            worker
                .pending
                .values()
                .any(|pending| matches!(pending, Pending::NamespaceRead(read) if *read == what))
        };
        if !under_way(self, NamespaceRead::Topics) {
            self.start_read(NamespaceRead::Topics);
        }
        if !under_way(self, NamespaceRead::Handlers) {
            self.start_read(NamespaceRead::Handlers);
        }
        if !under_way(self, NamespaceRead::Elapsed) {
            self.start_read(NamespaceRead::Elapsed);
        }
        if !self.schedules.is_empty() && !under_way(self, NamespaceRead::Schedules) {
            self.start_read(NamespaceRead::Schedules);
        }
    }

    pub(crate) fn stop(&mut self, now: Now) {
        match self.phase {
            Phase::Working => {
                self.phase = Phase::Stopping;
                self.stop_at = Some(now.mono + self.config.stop_grace_ms);
                self.give_all_back(now);
            }
            // The session has claimed and registered nothing yet.
            Phase::Fresh | Phase::Starting => {
                self.phase = Phase::Stopped;
                self.effects.push(Effect::Stopped { failed: None });
            }
            Phase::Stopping | Phase::Closing | Phase::Stopped | Phase::Failed => {}
        }
    }

    /// When everything else is done: writes that this session has stopped, then ends.
    pub(crate) fn finish_stop(&mut self, now: Now) {
        let done = self.runs.is_empty() && self.commit.is_none() && self.actions.is_empty();
        match self.phase {
            Phase::Stopping if done => {
                self.phase = Phase::Closing;
                let action = self.session_action(now, true);
                self.heartbeat_at = Mono(u64::MAX);
                self.queue_action(now, action);
                self.commit_next(now);
            }
            Phase::Closing if done => {
                self.phase = Phase::Stopped;
                self.effects.push(Effect::Stopped { failed: None });
            }
            _ => {}
        }
    }
}
