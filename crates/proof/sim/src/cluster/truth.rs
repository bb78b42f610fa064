//! The journal as it really is, kept beside the engine: every record that was ever placed, folded into a store of its
//! own. The invariants of a cluster are checked against it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_model::{EventId, Offset, Space, Stream, TopicKey};
use millrace_store::{
    CopyPosition, FoldRecord, Foldable, KeyRange, MemoryStore, RecordedChange, RecordedEvent, Store, Tip,
};
use millrace_store_journal::record::{self, RecordHead};
use millrace_store_journal::{LEAD_KEY, LeadRow};

use super::Writer;
use super::engine::SentRecord;
use super::server::CURSORS;
use crate::check::Violation;

pub(crate) const INVARIANTS: [&str; 13] = [
    "one_record_after_the_other",
    "one_term_after_the_other",
    "only_the_leader_writes",
    "acked_is_in_the_journal",
    "stored_once",
    "refused_leaves_nothing",
    "answers_of_the_present",
    "copies_equal",
    "cursor_never_back",
    "no_false_alarm",
    "loss_is_noticed",
    "somebody_leads",
    "restores",
];

/// A row under this prefix says that its record sets a position back on purpose.
pub(super) const SEEKS: &str = "sim/seek/";
/// Topics in which every event carries a text of its own.
pub(super) const OWN_TOPICS: &str = "suite/own";
/// How many states of the past are kept.
const PAST_KEPT: usize = 48;

pub(super) fn violation(invariant: &'static str, detail: String) -> Violation {
    Violation { invariant, detail }
}

pub(super) struct Truth {
    records: BTreeMap<u64, TrueRecord>,
    /// The fold of all records.
    fold: Arc<MemoryStore>,
    /// The fold at earlier positions.
    past: BTreeMap<u64, Arc<MemoryStore>>,
    /// Where each event of our own topics is, by its text, and by its id if it brought one.
    texts: BTreeMap<String, EventPlace>,
    ids: BTreeMap<(TopicKey, EventId), EventPlace>,
    /// Texts of events that were refused: they must never appear.
    refused: BTreeSet<String>,
    acks: Vec<Ack>,
    /// How often the engine has lost records.
    pub(super) losses: u64,
    lost: BTreeSet<(u64, [u8; 16])>,
    /// Servers whose copies hold records that the engine has lost.
    unnoticed: BTreeSet<usize>,
    /// The content of snapshots, by the number that their bytes name.
    pub(super) snapshots: Vec<MemoryStore>,
}

struct TrueRecord {
    by: Writer,
    head: RecordHead,
    tip: Tip,
    changes: Vec<RecordedChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventPlace {
    pub(super) stream: Stream,
    pub(super) offset: Offset,
}

/// An event that a server has confirmed.
#[derive(Clone, Debug)]
struct Ack {
    n: u64,
    tip: Tip,
    text: String,
}

impl Truth {
    pub(super) fn new() -> Truth {
        let mut truth = Truth {
            records: BTreeMap::new(),
            fold: Arc::new(MemoryStore::new()),
            past: BTreeMap::new(),
            texts: BTreeMap::new(),
            ids: BTreeMap::new(),
            refused: BTreeSet::new(),
            acks: Vec::new(),
            losses: 0,
            lost: BTreeSet::new(),
            unnoticed: BTreeSet::new(),
            snapshots: Vec::new(),
        };
        truth.past.insert(0, Arc::new(truth.fold.snapshot()));
        truth
    }

    /// Returns the number and the tip of the newest record.
    pub(super) fn head(&self) -> (u64, Tip) {
        self.records.last_key_value().map_or((0, Tip::START), |(n, record)| (*n, record.tip))
    }

    pub(super) fn has(&self, n: u64, tip: Tip) -> bool {
        n == 0 || self.records.get(&n).is_some_and(|record| record.tip == tip)
    }

    pub(super) fn tip_of(&self, n: u64) -> Tip {
        self.records.get(&n).map_or(Tip::START, |record| record.tip)
    }

    /// Returns the store as it was behind record `n`, if that is still kept.
    pub(super) fn at(&self, n: u64) -> Option<&Arc<MemoryStore>> {
        self.past.get(&n)
    }

    /// The engine has placed a record.
    pub(super) fn placed(&mut self, by: Writer, sent: &SentRecord) -> Result<(), Violation> {
        let (last, last_tip) = self.head();
        let n = sent.n;
        if n <= last {
            // The number was free again because its record was deleted. Nobody may ever rely on this one.
            return Ok(());
        }
        let broken = |detail: String| Err(violation("one_record_after_the_other", detail));
        let (record, tip) = match record::decode(&sent.record) {
            Ok(decoded) => decoded,
            Err(error) => return broken(format!("record {n} of {by} cannot be read: {error}")),
        };
        if n != last + 1 || record.head.n != n || record.head.prev != last_tip || tip != sent.tip {
            return broken(format!("record {n} of {by} does not follow record {last}"));
        }
        self.lead_is_kept(by, &record.head, &record.changes)?;
        self.add(TrueRecord { by, head: record.head, tip, changes: record.changes })
    }

