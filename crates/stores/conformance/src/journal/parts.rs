//! Parts of snapshots: kept, listed, deleted, and apart from the records.

use std::thread;

use bytes::Bytes;
use millrace_journal::PartName;

use super::placing::pairs;
use super::subject::JournalSubject;
use super::test_record::{TestChain, TestRecord};

const PART_BYTES: usize = 8 << 20;
/// More than one page of a list holds.
const MANY: usize = 1_100;
/// Threads that store many parts.
const WRITERS: usize = 8;

fn name(snapshot: u64, part: usize) -> PartName {
    PartName(format!("{snapshot:020}-0123456789abcdef/{part:06}"))
}

fn content(seed: u64, size: usize) -> Bytes {
    TestRecord::new(seed, Default::default(), seed, size).bytes
}

pub(super) fn parts_are_kept_listed_and_deleted(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    let mut expected: Vec<PartName> = (0..3).map(|part| name(7, part)).collect();
    expected.extend((0..2).map(|part| name(19, part)));
    for (at, part) in expected.iter().enumerate() {
        handle.put_part(part, &content(at as u64, 1_000));
    }
    assert_eq!(beside.parts(), expected);
    for (at, part) in expected.iter().enumerate() {
        assert_eq!(beside.get_part(part), Some(content(at as u64, 1_000)), "{part}");
    }
    beside.delete_part(&expected[1]);
    beside.delete_part(&expected[3]);
    expected.remove(3);
    expected.remove(1);
    assert_eq!(handle.parts(), expected);
    assert_eq!(handle.get_part(&name(7, 1)), None);
    for part in &expected {
        handle.delete_part(part);
    }
    assert_eq!(beside.parts(), []);
}

pub(super) fn a_part_may_be_stored_twice(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    let bytes = content(1, 5_000);
    for handle in [&handle, &beside, &handle] {
        handle.put_part(&name(1, 0), &bytes);
        assert_eq!(beside.parts(), [name(1, 0)]);
        assert_eq!(beside.get_part(&name(1, 0)), Some(bytes.clone()));
    }
}

pub(super) fn a_missing_part_is_none(s: &JournalSubject) {
    let handle = s.handle();
    assert_eq!(handle.get_part(&name(1, 0)), None);
    handle.delete_part(&name(1, 0));
    handle.put_part(&name(1, 1), &content(1, 100));
    assert_eq!(handle.get_part(&name(1, 0)), None);
    handle.delete_part(&name(1, 0));
    handle.delete_part(&name(1, 1));
    handle.delete_part(&name(1, 1));
    assert_eq!(handle.get_part(&name(1, 1)), None);
}

pub(super) fn large_parts_are_kept_as_they_are(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    for (part, size) in [PART_BYTES, PART_BYTES, 33, PART_BYTES - 1].into_iter().enumerate() {
        let bytes = content(part as u64, size);
        handle.put_part(&name(3, part), &bytes);
        assert!(beside.get_part(&name(3, part)) == Some(bytes), "part {part} of {size} bytes");
    }
    assert_eq!(beside.parts().len(), 4);
}

pub(super) fn more_parts_than_one_page_are_listed(s: &JournalSubject) {
    let handle = s.handle();
    let expected: Vec<PartName> = (0..MANY).map(|part| name(1, part)).collect();
    thread::scope(|scope| {
        for share in expected.chunks(MANY.div_ceil(WRITERS)) {
            let handle = &handle;
            scope.spawn(move || share.iter().for_each(|part| handle.put_part(part, b"small")));
        }
    });
    assert_eq!(s.beside().parts(), expected);
}

pub(super) fn parts_and_records_are_kept_apart(s: &JournalSubject) {
    let handle = s.handle();
    let mut chain = TestChain::START;
    let placed = handle.place_next(&mut chain, 4, 100);
    handle.put_part(&name(1, 0), &content(1, 100));
    assert!(handle.set_manifest(b"apart", None));
    handle.delete_below(3);
    assert_eq!(handle.parts(), [name(1, 0)]);
    handle.delete_part(&name(1, 0));
    assert_eq!(handle.read_all(3), pairs(&placed[2..]));
    assert_eq!(handle.manifest().map(|read| read.bytes), Some("apart".into()));
}
