//! The engine that all servers share: a journal in memory, which compares with its head or not, and which may come back
//! without its newest records.

use std::collections::VecDeque;

use bytes::Bytes;
use millrace_journal::{
    Fitness, HeadGuard, Journal, JournalError, JournalReadLimit, ManifestRead, ManifestVersion,
    MemoryJournal, PartName, Placed, Placing, Tip,
};
use millrace_store_journal::Manifest;

use super::sabotage::Sabotage;

/// How far the replica lags behind that a sabotaged engine answers reads from.
const REPLICA_LAG_MS: u64 = 2_000;

pub(super) struct SharedEngine {
    journal: MemoryJournal,
    head_guard: HeadGuard,
    /// The newest record, whether it was deleted or not.
    head: (u64, Tip),
    /// The head when the manifest was last changed: records after it can be lost without the manifest.
    manifest_at: u64,
    sabotage: Option<Sabotage>,
    /// The heads of the past, by time, for [`Sabotage::ReadReplica`].
    past_heads: VecDeque<(u64, u64)>,
}

/// A record on its way to the engine.
#[derive(Clone, Debug)]
pub(super) struct SentRecord {
    pub(super) n: u64,
    pub(super) prev: Tip,
    pub(super) tip: Tip,
    pub(super) record: Bytes,
}

impl SentRecord {
    pub(super) fn of(placing: &Placing<'_>) -> SentRecord {
        let Placing { n, prev, tip, record, .. } = *placing;
        SentRecord { n, prev, tip, record: Bytes::copy_from_slice(record) }
    }

    fn placing(&self) -> Placing<'_> {
        let SentRecord { n, prev, tip, record } = self;
        Placing { n: *n, prev: *prev, tip: *tip, record, settles: &[] }
    }
}

impl SharedEngine {
    pub(super) fn new(head_guard: HeadGuard, sabotage: Option<Sabotage>) -> SharedEngine {
        SharedEngine {
            journal: MemoryJournal::new(),
            head_guard,
            head: (0, Tip::START),
            manifest_at: 0,
            sabotage,
            past_heads: VecDeque::new(),
        }
    }

    pub(super) fn check(&self) -> Result<Fitness, JournalError> {
        Ok(Fitness { head_guard: self.head_guard, ..self.journal.check()? })
    }

    pub(super) fn place(&mut self, sent: &SentRecord, now_ms: u64) -> Result<Placed, JournalError> {
        let follows = sent.n == self.head.0 + 1 && sent.prev == self.head.1;
        let is_refused = match self.sabotage {
            Some(Sabotage::TrustEveryPlacing) => sent.n <= self.head.0,
            _ => !follows,
        };
        if self.head_guard == HeadGuard::Engine && is_refused {
            return Ok(Placed::Taken);
        }
        if self.sabotage == Some(Sabotage::TwoWriters) && sent.n == self.head.0 {
            self.journal.lose_from(sent.n);
        }
        let placed = self.journal.place(&sent.placing())?;
        if placed == Placed::Yes && sent.n >= self.head.0 {
            self.head = (sent.n, sent.tip);
            self.past_heads.push_back((now_ms, sent.n));
        }
        Ok(placed)
    }

    pub(super) fn read(
        &mut self,
        from: u64,
        limit: JournalReadLimit,
        now_ms: u64,
    ) -> Result<Vec<(u64, Bytes)>, JournalError> {
        let mut found = self.journal.read(from, limit)?;
        if self.sabotage == Some(Sabotage::ReadReplica) {
            let seen_ms = now_ms.saturating_sub(REPLICA_LAG_MS);
            while self.past_heads.get(1).is_some_and(|(at_ms, _)| *at_ms <= seen_ms) {
                self.past_heads.pop_front();
            }
            let seen = self.past_heads.front().filter(|(at_ms, _)| *at_ms <= seen_ms).map_or(0, |(_, n)| *n);
            found.retain(|(n, _)| *n <= seen);
        }
        Ok(found)
    }

    pub(super) fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        self.journal.manifest()
    }

    /// Returns up to where the journal is trimmed, as the manifest says.
    pub(super) fn trimmed_to(&self) -> u64 {
        let read = self.journal.manifest().ok().flatten();
        read.and_then(|read| Manifest::decode(&read.bytes).ok()).map_or(0, |manifest| manifest.trimmed_to)
    }

    pub(super) fn set_manifest(
        &mut self,
        new: &[u8],
        was: Option<&ManifestVersion>,
    ) -> Result<bool, JournalError> {
        let is_set = self.journal.set_manifest(new, was)?;
        if is_set {
            self.manifest_at = self.head.0;
        }
        Ok(is_set)
    }

    pub(super) fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        self.journal.put_part(name, bytes)
    }

    pub(super) fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        self.journal.get_part(name)
    }

    pub(super) fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        self.journal.parts()
    }

    pub(super) fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        self.journal.delete_part(name)
    }

    pub(super) fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        self.journal.delete_below(n)
    }

    /// Returns the lowest record that the engine may lose: it loses the newest changes of everything, so none that are
    /// older than the newest manifest.
    pub(super) fn may_lose_from(&self) -> u64 {
        self.manifest_at + 1
    }

    /// Forgets the records from `n` on. `tip` is the tip of the record before.
    pub(super) fn lose_from(&mut self, n: u64, tip: Tip) {
        self.journal.lose_from(n);
        self.head = (n - 1, tip);
        self.past_heads.clear();
    }
}
