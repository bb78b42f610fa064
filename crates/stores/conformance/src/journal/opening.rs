//! Checking a journal that is new, that is checked already, and that several handles check at the same time.

use std::thread;

use super::subject::JournalSubject;
use super::test_record::TestChain;

const HANDLES: usize = 8;

pub(super) fn a_new_journal_is_empty(s: &JournalSubject) {
    for handle in [s.handle(), s.beside()] {
        assert_eq!(handle.read_all(0), []);
        assert_eq!(handle.manifest(), None);
        assert_eq!(handle.parts(), []);
    }
    assert_ne!(s.fitness().engine, "", "log lines name the engine");
}

pub(super) fn checking_again_changes_nothing(s: &JournalSubject) {
    let handle = s.handle();
    let mut chain = TestChain::START;
    let mut placed = handle.place_next(&mut chain, 3, 100);
    assert!(handle.set_manifest(b"kept", None));
    assert_eq!(handle.check(), *s.fitness());
    let beside = s.beside();
    for handle in [&handle, &beside] {
        placed.extend(handle.place_next(&mut chain, 1, 100));
        assert_eq!(handle.manifest().map(|read| read.bytes), Some("kept".into()));
    }
    let expected: Vec<_> = placed.iter().map(|record| (record.n, record.bytes.clone())).collect();
    assert_eq!(beside.read_all(1), expected);
}

/// Servers that start together on a new journal all make its tables or collections.
pub(super) fn handles_that_check_at_the_same_time_all_succeed(s: &JournalSubject) {
    let handles: Vec<_> = (0..HANDLES).map(|_| s.unchecked()).collect();
    thread::scope(|scope| {
        for handle in &handles {
            scope.spawn(|| handle.check());
        }
    });
    let mut chain = TestChain::START;
    for (at, handle) in handles.iter().enumerate() {
        handle.place_next(&mut chain, 1, 100);
        assert_eq!(s.handle().read_all(1).len(), at + 1);
    }
}
