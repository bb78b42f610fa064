//! Examines the bus's rows in the small tables: can they be read, and do they fit the streams that they refer to.
//!
//! Rows are fed table by table, topics first, then groups, then the rest, because each row is checked against the
//! tables before it.

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::{
    AHEAD_MAX, AttemptRow, CursorRow, DueRow, Findings, Group, GroupRow, Offset, PARTITIONS_MAX, Partition,
    Space, Stream, TopicKey, TopicRow, keys,
};

use crate::topics::schema::check_schema;

const RESTORE: &str = "the server cannot start with it: restore a backup (`millrace restore`)";

const SET_SCHEMA: &str =
    "nothing can be published to the topic: set another schema (`millrace topics set TOPIC --schema FILE`)";

#[derive(Debug, Default)]
pub struct Inspection {
    /// The offset the next event of each stream will get.
    next: BTreeMap<Stream, Offset>,
    /// Partitions of each topic.
    topics: BTreeMap<TopicKey, u32>,
    groups: BTreeSet<String>,
    findings: Findings,
}

/// The parts of a key `namespace/topic/group/partition`.
struct CursorKey {
    stream: Stream,
    group: Group,
}

impl CursorKey {
    fn parse(key: &str) -> Option<CursorKey> {
        let (rest, partition) = key.rsplit_once('/')?;
        let (topic, group) = rest.rsplit_once('/')?;
        let stream = TopicKey::parse(topic).ok()?.stream(Partition(partition.parse().ok()?));
        Some(CursorKey { stream, group: Group::new(group).ok()? })
    }
}

impl Inspection {
    /// `streams`: every stream with the offset its next event will get.
    pub fn new(streams: impl IntoIterator<Item = (Stream, Offset)>) -> Inspection {
        Inspection { next: streams.into_iter().collect(), ..Inspection::default() }
    }

    pub fn row(&mut self, space: Space, key: &str, value: &[u8]) {
        match space {
            Space::Topics => self.topic(key, value),
            Space::Groups => self.group(key, value),
            Space::Cursors => self.cursor(key, value),
            Space::Attempts => self.attempt(key, value),
            Space::Due => self.due(key, value),
            // The bus has no rules for the rows of other tables.
            _ => {}
        }
    }

    pub fn finish(mut self) -> Findings {
        for stream in self.next.keys().filter(|stream| !self.topics.contains_key(&stream.topic)) {
            let what = "has events, but no row in table topics: nobody can read them";
            self.findings.problem(format!("stream {stream}"), what, "restore a backup (`millrace restore`)");
        }
        self.findings
    }

    fn unreadable(&mut self, space: Space, key: &str, why: &str) {
        self.findings.problem(format!("table {}, row {key:?}", space.as_str()), why, RESTORE);
    }

    fn topic(&mut self, key: &str, value: &[u8]) {
        match (TopicKey::parse(key), TopicRow::decode(key, value)) {
            (Ok(topic), Ok(row)) => {
                let partitions = row.config.partitions;
                if !(1..=PARTITIONS_MAX).contains(&partitions) {
                    let why = format!("has {partitions} partitions: 1 to {PARTITIONS_MAX} are possible");
                    self.unreadable(Space::Topics, key, &why);
                }
                if let Some(Err(error)) = row.config.schema.as_deref().map(check_schema) {
                    let place = format!("table topics, row {key:?}");
                    self.findings.problem(place, error.to_string(), SET_SCHEMA);
                }
                self.topics.insert(topic, partitions);
            }
            (Err(error), _) => self.unreadable(Space::Topics, key, &error.to_string()),
            (_, Err(error)) => self.unreadable(Space::Topics, key, &error.to_string()),
        }
    }

    fn group(&mut self, key: &str, value: &[u8]) {
        if let Err(error) = GroupRow::decode(key, value) {
            self.unreadable(Space::Groups, key, &error.to_string());
        }
        let named = key.rsplit_once('/').and_then(|(topic, group)| {
            Group::new(group).ok()?;
            TopicKey::parse(topic).ok()
        });
        match named {
            None => self.unreadable(Space::Groups, key, "names no topic and group"),
            Some(topic) if !self.topics.contains_key(&topic) => self.orphan(Space::Groups, key, "topic"),
            Some(_) => {}
        }
        self.groups.insert(key.to_owned());
    }

    fn orphan(&mut self, space: Space, key: &str, missing: &str) {
        self.findings.problem(
            format!("table {}, row {key:?}", space.as_str()),
            format!("its {missing} is not there: a position is lost"),
            "restore a backup (`millrace restore`), or let the group subscribe anew and seek",
        );
    }

