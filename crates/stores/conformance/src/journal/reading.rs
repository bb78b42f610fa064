//! Reading: pages, where they end, and nothing beyond the last record.

use super::placing::pairs;
use super::subject::JournalSubject;
use super::test_record::TestChain;

pub(super) fn pages_end_at_their_record_limit(s: &JournalSubject) {
    let handle = s.handle();
    let placed = handle.place_first(40, 100);
    for records_max in [1, 2, 7, 16, 39, 40, 41, 1_000] {
        let mut read = Vec::new();
        loop {
            let page = handle.page(read.len() as u64 + 1, records_max, usize::MAX);
            if page.is_empty() {
                break;
            }
            read.extend(page);
        }
        assert_eq!(read, pairs(&placed), "pages of {records_max}");
    }
}

pub(super) fn pages_end_at_their_byte_limit_but_hold_one_record(s: &JournalSubject) {
    let handle = s.handle();
    let mut chain = TestChain::START;
    let mut placed = handle.place_next(&mut chain, 10, 1_000);
    placed.extend(handle.place_next(&mut chain, 2, 100_000));
    placed.extend(handle.place_next(&mut chain, 10, 1_000));
    for bytes_max in [0, 1, 999, 1_000, 1_001, 5_000, 50_000, 200_000, usize::MAX] {
        let mut read = Vec::new();
        loop {
            // The page looks at its limits itself.
            let page = handle.page(read.len() as u64 + 1, 1_000, bytes_max);
            if page.is_empty() {
                break;
            }
            read.extend(page);
        }
        assert_eq!(read.len(), placed.len(), "pages of {bytes_max} bytes");
        assert!(read == pairs(&placed), "pages of {bytes_max} bytes");
    }
}

pub(super) fn reading_beyond_the_end_is_empty(s: &JournalSubject) {
    let handle = s.handle();
    let beyond = [4, 5, 1_000, i64::MAX as u64, u64::MAX];
    for from in [0, 1].into_iter().chain(beyond) {
        assert_eq!(handle.page(from, 10, usize::MAX), [], "{from} of an empty journal");
    }
    handle.place_first(3, 100);
    for from in beyond {
        assert_eq!(handle.page(from, 10, usize::MAX), [], "{from} of 3");
    }
}
