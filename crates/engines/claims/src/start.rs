//! The start and the end of a session: what it reads first, how it registers, and how it leaves.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    AgesRow, Check, ClaimRow, Elapsed, ElapsedRow, HandlerRow, LaneRow, Mono, Now, Offset, Op, SessionRow,
    Space, Timestamp, keys,
};

use crate::action::{Act, Then};
use crate::build::Topics;
use crate::effect::{Effect, Note};
use crate::input::{Look, Seen, StreamSpan, Token};
use crate::spec::From;
use crate::worker::{Pending, Phase, Worker};

/// Topics, handlers and schedules of a namespace that a session reads at once; it learns of further ones as it meets
/// them.
const ROWS_MAX: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reading {
    Topics,
    Handlers,
    Schedules,
    Streams,
    Elapsed,
    /// The anchor from which ages were last counted.
    Ages,
}

impl Reading {
    /// Everything that a session must read before it can work.
    const ALL: [Reading; 6] = [
        Reading::Topics,
        Reading::Handlers,
        Reading::Schedules,
        Reading::Streams,
        Reading::Elapsed,
        Reading::Ages,
    ];
}

/// The results of the reads so far.
#[derive(Debug, Default)]
pub(crate) struct Starting {
    wanted: Vec<Reading>,
    under_way: usize,
    retry_at: Option<Mono>,
    handlers: BTreeMap<String, Bytes>,
    streams: Vec<StreamSpan>,
    ages: Option<AgesRow>,
}

impl Starting {
    pub(crate) fn retry_at(&self) -> Option<Mono> {
        self.retry_at
    }
}

impl Worker {
    pub(crate) fn begin(&mut self, now: Now) {
        self.phase = Phase::Starting;
        self.began = now.wall;
        self.starting.wanted = Reading::ALL.to_vec();
        self.ask_wanted();
    }

    fn ask_wanted(&mut self) {
        self.starting.retry_at = None;
        for reading in std::mem::take(&mut self.starting.wanted) {
            self.starting.under_way += 1;
            self.ask(reading);
        }
    }

    fn ask(&mut self, reading: Reading) {
        let namespace = &self.identity.namespace;
        let rows = |space| Look::Rows {
            space,
            from: [namespace.as_str(), "/"].concat(),
            // The character after the slash ends the range.
            to: [namespace.as_str(), "0"].concat(),
            rows_max: ROWS_MAX,
        };
        let setting = |key: &str| {
            let (from, to) = (key.to_owned(), [key, "\0"].concat());
            Look::Rows { space: Space::Kv, from, to, rows_max: 1 }
        };
        let look = match reading {
            Reading::Topics => rows(Space::Topics),
            Reading::Handlers => rows(Space::Handlers),
            Reading::Schedules => rows(Space::Schedules),
            Reading::Streams => Look::Streams { namespace: namespace.clone(), topic: None },
            Reading::Elapsed => setting(keys::ELAPSED),
            Reading::Ages => setting(keys::AGES),
        };
        let token = self.token(Pending::Reading(reading));
        self.effects.push(Effect::Look { token, look });
    }

    pub(crate) fn seen(&mut self, now: Now, token: Token, seen: Option<Seen>) {
        match self.pending.remove(&token) {
            Some(Pending::Reading(reading)) => self.read(now, reading, seen),
            Some(Pending::Due(handler)) => self.due_seen(handler, seen),
            Some(Pending::Stranded(handler)) => self.stranded_seen(now, handler, seen),
            Some(Pending::DueLook(by, what)) => self.due_rows_seen(now, by, what, seen),
            Some(Pending::SweepLook) => self.sweep_seen(now, seen),
            Some(other) => {
                self.pending.insert(token, other);
            }
            None => {}
        }
    }

    /// Reads when the first of a handler's open claims, of any session, is due. In order of keys, claims that were due
    /// at the handler's own claim and were not taken wait for other events of their key: time alone does not make them
    /// ready, so they are left out.
    pub(crate) fn ask_due(&mut self, handler: usize, claimed_at: Timestamp) {
        let (namespace, handler_of) = (self.identity.namespace.as_str(), &self.handlers[handler]);
        let all = keys::claims_of(namespace, &handler_of.spec.id);
        let to = [all.trim_end_matches('/'), "0"].concat();
        let from = match handler_of.is_ordered() {
            true => keys::claims_end(namespace, &handler_of.spec.id, claimed_at),
            false => all,
        };
        let look = Look::Rows { space: Space::Claims, from, to, rows_max: 1 };
        let token = self.token(Pending::Due(handler));
        self.effects.push(Effect::Look { token, look });
    }

    fn due_seen(&mut self, handler: usize, seen: Option<Seen>) {
        let Some(Seen::Rows(rows)) = seen else { return };
        let due = rows.first().and_then(|(key, value)| ClaimRow::decode(key, value).ok()).map(|row| row.due);
        if let Some(due) = due {
            self.handlers[handler].ready_again_at(due);
        }
    }

