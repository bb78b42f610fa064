//! Which events and messages belong to a trace: those that follow from something that belongs to it.

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::{Event, EventId, Lineage, OsId, Timestamp};
use millrace_router::{Party, TraceRecord};

use crate::http::dead_letters::REPLAYED_FROM;
use crate::http::find_event::{header, made_at};

/// The messages that the CQRS loop has recorded, found by their id and by their cause.
#[derive(Debug, Default)]
pub(super) struct Messages {
    records: Vec<TraceRecord>,
    by_id: BTreeMap<OsId, Vec<usize>>,
    by_cause: BTreeMap<OsId, Vec<usize>>,
}

impl Messages {
    pub(super) fn new(records: Vec<TraceRecord>) -> Messages {
        let mut messages = Messages::default();
        for record in records {
            messages.add(record);
        }
        messages
    }

    /// Returns the place of the record; `None` if it is known already: the stored trace repeats what is in memory.
    pub(super) fn add(&mut self, record: TraceRecord) -> Option<usize> {
        let same = |at: &usize| {
            self.records.get(*at).is_some_and(|known| {
                // As text: a client that is stored has lost its number.
                (known.at, known.step.as_str()) == (record.at, record.step.as_str())
                    && known.from.to_string() == record.from.to_string()
            })
        };
        if self.by_id.get(&record.id).is_some_and(|known| known.iter().any(same)) {
            return None;
        }
        let at = self.records.len();
        self.by_id.entry(record.id.clone()).or_default().push(at);
        if let Some(cause) = &record.causation {
            self.by_cause.entry(cause.clone()).or_default().push(at);
        }
        self.records.push(record);
        Some(at)
    }

    pub(super) fn get(&self, at: usize) -> Option<&TraceRecord> {
        self.records.get(at)
    }

    /// The first message with this id that is not an event on its way to a capability, else such an event.
    pub(super) fn first(&self, id: &str) -> Option<&TraceRecord> {
        let all = self.by_id.get(&OsId::new(id).ok()?)?;
        let mut found = all.iter().filter_map(|at| self.records.get(*at));
        let first = found.next()?;
        if first.from != Party::Bus {
            return Some(first);
        }
        found.find(|record| record.from != Party::Bus).or(Some(first))
    }

    /// When the first message of the correlation was seen, or, if its id has a time, that time if it is earlier.
    pub(super) fn began(&self, correlation: &str) -> Option<Timestamp> {
        let of = self.of_correlation(correlation);
        let first = of.iter().filter_map(|at| self.get(*at)).map(|record| record.at).min();
        let made = EventId::parse(correlation).ok().and_then(|id| made_at(&id));
        [first, made].into_iter().flatten().min()
    }

    /// The messages with this id, and those that name it as their cause.
    fn about(&self, id: &OsId) -> impl Iterator<Item = usize> {
        let of = |map: &BTreeMap<OsId, Vec<usize>>| map.get(id).cloned().unwrap_or_default();
        of(&self.by_id).into_iter().chain(of(&self.by_cause))
    }

    fn of_correlation(&self, correlation: &str) -> Vec<usize> {
        let is_of =
            |record: &TraceRecord| record.correlation.as_ref().is_some_and(|id| id.as_str() == correlation);
        (0..).zip(&self.records).filter(|(_, record)| is_of(record)).map(|(at, _)| at).collect()
    }
}

/// The members of a trace that are known so far.
#[derive(Debug, Default)]
pub(super) struct Family {
    root: String,
    ids: BTreeSet<String>,
    correlation: Option<String>,
    /// Places of its messages among all, in the order in which they joined.
    pub(super) messages: Vec<usize>,
    joined: BTreeSet<usize>,
    /// Its events of which some consequences do not name the root: see [`crate::http::trace::cursor::Cursor`].
    pub(super) heads: Vec<String>,
    /// Ids that joined since they were asked for last.
    fresh: Vec<String>,
}

impl Family {
    pub(super) fn new(root: &str, correlation: Option<&str>, messages: &Messages) -> Family {
        let mut family = Family {
            root: root.to_owned(),
            correlation: correlation.map(str::to_owned),
            ..Family::default()
        };
        family.join(root.to_owned(), messages);
        for at in correlation.map(|id| messages.of_correlation(id)).unwrap_or_default() {
            family.join_message(at, messages);
        }
        family
    }

    /// Adds an id, and every message that follows from it.
    pub(super) fn join(&mut self, id: String, messages: &Messages) {
        let mut waiting = vec![id];
        while let Some(id) = waiting.pop() {
            if let Ok(of) = OsId::new(&id) {
                for at in messages.about(&of).filter(|at| self.joined.insert(*at)) {
                    self.messages.push(at);
                    waiting.extend(messages.get(at).map(|record| record.id.as_str().to_owned()));
                }
            }
            if self.ids.insert(id.clone()) {
                self.fresh.push(id);
            }
        }
    }

    pub(super) fn take_fresh(&mut self) -> Vec<String> {
        std::mem::take(&mut self.fresh)
    }

    fn join_message(&mut self, at: usize, messages: &Messages) {
        if let Some(record) = messages.get(at)
            && self.joined.insert(at)
        {
            self.messages.push(at);
            self.join(record.id.as_str().to_owned(), messages);
        }
    }

    /// Adds a message that was found only now, if it belongs here.
    pub(super) fn join_found(&mut self, at: usize, messages: &Messages) {
        let Some(record) = messages.get(at) else { return };
        let known = |id: &OsId| self.ids.contains(id.as_str());
        let follows = known(&record.id) || record.causation.as_ref().is_some_and(known);
        let shares = record.correlation.as_ref().map(OsId::as_str) == self.correlation.as_deref();
        if follows || (shares && self.correlation.is_some()) {
            self.join_message(at, messages);
        }
    }

    pub(super) fn knows(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    pub(super) fn has(&self, id: &EventId) -> bool {
        self.ids.contains(&id.to_string())
    }

    /// Whether the lineage leads to something that belongs to the trace.
    pub(super) fn claims(&self, lineage: &Lineage) -> bool {
        let known = |id: &Option<EventId>| id.as_ref().is_some_and(|id| self.has(id));
        let shares = || {
            let own = lineage.correlation.as_ref().map(ToString::to_string);
            own.is_some() && own == self.correlation
        };
        known(&lineage.root) || known(&lineage.causation) || shares()
    }

    pub(super) fn owns(&self, event: &Event) -> bool {
        self.claims(&event.body.lineage) || self.has(&event.id) || self.owns_original(event)
    }

    /// Whether the event was published again from one of the trace. Most events have no such header, so the text is
    /// searched before it is parsed.
    fn owns_original(&self, event: &Event) -> bool {
        let may = event
            .body
            .headers
            .as_ref()
            .is_some_and(|headers| headers.json().as_str().contains(REPLAYED_FROM));
        may && header(event, REPLAYED_FROM).is_some_and(|of| self.ids.contains(&of))
    }

    pub(super) fn join_event(&mut self, event: &Event, messages: &Messages) {
        let id = event.id.to_string();
        let names_root = event.body.lineage.root.as_ref().is_some_and(|root| root.to_string() == self.root);
        // A message that it caused names the event, and what the message caused names the message.
        let has_messages = OsId::new(&id).is_ok_and(|id| messages.about(&id).next().is_some());
        if id != self.root && (!names_root || has_messages) {
            self.heads.push(id.clone());
        }
        self.join(id, messages);
    }
}
