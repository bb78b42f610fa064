//! Deleting old records: never one too many, and numbers go on as if nothing had been deleted.

use millrace_journal::{HeadGuard, Placed, Tip};

use super::placing::pairs;
use super::subject::{JournalSubject, TestHandle};
use super::test_record::{TestChain, TestRecord};

/// More than one page of a list or one request of an object store holds.
const MANY: usize = 1_100;

/// Panics unless the journal holds the given records from number `n` on. Of those below, an engine may still have some.
fn assert_kept(handle: &TestHandle, n: u64, expected: &[TestRecord]) {
    assert_eq!(handle.read_all(n), pairs(expected));
    let mut all = handle.read_all(1);
    all.retain(|(found, _)| n <= *found);
    assert_eq!(all, pairs(expected), "what is left is found without knowing where it begins");
}

pub(super) fn deleting_leaves_all_numbers_from_the_given_one_on(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    let mut chain = TestChain::START;
    let mut placed = handle.place_next(&mut chain, 10, 100);
    handle.delete_below(6);
    for handle in [&handle, &beside] {
        assert_kept(handle, 6, &placed[5..]);
    }
    placed.extend(beside.place_next(&mut chain, 3, 100));
    assert_kept(&handle, 6, &placed[5..]);
    beside.delete_below(12);
    assert_kept(&handle, 12, &placed[11..]);
}

pub(super) fn deleting_again_or_less_changes_nothing(s: &JournalSubject) {
    let handle = s.handle();
    handle.delete_below(1);
    handle.delete_below(5);
    let mut chain = TestChain::START;
    let placed = handle.place_next(&mut chain, 8, 100);
    for n in [0, 1, 4, 4, 2, 0] {
        handle.delete_below(n);
    }
    assert_kept(&handle, 4, &placed[3..]);
    assert_eq!(s.beside().place(&TestRecord::new(8, placed[6].tip, 9, 100)), Placed::Taken);
}

pub(super) fn more_records_than_one_request_holds_are_deleted(s: &JournalSubject) {
    let handle = s.handle();
    let placed = handle.place_first(MANY, 40);
    assert_eq!(handle.read_all(1), pairs(&placed));
    let last = placed.len() as u64;
    handle.delete_below(last);
    assert_kept(&handle, last, &placed[MANY - 1..]);
}

pub(super) fn records_follow_after_all_were_deleted(s: &JournalSubject) {
    let handle = s.handle();
    let mut chain = TestChain::START;
    handle.place_next(&mut chain, 5, 100);
    handle.delete_below(6);
    assert_eq!(handle.read_all(6), []);
    let placed = s.beside().place_next(&mut chain, 2, 100);
    assert_kept(&handle, 6, &placed);
}

/// Elsewhere a deleted number is free again, and the user of the journal has to look at the manifest.
pub(super) fn a_deleted_number_stays_taken_where_the_engine_guards_its_head(s: &JournalSubject) {
    let handle = s.handle();
    let placed = handle.place_first(6, 100);
    handle.delete_below(5);
    if s.fitness().head_guard != HeadGuard::Engine {
        return;
    }
    for at in 0..4 {
        let prev = if at == 0 { Tip::START } else { placed[at - 1].tip };
        let late = TestRecord::new(at as u64 + 1, prev, 9, 100);
        assert_eq!(handle.place(&late), Placed::Taken, "{} was deleted", late.n);
    }
    assert_kept(&handle, 5, &placed[4..]);
}