    fn cursor(&mut self, key: &str, value: &[u8]) {
        let row = match CursorRow::decode(key, value) {
            Ok(row) => row,
            Err(error) => return self.unreadable(Space::Cursors, key, &error.to_string()),
        };
        let Some(CursorKey { stream, group }) = CursorKey::parse(key) else {
            return self.unreadable(Space::Cursors, key, "names no topic, group and partition");
        };
        if !self.groups.contains(&keys::group(&stream.topic, &group)) {
            return self.orphan(Space::Cursors, key, "group");
        }
        if self.topics.get(&stream.topic).is_none_or(|partitions| stream.partition.0 >= *partitions) {
            return self.orphan(Space::Cursors, key, "partition");
        }
        let last = self.next.get(&stream).map_or(Offset::ZERO, |next| next.before());
        let ahead = row.ahead.iter().max();
        let furthest = ahead.map_or(row.committed, |bit| Offset(row.committed.0.saturating_add(bit + 1)));
        for (what, offset) in
            [("committed", row.committed), ("delivered", row.delivered), ("acks ahead", furthest)]
        {
            if offset > last {
                let what = format!("{what} is {offset}, beyond the last event {last}");
                let advice = format!(
                    "events up to there would never be delivered: `millrace topics seek {} {group} --from offset:N`",
                    stream.topic.topic()
                );
                self.findings.problem(format!("table cursors, row {key:?}"), what, advice);
                return;
            }
        }
        if ahead.is_some_and(|bit| bit >= AHEAD_MAX) {
            let why = format!("remembers acks more than {AHEAD_MAX} ahead of its commit");
            self.unreadable(Space::Cursors, key, &why);
        }
    }

    fn attempt(&mut self, key: &str, value: &[u8]) {
        if let Err(error) = AttemptRow::decode(key, value) {
            self.unreadable(Space::Attempts, key, &error.to_string());
        }
        let parsed = key.rsplit_once('/').is_some_and(|(cursor, offset)| {
            CursorKey::parse(cursor).is_some() && u64::from_str_radix(offset, 16).is_ok()
        });
        if !parsed {
            self.unreadable(Space::Attempts, key, "names no topic, group, partition and offset");
        }
    }

    fn due(&mut self, key: &str, value: &[u8]) {
        const ADVICE: &str =
            "this delayed event would never be delivered: restore a backup (`millrace restore`)";
        let place = || format!("table due, row {key:?}");
        match DueRow::decode(key, value) {
            Err(error) => self.findings.problem(place(), error.to_string(), ADVICE),
            Ok(row) if TopicKey::parse(&row.topic).is_err() => {
                self.findings.problem(place(), "names no topic", ADVICE);
            }
            Ok(_) if keys::due_time(key).is_none() => self.findings.problem(place(), "names no time", ADVICE),
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(rows: &[(Space, &str, &str)]) -> Vec<String> {
        let stream = TopicKey::parse("default/t").unwrap().stream(Partition(0));
        let mut inspection = Inspection::new([(stream, Offset(11))]);
        for (space, key, value) in rows {
            inspection.row(*space, key, value.as_bytes());
        }
        inspection.finish().list().iter().map(|one| format!("{}: {}", one.place, one.what)).collect()
    }

    const TOPIC: (Space, &str, &str) = (Space::Topics, "default/t", r#"{"partitions":1}"#);
    const GROUP: (Space, &str, &str) = (Space::Groups, "default/t/g", "{}");

    #[test]
    fn rows_that_fit_are_fine() {
        let cursor = (Space::Cursors, "default/t/g/0", r#"{"committed":8,"delivered":10,"ahead":"02"}"#);
        let attempt = (Space::Attempts, "default/t/g/0/0000000000000009", r#"{"attempts":2}"#);
        assert!(problems(&[TOPIC, GROUP, cursor, attempt]).is_empty());
    }

    #[test]
    fn each_thing_that_can_be_wrong_is_named() {
        for (rows, expected) in [
            (vec![], "no row in table topics"),
            (vec![(Space::Topics, "default/t", "{")], "cannot be read"),
            (vec![(Space::Topics, "nonsense/a/b", "{}")], "topic contains"),
            (vec![(Space::Topics, "default/t", r#"{"partitions":0}"#)], "0 partitions"),
            (
                vec![(Space::Topics, "default/t", r#"{"partitions":1,"schema":{"type":5}}"#)],
                "schema is refused at /type",
            ),
            (vec![TOPIC, (Space::Groups, "default/t/g", "[")], "cannot be read"),
            (vec![TOPIC, (Space::Groups, "default/u/g", "{}")], "its topic is not there"),
            (vec![TOPIC, (Space::Cursors, "default/t/g/0", r#"{"committed":1,"delivered":1}"#)], "its group"),
            (
                vec![TOPIC, GROUP, (Space::Cursors, "default/t/g/1", r#"{"committed":0,"delivered":0}"#)],
                "its partition",
            ),
            (
                vec![TOPIC, GROUP, (Space::Cursors, "default/t/g/0", r#"{"committed":11,"delivered":11}"#)],
                "committed is 11, beyond the last event 10",
            ),
            (
                vec![
                    TOPIC,
                    GROUP,
                    (Space::Cursors, "default/t/g/0", r#"{"committed":9,"delivered":10,"ahead":"02"}"#),
                ],
                "acks ahead is 11",
            ),
            (vec![TOPIC, (Space::Attempts, "default/t/g/0/zz", r#"{"attempts":2}"#)], "names no topic"),
            (vec![TOPIC, (Space::Due, "00/1/1", "{}")], "cannot be read"),
        ] {
            let found = problems(&rows);
            assert!(found.iter().any(|one| one.contains(expected)), "{expected:?} is not in {found:?}");
        }
    }
}
