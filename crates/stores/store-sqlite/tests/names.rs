//! A file and its names: through links, relative paths and `..` every command means the same store, with one set of
//! locks, and never touches the link.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use millrace_conformance::build::{append, batch, stream};
use millrace_model::Offset;
use millrace_store::{ReadLimit, Store, StoreError};
use millrace_store_sqlite::{
    BackupError, Doctor, Existing, FileError, ReadOnlyError, Restore, ServeLock, SqliteOptions, SqliteStore,
    backup,
};

const WHOLE: ReadLimit = ReadLimit { events_max: 10_000, bytes_max: usize::MAX };

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn publish(store: &SqliteStore, count: u64) {
    for n in 0..count {
        store.commit(&[batch(n, vec![append(&stream("t", 0), "x")])]).unwrap();
    }
}

fn events(path: &Path) -> usize {
    open(path).read(&stream("t", 0), Offset(1), WHOLE).unwrap().events.len()
}

/// Makes `real/store.db` and, in another folder, a link to it, `link.db`.
fn linked() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real/store.db"), folder.path().join("link.db"));
    symlink("real/store.db", &link).unwrap();
    (folder, real, link)
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().unwrap().is_symlink()
}

/// A link that is switched between locking and opening must not lead the two to different stores.
#[test]
fn a_server_opens_the_store_whose_lock_it_has() {
    let (folder, real, link) = linked();
    let lock = ServeLock::acquire(&link).unwrap();
    std::fs::remove_file(&link).unwrap();
    symlink("real/other.db", &link).unwrap();
    let store = SqliteStore::open_served(lock, SqliteOptions::default()).unwrap();
    publish(&store, 3);
    assert_eq!(store.path(), real.canonicalize().unwrap());
    assert!(!folder.path().join("real/other.db").exists());
    assert!(ServeLock::is_held(&real) && !ServeLock::is_held(&link));
}

#[test]
fn a_store_is_made_where_a_link_leads_and_shared_under_all_its_names() {
    let (folder, real, link) = linked();
    let one = open(&link);
    assert!(real.is_file() && is_link(&link));
    assert!(!folder.path().join("link.db-locks").exists(), "its locks lie beside the file");
    let other = open(&real);
    publish(&one, 3);
    publish(&other, 3);
    assert_eq!(one.read(&stream("t", 0), Offset(1), WHOLE).unwrap().events.len(), 6);
    assert!(!folder.path().join("link.db-wal").exists());
    let dotted = folder.path().join("real/../real/store.db");
    let serve = ServeLock::acquire(&dotted).unwrap();
    for name in [&link, &real] {
        assert!(ServeLock::is_held(name));
        let refused = ServeLock::acquire(name).unwrap_err();
        let who = format!("already served by process {}", std::process::id());
        assert!(matches!(&refused, StoreError::InUse(what) if what.text().contains(&who)), "{refused}");
        let refused = Restore::prepare(&copy_of(&real), name, Existing::Replace).unwrap_err();
        assert!(matches!(refused, BackupError::InUse(_)), "{refused}");
    }
    drop(serve);
}

fn copy_of(store: &Path) -> PathBuf {
    let copy = store.with_extension("copy");
    backup(store, &copy, Existing::Replace).unwrap();
    copy
}

#[test]
fn backup_restore_and_doctor_work_on_what_the_link_leads_to() {
    let (folder, real, link) = linked();
    let store = open(&real);
    publish(&store, 5);
    // The target is a link too, first to nothing and then to a file.
    let (copy, copy_link) = (folder.path().join("copies"), folder.path().join("copy"));
    symlink(&copy, &copy_link).unwrap();
    assert_eq!(backup(&link, &copy_link, Existing::Keep).unwrap().events, 5);
    publish(&store, 5);
    assert!(matches!(backup(&link, &copy_link, Existing::Keep), Err(BackupError::Exists(_))));
    assert_eq!(backup(&link, &copy_link, Existing::Replace).unwrap().events, 10);
    assert!(is_link(&copy_link) && copy.is_file());
    publish(&store, 5);
    assert_eq!(Doctor::open(&link).unwrap().examine().events, 15, "with what is in the log");
    drop(store);
    Restore::prepare(&copy_link, &link, Existing::Replace).unwrap().finish().unwrap();
    assert!(is_link(&link), "the link is still one");
    assert_eq!((events(&real), events(&link)), (10, 10));
    // The link's target does not exist yet.
    std::fs::remove_file(&real).unwrap();
    Restore::prepare(&copy_link, &link, Existing::Keep).unwrap().finish().unwrap();
    assert!(is_link(&link) && events(&real) == 10);
}

