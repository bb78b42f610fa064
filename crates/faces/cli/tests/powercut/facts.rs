//! Facts: what was confirmed, during which part of the trace it must hold, and whether it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Something that a client was told is durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A published event, alone or in a batch, or a dead letter.
    Event {
        topic: String,
        partition: u64,
        offset: u64,
        payload: String,
    },
    /// An event that waits until it is due, or has been moved into its log since.
    Delayed {
        topic: String,
        payload: String,
    },
    /// A group has finished everything up to this offset.
    Done {
        topic: String,
        group: String,
        partition: u64,
        offset: u64,
    },
    Topic {
        topic: String,
        max_attempts: u64,
    },
    NoTopic(String),
    Timer(String),
    NoTimer(String),
    /// A value of the loop's Memory; `None` = deleted.
    Value {
        path: String,
        value: Option<String>,
    },
    /// A handler's commit: state, and the event that announces it.
    Order(String),
    /// A finished backup, with the positions of the trace when it began and ended: facts that hold all that time are in
    /// it.
    Backup {
        file: String,
        begun: u64,
        ended: u64,
    },
}

struct Entry {
    fact: Fact,
    from: u64,
    until: Option<u64>,
}

/// All facts of a workload, by positions of its trace.
#[derive(Default)]
pub struct Ledger(Vec<Entry>);

impl Ledger {
    pub fn confirm(&mut self, position: u64, fact: Fact) {
        self.0.push(Entry { fact, from: position, until: None });
    }

    /// Ends these facts, because a request that may change them is about to be sent.
    pub fn end(&mut self, position: u64, ends: impl Fn(&Fact) -> bool) {
        for entry in self.0.iter_mut().filter(|entry| entry.until.is_none() && ends(&entry.fact)) {
            entry.until = Some(position);
        }
    }

    /// Ends the facts of the store confirmed after `since`, because a restore is about to begin. Facts about backups
    /// stay: these are separate files.
    pub fn end_since(&mut self, since: u64, position: u64) {
        let is_later = |entry: &&mut Entry| entry.from > since && entry.until.is_none();
        let is_of_store = |entry: &&mut Entry| !matches!(entry.fact, Fact::Backup { .. });
        for entry in self.0.iter_mut().filter(is_later).filter(is_of_store) {
            entry.until = Some(position);
        }
    }

    /// Returns the facts that must hold on every disk after a cut at `position`.
    pub fn at(&self, position: u64) -> Vec<&Fact> {
        let holds =
            |entry: &&Entry| entry.from <= position && entry.until.is_none_or(|until| position <= until);
        self.0.iter().filter(holds).map(|entry| &entry.fact).collect()
    }

    /// Returns the facts that must hold in a copy made at some moment between the two positions.
    pub fn throughout(&self, begin: u64, end: u64) -> Vec<&Fact> {
        let holds = |entry: &&Entry| entry.from <= begin && entry.until.is_none_or(|until| end <= until);
        self.0.iter().filter(holds).map(|entry| &entry.fact).collect()
    }

    /// Returns the positions where facts were confirmed.
    pub fn positions(&self) -> Vec<u64> {
        self.0.iter().map(|entry| entry.from).collect()
    }

    pub fn timers(&self) -> BTreeSet<String> {
        let timer = |entry: &Entry| match &entry.fact {
            Fact::Timer(id) => Some(id.clone()),
            _ => None,
        };
        self.0.iter().filter_map(timer).collect()
    }

    /// Returns how many facts of each kind were confirmed.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        self.0.iter().for_each(|entry| *counts.entry(entry.fact.kind()).or_default() += 1);
        counts
    }
}

/// The contents of a store, read in one of several ways.
#[derive(Default)]
pub struct Seen {
    /// Payloads by topic, partition and offset.
    pub events: BTreeMap<(String, u64, u64), String>,
    /// Topics and payloads. `delayed` and `orders` cannot be read through a server: `None`.
    pub delayed: Option<BTreeSet<(String, String)>>,
    /// Commits by topic, group and partition.
    pub committed: BTreeMap<(String, String, u64), u64>,
    /// Topics with their `maxAttempts`, if set.
    pub topics: BTreeMap<String, Option<u64>>,
    pub timers: BTreeSet<String>,
    pub values: BTreeMap<String, String>,
    pub orders: Option<BTreeSet<String>>,
}