    fn standing_lead(&self) -> Option<LeadRow> {
        let rows = self.fold.scan(Space::Kv, &KeyRange::prefix(LEAD_KEY), 1).unwrap_or_default();
        let row = rows.into_iter().find(|row| row.key == LEAD_KEY)?;
        serde_json::from_slice(&row.value).ok()
    }

    /// Checks that the record's writer held the lead before it, or takes it with it; and that terms rise.
    fn lead_is_kept(
        &self,
        by: Writer,
        head: &RecordHead,
        changes: &[RecordedChange],
    ) -> Result<(), Violation> {
        let (n, writer) = (head.n, format!("{:032x}", head.writer));
        let standing = self.standing_lead();
        let term = standing.as_ref().map_or(0, |row| row.term);
        let holds = standing.as_ref().is_some_and(|row| row.server == writer);
        let new = changes.iter().rev().find_map(|change| match change {
            RecordedChange::Put { space: Space::Kv, key, value } if key == LEAD_KEY => {
                serde_json::from_slice::<LeadRow>(value).ok()
            }
            _ => None,
        });
        let row_term = new.as_ref().map_or(term, |row| row.term);
        let rises = new.as_ref().is_some_and(LeadRow::is_held);
        if head.term != row_term || rises && row_term <= term || !rises && row_term != term {
            let detail = format!(
                "record {n} of {by} has term {}, its lead row {row_term}, after term {term}",
                head.term
            );
            return Err(violation("one_term_after_the_other", detail));
        }
        let may_write = match &new {
            Some(new) if new.is_held() => new.server == writer,
            _ => holds,
        };
        if may_write {
            return Ok(());
        }
        let detail = format!("record {n} was placed by {by}, which does not lead: term {term} is another's");
        Err(violation("only_the_leader_writes", detail))
    }

    fn add(&mut self, record: TrueRecord) -> Result<(), Violation> {
        let n = record.head.n;
        self.cursors_rise(&record)?;
        self.find_events(n, &record.changes)?;
        let position = CopyPosition { store_id: 0, n, tip: record.tip };
        let folded = self.fold.apply(&[FoldRecord { position, changes: record.changes.clone() }]);
        if let Err(error) = folded {
            let detail = format!("record {n} of {} cannot be folded: {error}", record.by);
            return Err(violation("one_record_after_the_other", detail));
        }
        self.records.insert(n, record);
        self.past.insert(n, Arc::new(self.fold.snapshot()));
        while self.past.len() > PAST_KEPT {
            self.past.pop_first();
        }
        Ok(())
    }

