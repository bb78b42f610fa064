//! The start of a session: what it must read before it can work, and how it registers.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    AgesRow, Broken, Check, HandlerRow, LaneRow, Mono, Now, Offset, Op, Space, keys, never,
};

use crate::commits::action::{Action, FollowUp};
use crate::interface::effect::Note;
use crate::interface::input::StreamSpan;
use crate::interface::spec::From;
use crate::lifecycle::namespace_rows::NamespaceRead;
use crate::worker::Worker;

/// The reads before a session can work, and their results so far.
#[derive(Debug, Default)]
pub(crate) struct Startup {
    /// Reads that have not been started, or have to be repeated.
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

    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(super) fn is_complete(&self) -> bool {
        self.under_way == 0 && self.wanted.is_empty()
    }

    pub(super) fn on_read_ended(&mut self, broken: &Broken) {
        match self.under_way.checked_sub(1) {
            Some(under_way) => self.under_way = under_way,
            None => never!(broken, "a read of the start has ended, but none was under way"),
        }
    }

    pub(super) fn on_handler_rows(&mut self, rows: Vec<(String, Bytes)>) {
        self.handlers = rows.into_iter().collect();
    }

    pub(super) fn on_streams(&mut self, streams: Vec<StreamSpan>) {
        self.streams = streams;
    }

    pub(super) fn on_ages(&mut self, row: Option<AgesRow>) {
        self.ages = row;
    }

    /// The read failed: repeats it later.
    pub(super) fn retry(&mut self, read: NamespaceRead, at: Mono) {
        self.wanted.push(read);
        self.retry_at = Some(at);
    }
}

impl Worker {
    pub(crate) fn start_up(&mut self, now: Now) {
        self.session.start(now);
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

    pub(crate) fn retry_start(&mut self, now: Now) {
        if self.startup.retry_at.is_some_and(|at| at <= now.mono) {
            self.start_wanted_reads();
        }
    }

    /// Done before the session writes events of its own, because their times would be from its own clock.
    fn restore_ages(&mut self, now: Now) {
        let written = self.startup.streams.iter().filter(|span| span.next > Offset::FIRST);
        let of_users = written.filter(|span| !span.stream.topic.is_system());
        let newest = of_users.map(|span| span.last_ts).max();
        self.ages.found(self.startup.ages, newest, self.identity.boot, now);
    }

    /// Writes the session's row, and a row for each new handler. The first claims are in the same commit.
    pub(super) fn register(&mut self, now: Now) {
        self.session.work(now, &self.config);
        self.restore_ages(now);
        self.retention.plan_sweep(now.mono + self.config.retention_interval_ms);
        self.heartbeat(now);
        self.read_stranded(now);
        self.mover.on_news();
        self.note_unused_settings();
        let Startup { handlers, streams, .. } = std::mem::take(&mut self.startup);
        for at in self.handlers.indices() {
            let mark = self.prng.next().to_string();
            let handler = &self.handlers[at];
            let key = keys::handler(&self.identity.namespace, handler.id());
            let topic = handler.spec().topic.as_str().to_owned();
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
            let mine = streams.iter().filter(|span| span.stream.topic == *handler.topic());
            let backlog: u64 = mine.clone().map(|span| span.next.0.saturating_sub(span.start.0)).sum();
            if handler.spec().from == From::Backlog && backlog >= self.config.backlog_warn_events {
                self.requests.note(Note::Backlog { handler: at, events: backlog });
            }
            if handler.spec().from == From::Now {
                ops.extend(mine.map(|span| Op::PutNew {
                    space: Space::Lanes,
                    key: keys::lane(handler.id(), &span.stream, None),
                    value: LaneRow::from_now(span.next).encode(),
                }));
            }
            self.queue_action(now, Action { checks: vec![check], ops, follow_up: FollowUp::Nothing });
        }
    }

    /// Reports settings for handlers that this session does not run: a misspelt id would otherwise go unnoticed.
    fn note_unused_settings(&mut self) {
        let known = |id: &str| self.handlers.iter().any(|handler| handler.id().as_str() == id);
        let unused: Vec<String> = self.config.handlers.keys().filter(|id| !known(id)).cloned().collect();
        unused.into_iter().for_each(|id| self.requests.note(Note::UnusedSettings { id }));
    }
}