impl Fact {
    pub fn kind(&self) -> &'static str {
        match self {
            Fact::Event { topic, .. } if topic.ends_with(".DLQ") => "dead letters",
            Fact::Event { payload, .. } if payload.starts_with("\"batch/") => "events of batches",
            Fact::Event { .. } => "publishes",
            Fact::Delayed { .. } => "delayed events",
            Fact::Done { .. } => "acks",
            Fact::Topic { .. } | Fact::NoTopic(_) => "topic changes",
            Fact::Timer(_) | Fact::NoTimer(_) => "timers",
            Fact::Value { .. } => "memory values",
            Fact::Order(_) => "handler commits",
            Fact::Backup { .. } => "backups",
        }
    }

    /// Returns whether the fact holds. Backups are separate files and checked elsewhere.
    pub fn is_in(&self, seen: &Seen) -> bool {
        match self {
            Fact::Event { topic, partition, offset, payload } => {
                seen.events.get(&(topic.clone(), *partition, *offset)) == Some(payload)
            }
            Fact::Delayed { topic, payload } => seen.delayed.as_ref().is_none_or(|delayed| {
                let arrived =
                    |((of, ..), stored): (&(String, u64, u64), &String)| of == topic && stored == payload;
                delayed.contains(&(topic.clone(), payload.clone())) || seen.events.iter().any(arrived)
            }),
            Fact::Done { topic, group, partition, offset } => {
                let at = seen.committed.get(&(topic.clone(), group.clone(), *partition));
                at.is_some_and(|committed| committed >= offset)
            }
            Fact::Topic { topic, max_attempts } => seen.topics.get(topic) == Some(&Some(*max_attempts)),
            Fact::NoTopic(topic) => !seen.topics.contains_key(topic),
            Fact::Timer(id) => seen.timers.contains(id),
            Fact::NoTimer(id) => !seen.timers.contains(id),
            Fact::Value { path, value } => seen.values.get(path) == value.as_ref(),
            Fact::Order(order) => seen.orders.as_ref().is_none_or(|orders| orders.contains(order)),
            Fact::Backup { .. } => true,
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_CHARS_MAX: usize = 160;
        let text: String = format!("{self:?}").chars().take(SHOWN_CHARS_MAX).collect();
        f.write_str(&text)
    }
}

impl Seen {
    /// Returns what is incomplete. In every store, whatever was confirmed, batches and other units must be there whole
    /// or not at all.
    pub fn halves(&self) -> Vec<String> {
        let mut batches: BTreeMap<&str, u64> = BTreeMap::new();
        let payloads = self.events.values().filter(|payload| payload.starts_with("\"batch/"));
        for batch in payloads.filter_map(|payload| payload.rsplit_once('/')) {
            *batches.entry(batch.0).or_default() += 1;
        }
        let size = |batch: &str| batch.rsplit_once('/').and_then(|(_, size)| size.parse().ok());
        let torn = batches.iter().filter(|(batch, found)| size(batch) != Some(**found));
        let mut halves: Vec<String> =
            torn.map(|(batch, found)| format!("{found} events are there of {batch}")).collect();
        if let Some(orders) = &self.orders {
            let shipped: BTreeSet<String> = self.shipped();
            if *orders != shipped {
                halves.push(format!("orders {orders:?} have state, {shipped:?} have their event"));
            }
        }
        halves
    }

    fn shipped(&self) -> BTreeSet<String> {
        let told = self.events.iter().filter(|((topic, ..), _)| topic == "order.shipped");
        let order = |payload: &String| {
            let payload: serde_json::Value = serde_json::from_str(payload).ok()?;
            Some(payload["order_id"].as_str()?.to_owned())
        };
        told.filter_map(|(_, payload)| order(payload)).collect()
    }
}
