//! No room: callers get an error, the loop of a session waits, and both continue when there is room.

use std::path::Path;

use millrace_conformance::build::{append, batch, put, stream, trim};
use millrace_model::Space;
use millrace_stores::{SqliteSettings, StoreOptions, StoreUrl, open_shared};

use super::*;

fn at_most(file_bytes_max: u64) -> StoreOptions {
    let sqlite = SqliteSettings { file_bytes_max: Some(file_bytes_max), ..SqliteSettings::default() };
    StoreOptions { sqlite, ..StoreOptions::default() }
}

fn start(folder: &Path, options: &StoreOptions) -> Committer {
    let url = StoreUrl::Sqlite(folder.join("store.db"));
    Committer::start(open_shared(&url, options).unwrap()).unwrap()
}

fn event(n: u64) -> Batch {
    batch(n, vec![append(&stream("t", 0), &"x".repeat(2000))])
}

#[test]
fn a_caller_is_told_of_a_full_disk_and_the_loop_waits_for_room() {
    let folder = tempfile::tempdir().unwrap();
    let committer = start(folder.path(), &at_most(600 << 10));
    let mut events = 0;
    let error = loop {
        match committer.commit(event(events)) {
            Ok(_) => events += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::NoSpace(_)), "{error}");
    // A batch of the loop and one of a caller, perhaps in the same commit: the caller gets the error, the loop does
    // not.
    let mailbox = Arc::new(Mailbox::default());
    committer.submit(vec![(BatchOrigin::Worker(mailbox.clone(), Token(7)), event(events))]);
    let refused = committer.commit(event(events));
    assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
    assert!(mailbox.take_all(Duration::ZERO).mail.is_empty());
    // Another process makes room; then the kept batch is written.
    let other =
        open_shared(&StoreUrl::Sqlite(folder.path().join("store.db")), &StoreOptions::default()).unwrap();
    other.store.commit(&[batch(events, vec![trim(&stream("t", 0), events)])]).unwrap();
    while other.store.maintain(1000).unwrap().more {}
    let mut mail = mailbox.take_all(Duration::from_secs(3600)).mail;
    assert!(
        matches!(mail.make_contiguous(), [Mail::Input(Input::Committed { token: Token(7), .. })]),
        "{mail:?}"
    );
}

#[test]
fn a_committer_whose_disk_is_full_ends_and_tells_who_waits() {
    let folder = tempfile::tempdir().unwrap();
    let committer = start(folder.path(), &at_most(400 << 10));
    while committer.commit(event(0)).is_ok() {}
    let mailbox = Arc::new(Mailbox::default());
    committer.submit(vec![(BatchOrigin::Worker(mailbox.clone(), Token(1)), event(1))]);
    drop(committer);
    let mut mail = mailbox.take_all(Duration::ZERO).mail;
    assert!(matches!(mail.make_contiguous(), [Mail::Input(Input::Failed { .. })]), "{mail:?}");
}

#[test]
fn below_the_mark_a_caller_may_add_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drop(start(folder.path(), &StoreOptions::default()));
    let committer =
        start(folder.path(), &StoreOptions { disk_free_bytes_min: u64::MAX, ..StoreOptions::default() });
    let refused = committer.commit(event(0));
    assert!(
        matches!(&refused, Err(StoreError::NoSpace(why)) if why.text().contains("bytes free")),
        "{refused:?}"
    );
    committer.commit(batch(0, vec![put(Space::Kv, "k", "v")])).unwrap();
}
