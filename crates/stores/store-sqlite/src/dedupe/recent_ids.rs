//! The ids that clients brought recently, as hashes that lead to rows. A hash only points to a candidate row; the row
//! itself decides.
//!
//! A ring buffer holds hash and seq in order of arrival; an open-addressed table finds a hash in the ring. That takes
//! 16 bytes and two to four slots of 4 bytes per id, about half as much as a map of integers and a queue.
//! A removal closes its gap, so the table never rehashes; `hashbrown::HashTable` would need half as much again and pause
//! for 50 ms (decision 0049).

use crate::dedupe::hash::HashKey;

const EMPTY: u32 = u32::MAX;
const SLOTS_MIN: usize = 64;

#[derive(Debug)]
pub(crate) struct Dedupe {
    key: HashKey,
    ids_max: usize,
    /// Hash and seq, in order of seq. Full at `ids_max` entries; from then on `oldest` is the entry to overwrite next.
    ring: Vec<(u64, u64)>,
    oldest: usize,
    /// The index in `ring` of the newest entry of each hash, probed linearly. At most half full; the length is a power
    /// of two.
    slots: Vec<u32>,
    /// The id of every event before this seq is either remembered here or too old to matter.
    pub(crate) next_seq: u64,
}

impl Dedupe {
    pub(crate) fn new(key: HashKey, ids_max: usize) -> Dedupe {
        Dedupe {
            key,
            ids_max: ids_max.clamp(1, EMPTY as usize - 1),
            ring: Vec::new(),
            oldest: 0,
            slots: vec![EMPTY; SLOTS_MIN],
            next_seq: 1,
        }
    }

    pub(crate) fn key(&self) -> HashKey {
        self.key
    }

    /// Returns the remembered pairs of hash and seq with a seq from `first` up to, not including, `end`.
    pub(crate) fn within(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (newer, older) = self.ring.split_at(self.oldest);
        [older, newer].into_iter().flat_map(move |part| {
            let from = part.partition_point(|(_, seq)| *seq < first);
            part[from..].iter().take_while(move |(_, seq)| *seq < end).copied()
        })
    }

    /// Returns the lowest remembered seq.
    pub(crate) fn first_seq(&self) -> u64 {
        self.ring.get(self.oldest).map_or(self.next_seq, |(_, seq)| *seq)
    }

    pub(crate) fn reserve(&mut self, ids: usize) {
        let ids = ids.min(self.ids_max);
        self.ring.reserve(ids);
        while ids * 2 > self.slots.len() {
            self.grow();
        }
    }

    /// Returns the seq of an event that may have this id. `newer` ids were brought since the last one here: they push out
    /// as many.
    pub(crate) fn find(&self, hash: u64, newer: usize) -> Option<u64> {
        let at = self.slots[self.slot_of(hash)];
        let (_, seq) = self.entry(at)?;
        let pushed_out = (self.ring.len() + newer).saturating_sub(self.ids_max);
        (self.order_of(at as usize) >= pushed_out).then_some(seq)
    }

    /// Returns how many entries of the ring are older.
    fn order_of(&self, at: usize) -> usize {
        (at + self.ring.len() - self.oldest) % self.ring.len().max(1)
    }

    pub(crate) fn remember(&mut self, hash: u64, seq: u64) {
        let at = if self.ring.len() < self.ids_max {
            if (self.ring.len() + 1) * 2 > self.slots.len() {
                self.grow();
            }
            self.ring.push((hash, seq));
            self.ring.len() - 1
        } else {
            let at = self.oldest;
            self.oldest = (self.oldest + 1) % self.ids_max;
            self.forget(at);
            self.ring[at] = (hash, seq);
            at
        };
        let slot = self.slot_of(hash);
        self.slots[slot] = at as u32;
    }

    fn entry(&self, at: u32) -> Option<(u64, u64)> {
        self.ring.get(at as usize).copied()
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// Returns the slot that holds this hash, or the empty slot where it belongs.
    fn slot_of(&self, hash: u64) -> usize {
        let mut slot = self.home(hash);
        while self.entry(self.slots[slot]).is_some_and(|(found, _)| found != hash) {
            slot = self.after(slot);
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![EMPTY; self.slots.len() * 2];
        for at in 0..self.ring.len() {
            // This is the order of arrival, because the table grows only until the ring is full for the first time.
            let slot = self.slot_of(self.ring[at].0);
            self.slots[slot] = at as u32;
        }
    }

    /// Frees the slot of the ring entry at `at` and closes the gap, unless a newer entry has taken the slot over.
    fn forget(&mut self, at: usize) {
        let mut gap = self.slot_of(self.ring[at].0);
        if self.slots[gap] != at as u32 {
            return;
        }
        self.slots[gap] = EMPTY;
        let mut slot = self.after(gap);
        while let Some((hash, _)) = self.entry(self.slots[slot]) {
            // An entry may move into the gap only if the gap is not before its home slot.
            let mask = self.slots.len() - 1;
            let from_home = slot.wrapping_sub(self.home(hash)) & mask;
            let from_gap = slot.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.slots[gap] = self.slots[slot];
                self.slots[slot] = EMPTY;
                gap = slot;
            }
            slot = self.after(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut dedupe = Dedupe::new(HashKey([1; 16]), 3);
        for (hash, seq) in [(10, 1), (20, 2), (10, 3), (30, 4)] {
            dedupe.remember(hash, seq);
        }
        assert_eq!([10, 20, 30].map(|hash| dedupe.find(hash, 0)), [Some(3), Some(2), Some(4)]);
        assert_eq!([10, 20, 30].map(|hash| dedupe.find(hash, 1)), [Some(3), None, Some(4)]);
        assert_eq!([10, 20, 30].map(|hash| dedupe.find(hash, 2)), [None, None, Some(4)]);
        dedupe.remember(40, 5);
        assert_eq!([10, 20, 30, 40].map(|hash| dedupe.find(hash, 0)), [Some(3), None, Some(4), Some(5)]);
    }

    proptest::proptest! {
        /// Few distinct hashes with the same home slots: everything collides, wraps around and moves.
        #[test]
        fn it_agrees_with_a_map_and_a_queue(ids_max in 1usize..90, drawn: Vec<u8>) {
            let mut dedupe = Dedupe::new(HashKey([1; 16]), ids_max);
            let mut arrivals: Vec<u64> = Vec::new();
            for (seq, byte) in drawn.iter().enumerate() {
                let hash = u64::from(byte % 16) << 8 | u64::from(byte / 16) << 4 | 0xf;
                dedupe.remember(hash, seq as u64);
                arrivals.push(hash);
            }
            let first = arrivals.len().saturating_sub(ids_max);
            let kept = arrivals.iter().enumerate().skip(first);
            let newest: HashMap<u64, u64> = kept.map(|(seq, hash)| (*hash, seq as u64)).collect();
            let within: Vec<u64> = dedupe.within(3, 40).map(|(_, seq)| seq).collect();
            let expected: Vec<u64> = (first.max(3)..arrivals.len().min(40)).map(|seq| seq as u64).collect();
            proptest::prop_assert_eq!(within, expected);
            for hash in 0..0x1000 {
                proptest::prop_assert_eq!(dedupe.find(hash, 0), newest.get(&hash).copied());
            }
        }
    }
}
