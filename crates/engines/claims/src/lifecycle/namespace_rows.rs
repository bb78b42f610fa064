//! Rows of the namespace that a session reads at its start, and again at intervals, because others may change them.

use bytes::Bytes;
use millrace_model::{AgesRow, Elapsed, ElapsedRow, Now, Space, keys};

use crate::commits::batch_builder::Topics;
use crate::interface::input::{ReadQuery, ReadResult};
use crate::requests::PendingRead;
use crate::worker::Worker;

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
    pub(crate) const ALL: [NamespaceRead; 6] = [
        NamespaceRead::Topics,
        NamespaceRead::Handlers,
        NamespaceRead::Schedules,
        NamespaceRead::Streams,
        NamespaceRead::Elapsed,
        NamespaceRead::Ages,
    ];
}

/// The topics of the namespace, as last read.
#[derive(Debug, Default)]
pub(crate) struct TopicTable {
    known: Topics,
    /// The rows that `known` was read from: at most [`ROWS_MAX`].
    rows: Vec<(String, Bytes)>,
}

impl TopicTable {
    pub(crate) fn known(&self) -> &Topics {
        &self.known
    }

    /// Usually nothing has changed since the last read.
    fn update(&mut self, rows: Vec<(String, Bytes)>) {
        if rows != self.rows {
            self.known = Topics::from_rows(&rows);
            self.rows = rows;
        }
    }
}

impl Worker {
    pub(crate) fn start_read(&mut self, read: NamespaceRead) {
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
        self.requests.read(PendingRead::Namespace(read), query);
    }

    pub(crate) fn on_namespace_read(&mut self, now: Now, read: NamespaceRead, result: Option<ReadResult>) {
        let starting = self.session.is_starting();
        if starting {
            self.startup.on_read_ended(&self.broken);
        }
        match (read, result) {
            (NamespaceRead::Topics, Some(ReadResult::Rows(rows))) => self.topics.update(rows),
            (NamespaceRead::Handlers, Some(ReadResult::Rows(rows))) => {
                self.on_handler_rows(now, &rows);
                self.startup.on_handler_rows(rows);
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
            (NamespaceRead::Streams, Some(ReadResult::Streams(streams))) => self.startup.on_streams(streams),
            (NamespaceRead::Ages, Some(ReadResult::Rows(rows))) => {
                // An unreadable row counts as none: then the newest event counts.
                let row = rows.first().and_then(|(key, value)| AgesRow::decode(key, value).ok());
                self.startup.on_ages(row);
            }
            _ if starting => self.startup.retry(read, now.mono + self.config.event_poll_interval_ms),
            // Reading failed: a working session reads again anyway.
            _ => {}
        }
        if starting && self.startup.is_complete() {
            self.register(now);
        }
    }

    /// Reads the rows again that others may have changed: topics may have more partitions, schedules may be disabled,
    /// handlers paused.
    pub(crate) fn refresh(&mut self, now: Now) {
        if !self.session.take_refresh(now, &self.config) {
            return;
        }
        self.read_stranded(now);
        for read in
            [NamespaceRead::Topics, NamespaceRead::Handlers, NamespaceRead::Elapsed, NamespaceRead::Schedules]
        {
            let wanted = read != NamespaceRead::Schedules || !self.schedules.is_empty();
            if wanted && !self.requests.is_reading(PendingRead::Namespace(read)) {
                self.start_read(read);
            }
        }
    }
}
