//! The rows that a sweep reads: the tables with the positions of handlers and groups.

use bytes::Bytes;
use millrace_model::{
    CursorRow, HandlerRow, LaneRow, Offset, Op, Partition, SessionRow, Space, Stream, TopicKey, TopicRow,
};

use super::{Stage, Sweep, TABLES};

impl Sweep {
    pub(super) fn on_table_rows(&mut self, at: usize, rows: &[(String, Bytes)]) {
        for (key, value) in rows {
            // An unreadable row does not keep anything from being removed, unless it stands for the position of a
            // handler or group.
            self.on_row(TABLES[at], key, value);
        }
        if rows.len() >= self.rule.rows_max {
            self.from = rows.last().map_or_else(String::new, |(key, _)| format!("{key}\0"));
            return;
        }
        self.from = format!("{}/", self.rule.namespace);
        self.stage = if at + 1 < TABLES.len() { Stage::Table(at + 1) } else { Stage::Claims(0) };
    }

    fn on_row(&mut self, space: Space, key: &str, value: &[u8]) {
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
                self.claimants.extend(id.clone());
                self.wanted.extend(topic.clone());
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
            Space::Cursors => {
                let parts: Vec<&str> = key.split('/').collect();
                if let [_, topic, _, partition] = parts.as_slice() {
                    let next = CursorRow::decode(key, value).map_or(Offset::ZERO, |row| row.committed.next());
                    if let Some(stream) = self.stream(topic, partition) {
                        self.wanted.insert(stream.topic.clone());
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

    pub(super) fn floor(&mut self, stream: Stream, offset: Offset) {
        let floor = self.floors.entry(stream).or_insert(offset);
        *floor = (*floor).min(offset);
    }

    /// A handler that has not looked at a stream yet needs all of it.
    pub(super) fn set_floors(&mut self) {
        for span in self.streams.clone() {
            for (handler, topic) in self.handlers.clone() {
                if topic == span.stream.topic {
                    let lane = (handler, span.stream.clone());
                    let next = self.lanes.get(&lane).copied().unwrap_or(Offset::ZERO);
                    self.floor(span.stream.clone(), next);
                }
            }
        }
    }
}