#[test]
fn a_store_with_two_hard_links_is_refused_by_all() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one.db"), folder.path().join("two.db"));
    let copy = folder.path().join("copy");
    publish(&open(&one), 3);
    backup(&one, &copy, Existing::Keep).unwrap();
    std::fs::hard_link(&one, &two).unwrap();
    for name in [&one, &two] {
        let refused = SqliteStore::open(name, SqliteOptions::default()).unwrap_err().to_string();
        assert!(refused.contains("2 names (hard links)"), "{refused}");
        assert!(matches!(ServeLock::acquire(name), Err(StoreError::Unusable(_))));
        let linked =
            |error: &ReadOnlyError| matches!(error, ReadOnlyError::File(FileError::Linked { names: 2, .. }));
        assert!(linked(&Doctor::open(name).unwrap_err()));
        let refused = backup(name, &folder.path().join("other"), Existing::Keep).unwrap_err();
        assert!(matches!(&refused, BackupError::ReadOnly(error) if linked(error)), "{refused}");
        let refused = Restore::prepare(&copy, name, Existing::Replace).unwrap_err();
        assert!(matches!(refused, BackupError::File(FileError::Linked { .. })), "{refused}");
    }
    // A backup may have several names: it has no log.
    std::fs::hard_link(&copy, folder.path().join("copy-2")).unwrap();
    assert!(Doctor::open(&copy).unwrap().examine().findings.is_healthy());
    std::fs::remove_file(&two).unwrap();
    Restore::prepare(&copy, &one, Existing::Replace).unwrap().finish().unwrap();
    assert_eq!(events(&one), 3);
}

#[test]
fn everything_is_for_its_owner_only_and_older_modes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/store.db");
    let copy = folder.path().join("copy");
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let store = open(&path);
    publish(&store, 1);
    let serve = ServeLock::acquire(&path).unwrap();
    let beside = |more: &str| PathBuf::from(format!("{}{more}", path.display()));
    for file in
        ["", "-wal", "-shm", "-locks/gate", "-locks/open", "-locks/poison", "-locks/writer", "-locks/serve"]
    {
        assert_eq!(mode(&beside(file)), 0o600, "{file}");
    }
    for made in ["a", "a/b", "a/b/store.db-locks"] {
        assert_eq!(mode(&folder.path().join(made)), 0o700, "{made}");
    }
    drop((store, serve));
    // The modes that older versions left. The user's file keeps its mode, but copies do not take it over.
    set(&path, 0o644);
    set(&beside("-locks"), 0o755);
    backup(&path, &copy, Existing::Keep).unwrap();
    assert_eq!((mode(&copy), mode(&path)), (0o600, 0o644));
    let notes: Vec<_> = Doctor::open(&path).unwrap().examine().findings.list().to_vec();
    assert!(notes.iter().any(|note| note.what.contains("mode 0644")), "{notes:?}");
    assert!(notes.iter().any(|note| note.what.contains("mode 0755")), "{notes:?}");
    drop(open(&path));
    assert_eq!((mode(&path), mode(&beside("-locks"))), (0o644, 0o700));
    set(&copy, 0o444);
    Restore::prepare(&copy, &path, Existing::Replace).unwrap().finish().unwrap();
    assert_eq!(mode(&path), 0o600);
    // Nothing is written into another user's file or through a link.
    std::fs::remove_file(&copy).unwrap();
    symlink(folder.path().join("elsewhere"), folder.path().join("copy.partial")).unwrap();
    assert!(matches!(backup(&path, &copy, Existing::Keep), Err(BackupError::Foreign(_))));
    assert!(!folder.path().join("elsewhere").exists());
}
