//! The manifest: replaced as a whole, and only by a writer that has seen what stands there.

use std::sync::Barrier;
use std::thread;

use millrace_journal::{ManifestRead, ManifestVersion};

use super::racing::joined;
use super::subject::{JournalSubject, TestHandle};
use crate::model::Draw;

const WRITERS: usize = 8;
const ROUNDS: usize = 10;
const SOME_SIZE: usize = 256 << 10;

fn standing(handle: &TestHandle, expected: &[u8]) -> ManifestVersion {
    match handle.manifest() {
        Some(ManifestRead { bytes, version, .. }) if bytes == expected => version,
        other => panic!("expected the manifest {expected:?}, found {other:?}"),
    }
}

pub(super) fn a_manifest_is_created_once(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    assert_eq!(beside.manifest(), None);
    let imagined = ManifestVersion("1".to_owned());
    assert!(!handle.set_manifest(b"there is none to replace", Some(&imagined)));
    assert_eq!(beside.manifest(), None);
    assert!(handle.set_manifest(b"first", None));
    assert!(!handle.set_manifest(b"second", None));
    assert!(!beside.set_manifest(b"third", None));
    assert_eq!(standing(&handle, b"first"), standing(&beside, b"first"));
}

pub(super) fn a_manifest_is_replaced_only_at_its_version(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    assert!(handle.set_manifest(b"one", None));
    let one = standing(&beside, b"one");
    assert!(beside.set_manifest(b"two", Some(&one)));
    let two = standing(&handle, b"two");
    assert_ne!(one, two);
    assert!(!handle.set_manifest(b"stale", Some(&one)));
    assert!(!handle.set_manifest(b"new again", None));
    assert_eq!(standing(&handle, b"two"), two, "a refused one changes nothing");
    assert!(handle.set_manifest(b"three", Some(&two)));
    assert!(!beside.set_manifest(b"late", Some(&two)));
    standing(&beside, b"three");
}

pub(super) fn racing_writers_of_the_manifest_have_one_winner(s: &JournalSubject) {
    let handles = [s.handle(), s.beside()];
    let mut was = None;
    for round in 0..ROUNDS {
        let start = Barrier::new(WRITERS);
        let (start, was_before) = (&start, was.as_ref());
        let texts: Vec<String> = (0..WRITERS).map(|writer| format!("{round} by {writer}")).collect();
        let winners: Vec<&String> = thread::scope(|scope| {
            let threads = texts.iter().zip(handles.iter().cycle()).map(|(text, handle)| {
                scope.spawn(move || {
                    start.wait();
                    handle.set_manifest(text.as_bytes(), was_before).then_some(text)
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().filter_map(joined).collect()
        });
        assert_eq!(winners.len(), 1, "winners in round {round}: {winners:?}");
        was = Some(standing(&handles[round % 2], winners[0].as_bytes()));
    }
}

pub(super) fn a_manifest_of_some_size_is_kept_as_it_is(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    let mut draw = Draw(5);
    let mut was = None;
    for size in [1, SOME_SIZE, 100] {
        let text: Vec<u8> = (0..size).map(|_| draw.next() as u8).collect();
        assert!(handle.set_manifest(&text, was.as_ref()), "{size} bytes");
        let Some(read) = beside.manifest() else { panic!("no manifest of {size} bytes") };
        assert!(read.bytes == text, "the manifest of {size} bytes is not what was written");
        was = Some(read.version);
    }
}