    fn find_events(&mut self, n: u64, changes: &[RecordedChange]) -> Result<(), Violation> {
        for change in changes {
            match change {
                RecordedChange::Drop { topic, .. } => {
                    self.ids.retain(|(of, _), _| of != topic);
                }
                RecordedChange::Append { stream, events, .. } => {
                    for event in events {
                        self.stored(n, stream, event)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn stored(&mut self, n: u64, stream: &Stream, event: &RecordedEvent) -> Result<(), Violation> {
        if !stream.topic.as_str().starts_with(OWN_TOPICS) {
            return Ok(());
        }
        let text = event.body.payload.as_str().to_owned();
        let place = EventPlace { stream: stream.clone(), offset: event.offset };
        if self.refused.contains(&text) {
            let detail = format!("{text} was refused, and record {n} holds it");
            return Err(violation("refused_leaves_nothing", detail));
        }
        let twice = |first: &EventPlace| {
            let detail = format!(
                "{text} in record {n} is at {stream} {}, and was at {} {} before",
                event.offset, first.stream, first.offset
            );
            Err(violation("stored_once", detail))
        };
        if let Some(first) = self.texts.insert(text.clone(), place.clone()) {
            return twice(&first);
        }
        if event.is_brought {
            let key = (stream.topic.clone(), event.id.clone());
            if let Some(first) = self.ids.insert(key, place) {
                return twice(&first);
            }
        }
        Ok(())
    }

    fn cursors_rise(&self, record: &TrueRecord) -> Result<(), Violation> {
        let seeks = record.changes.iter().any(|change| {
            matches!(change, RecordedChange::Put { space: Space::Kv, key, .. } if key.starts_with(SEEKS))
        });
        if seeks {
            return Ok(());
        }
        for change in &record.changes {
            let RecordedChange::Put { space: Space::Cursors, key, value } = change else { continue };
            if !key.starts_with(CURSORS) {
                continue;
            }
            let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
            let rows = self.fold.scan(Space::Cursors, &KeyRange::prefix(key), 1).unwrap_or_default();
            let before = rows.first().and_then(|row| number(&row.value));
            if number(value) < before {
                let (n, by) = (record.head.n, record.by);
                let detail =
                    format!("record {n} of {by} sets {key} from {before:?} back to {:?}", number(value));
                return Err(violation("cursor_never_back", detail));
            }
        }
        Ok(())
    }

    /// The batch of this event left nothing, as somebody was told.
    pub(super) fn must_not_appear(&mut self, text: String) -> Result<(), Violation> {
        if let Some(place) = self.texts.get(&text) {
            let detail =
                format!("{text} was told to have left nothing, and is at {} {}", place.stream, place.offset);
            return Err(violation("refused_leaves_nothing", detail));
        }
        self.refused.insert(text);
        Ok(())
    }

    /// Returns the newest record behind `after` that this process placed, and how many there are.
    pub(super) fn placed_since(&self, after: u64, by: Writer) -> (Option<u64>, usize) {
        let mut found =
            self.records.range(after + 1..).filter(|(_, record)| record.by == by).map(|(n, _)| *n);
        let last = found.next_back();
        (last, found.count() + usize::from(last.is_some()))
    }

    /// Returns the changes of a record.
    pub(super) fn changes_of(&self, n: u64) -> &[RecordedChange] {
        self.records.get(&n).map_or(&[], |record| &record.changes)
    }

    /// A server has confirmed an event at this place, in record `n`.
    pub(super) fn acked(&mut self, n: u64, text: &str, told: &EventPlace) -> Result<(), Violation> {
        let in_record = self.changes_of(n).iter().any(|change| match change {
            RecordedChange::Append { stream, events, .. } => {
                let is_it = |event: &RecordedEvent| {
                    event.offset == told.offset && event.body.payload.as_str() == text
                };
                *stream == told.stream && events.iter().any(is_it)
            }
            _ => false,
        });
        if !in_record {
            let (stream, offset) = (&told.stream, told.offset);
            let detail =
                format!("{text} was confirmed at {stream} {offset}, and record {n} does not hold it");
            return Err(violation("acked_is_in_the_journal", detail));
        }
        let tip = self.tip_of(n);
        self.acks.push(Ack { n, tip, text: text.to_owned() });
        Ok(())
    }

    /// Checks that everything confirmed is in the journal, except records that the engine has lost.
    pub(super) fn acks_stand(&self) -> Result<(), Violation> {
        for Ack { n, tip, text } in &self.acks {
            if !self.has(*n, *tip) && !self.lost.contains(&(*n, tip.0)) {
                let detail = format!("{text} was confirmed in record {n}, which is another one now");
                return Err(violation("acked_is_in_the_journal", detail));
            }
        }
        Ok(())
    }

    pub(super) fn acked_events(&self) -> usize {
        self.acks.len()
    }

    /// The engine has lost the records from `n` on. `copies` are the positions of all copies.
    pub(super) fn lose_from(&mut self, n: u64, copies: &[Option<CopyPosition>]) -> Result<(), Violation> {
        self.losses += 1;
        let lost = self.records.split_off(&n);
        for (server, position) in copies.iter().enumerate() {
            let held = |position: &CopyPosition| {
                lost.get(&position.n).is_some_and(|record| record.tip == position.tip)
            };
            if position.as_ref().is_some_and(held) {
                self.unnoticed.insert(server);
            }
        }
        self.lost.extend(lost.iter().map(|(n, record)| (*n, record.tip.0)));
        // A record that was refused before may be placed now by a request that was late.
        self.refused.clear();
        self.past.split_off(&n);
        if let Some(fold) = self.past.get(&(n - 1)) {
            self.fold = Arc::new(fold.snapshot());
        }
        self.texts.clear();
        self.ids.clear();
        let kept = std::mem::take(&mut self.records);
        let found = kept.iter().try_for_each(|(n, record)| self.find_events(*n, &record.changes));
        self.records = kept;
        found
    }

    /// Returns the lowest record that can be lost: older states are not kept.
    pub(super) fn may_lose_from(&self) -> u64 {
        self.past.first_key_value().map_or(u64::MAX, |(n, _)| n + 1)
    }

    /// A server has said that the engine lost records, or its copy never had them.
    pub(super) fn noticed(&mut self, server: usize) {
        self.unnoticed.remove(&server);
    }

    pub(super) fn unnoticed(&self) -> Option<usize> {
        self.unnoticed.first().copied()
    }
}