    fn read(&mut self, now: Now, reading: Reading, seen: Option<Seen>) {
        let starting = self.phase == Phase::Starting;
        if starting {
            self.starting.under_way -= 1;
        }
        match (reading, seen) {
            (Reading::Topics, Some(Seen::Rows(rows))) => self.topics_seen(rows),
            (Reading::Handlers, Some(Seen::Rows(rows))) => {
                self.handlers_seen(now, &rows);
                self.starting.handlers = rows.into_iter().collect();
            }
            (Reading::Schedules, Some(Seen::Rows(rows))) => self.schedules_seen(now, &rows),
            (Reading::Elapsed, Some(Seen::Rows(rows))) => {
                // Without a readable row, waiting delays are counted by the wall clock.
                let row = rows.first().and_then(|(key, value)| ElapsedRow::decode(key, value).ok());
                match row {
                    Some(row) if !starting => self.elapsed.meet(row, now),
                    None if !starting => {}
                    row => self.elapsed = Elapsed::restore(row, self.identity.boot, now),
                }
            }
            (Reading::Streams, Some(Seen::Streams(streams))) => self.starting.streams = streams,
            (Reading::Ages, Some(Seen::Rows(rows))) => {
                // An unreadable row counts as none: then the newest event counts.
                let row = rows.first().and_then(|(key, value)| AgesRow::decode(key, value).ok());
                self.starting.ages = row;
            }
            // Reading failed. A working session reads again anyway.
            _ if starting => {
                self.starting.wanted.push(reading);
                self.starting.retry_at = Some(now.mono + self.config.event_poll_interval_ms);
            }
            _ => {}
        }
        if starting && self.starting.under_way == 0 && self.starting.wanted.is_empty() {
            self.register(now);
        }
    }

    /// Done before the session writes events of its own, because their times would be from its own clock.
    fn restore_ages(&mut self, now: Now) {
        let written = self.starting.streams.iter().filter(|span| span.next > Offset::FIRST);
        let of_users = written.filter(|span| !span.stream.topic.is_system());
        let newest = of_users.map(|span| span.last_ts).max();
        self.ages.found(self.starting.ages, newest, self.identity.boot, now);
    }

    /// Usually nothing has changed since the last look.
    fn topics_seen(&mut self, rows: Vec<(String, Bytes)>) {
        if rows != self.topic_rows {
            self.topics = Topics::from_rows(&rows);
            self.topic_rows = rows;
        }
    }

    pub(crate) fn retry_start(&mut self, now: Now) {
        if self.starting.retry_at.is_some_and(|at| at <= now.mono) {
            self.ask_wanted();
        }
    }

    /// Writes the session's row, and a row for each new handler. The first claims are in the same commit.
    fn register(&mut self, now: Now) {
        self.phase = Phase::Working;
        self.restore_ages(now);
        self.refresh_at = now.mono + self.config.refresh_interval_ms;
        self.sweep_at = now.mono + self.config.retention_interval_ms;
        self.beat(now);
        self.ask_stranded(now);
        self.delayed();
        self.note_unused_settings();
        let Starting { handlers, streams, .. } = std::mem::take(&mut self.starting);
        for at in 0..self.handlers.len() {
            let mark = self.draw.next().to_string();
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
            self.send(now, Act { checks: vec![check], ops, then: Then::Nothing });
        }
    }

    /// Reports settings for handlers that this session does not run: a misspelt id would otherwise go unnoticed.
    fn note_unused_settings(&mut self) {
        let known = |id: &str| self.handlers.iter().any(|handler| handler.spec.id.as_str() == id);
        let unused: Vec<String> = self.config.handlers.keys().filter(|id| !known(id)).cloned().collect();
        self.effects.extend(unused.into_iter().map(|id| Effect::Note(Note::UnusedSettings { id })));
    }

    pub(crate) fn beat(&mut self, now: Now) {
        if now.mono < self.heartbeat_at {
            return;
        }
        self.heartbeat_at = now.mono + self.config.session_heartbeat_interval_ms;
        let act = self.session_act(now, false);
        self.send(now, act);
    }

    fn session_act(&self, now: Now, stopped: bool) -> Act {
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
        Act { checks: Vec::new(), ops, then: Then::Nothing }
    }

    /// Reads the rows again that others may have changed: topics may have more partitions, schedules may be disabled,
    /// handlers paused.
    pub(crate) fn refresh(&mut self, now: Now) {
        if now.mono < self.refresh_at {
            return;
        }
        self.refresh_at = now.mono + self.config.refresh_interval_ms;
        self.ask_stranded(now);
        let under_way = |worker: &Worker, what| {
            worker
                .pending
                .values()
                .any(|pending| matches!(pending, Pending::Reading(reading) if *reading == what))
        };
        if !under_way(self, Reading::Topics) {
            self.ask(Reading::Topics);
        }
        if !under_way(self, Reading::Handlers) {
            self.ask(Reading::Handlers);
        }
        if !under_way(self, Reading::Elapsed) {
            self.ask(Reading::Elapsed);
        }
        if !self.schedules.is_empty() && !under_way(self, Reading::Schedules) {
            self.ask(Reading::Schedules);
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
            Phase::Stopping | Phase::Leaving | Phase::Stopped | Phase::Failed => {}
        }
    }

    /// When everything else is done: writes that this session has stopped, then ends.
    pub(crate) fn leave(&mut self, now: Now) {
        let done = self.runs.is_empty() && self.flight.is_none() && self.gate.is_empty();
        match self.phase {
            Phase::Stopping if done => {
                self.phase = Phase::Leaving;
                let act = self.session_act(now, true);
                self.heartbeat_at = Mono(u64::MAX);
                self.send(now, act);
                self.depart(now);
            }
            Phase::Leaving if done => {
                self.phase = Phase::Stopped;
                self.effects.push(Effect::Stopped { failed: None });
            }
            _ => {}
        }
    }
}
