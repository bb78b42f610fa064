//! Placing: records as they were given, each number once, visible to everybody.

use bytes::Bytes;
use millrace_journal::{HeadGuard, Placed, Tip};

use super::subject::JournalSubject;
use super::test_record::{TestChain, TestRecord};

/// A record holds at most 12 MiB before its header and its tip.
const LARGEST_RECORD: usize = (12 << 20) + 128;

pub(super) fn pairs(records: &[TestRecord]) -> Vec<(u64, Bytes)> {
    records.iter().map(|record| (record.n, record.bytes.clone())).collect()
}

pub(super) fn records_are_read_back_as_they_were_placed(s: &JournalSubject) {
    let handle = s.handle();
    let mut chain = TestChain::START;
    let mut placed = Vec::new();
    for size in [0, 33, 255, 256, 4_096, 70_000, 1 << 20] {
        placed.extend(handle.place_next(&mut chain, 2, size));
    }
    assert_eq!(handle.read_all(1), pairs(&placed));
    assert_eq!(handle.read_all(0), pairs(&placed));
    for record in &placed {
        assert_eq!(handle.record(record.n).as_ref(), Some(&record.bytes), "{}", record.n);
    }
}

pub(super) fn a_taken_number_is_refused_and_the_first_record_stays(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    let mut chain = TestChain::START;
    for _ in 0..3 {
        let (first, second) = (chain.candidate(1, 100), chain.candidate(2, 200));
        assert_eq!(handle.place(&first), Placed::Yes);
        for handle in [&handle, &beside] {
            assert_eq!(handle.place(&second), Placed::Taken);
            assert_eq!(handle.read_all(first.n), pairs(std::slice::from_ref(&first)));
        }
        chain.advance(&first);
    }
    let early = TestRecord::new(1, Tip::START, 3, 50);
    assert_eq!(beside.place(&early), Placed::Taken, "a number in the middle");
    assert_eq!(handle.read_all(1).len(), 3);
}

pub(super) fn a_placed_record_is_visible_to_another_handle_at_once(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    let mut chain = TestChain::START;
    for _ in 0..50 {
        let next = chain.n + 1;
        assert_eq!(beside.record(next), None);
        let placed = handle.place_next(&mut chain, 1, 300);
        assert_eq!(beside.read_all(next), pairs(&placed));
    }
}

pub(super) fn two_handles_place_in_turn(s: &JournalSubject) {
    let handles = [s.handle(), s.beside()];
    let mut chain = TestChain::START;
    let mut placed = Vec::new();
    for at in 0..20 {
        placed.extend(handles[at % 2].place_next(&mut chain, 1 + at % 3, 100));
    }
    for handle in &handles {
        assert_eq!(handle.read_all(1), pairs(&placed));
    }
}

pub(super) fn large_records_are_placed_and_read(s: &JournalSubject) {
    let handle = s.handle();
    let placed = handle.place_first(3, LARGEST_RECORD);
    let beside = s.beside();
    let found = beside.read_all(1);
    // Not `assert_eq`, which would print megabytes.
    assert!(found == pairs(&placed), "the records are not what was placed");
    let one = beside.page(2, 10, 1 << 20);
    assert!(one == pairs(&placed[1..2]), "the first record is returned whatever its size");
}

/// Only where the engine promises it: elsewhere the user of the journal places nothing but the next number.
pub(super) fn an_engine_that_guards_its_head_refuses_gaps_and_other_histories(s: &JournalSubject) {
    let handle = s.handle();
    let mut chain = TestChain::START;
    let placed = handle.place_next(&mut chain, 3, 100);
    if s.fitness().head_guard != HeadGuard::Engine {
        return;
    }
    let gap = TestRecord::new(chain.n + 2, chain.tip, 1, 100);
    assert_eq!(handle.place(&gap), Placed::Taken, "the journal ends at 3");
    let other = TestRecord::new(chain.n + 1, Tip([7; 16]), 1, 100);
    assert_eq!(handle.place(&other), Placed::Taken, "record 3 has another tip");
    assert_eq!(handle.read_all(1), pairs(&placed));
    handle.place_next(&mut chain, 1, 100);
}
