//! The journal in a folder: several processes, crashes, rights, and folders that are gone.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use millrace_conformance::journal::{TestChain, TestRecord};
use millrace_journal::{DirectoryJournal, Journal, JournalError, JournalReadLimit, PartName, Placed, Tip};

const WHOLE: JournalReadLimit = JournalReadLimit { records_max: usize::MAX, bytes_max: usize::MAX };
const FOLDER: &str = "MILLRACE_TEST_FOLDER";
const WRITER: &str = "MILLRACE_TEST_WRITER";
const RECORDS: u64 = 200;

fn open(folder: &Path) -> DirectoryJournal {
    let journal = DirectoryJournal::new(folder);
    journal.check().unwrap();
    journal
}

/// Not a test of its own: the body of the child processes. Does nothing unless the parent sets the environment.
#[test]
fn child_places_every_number() {
    let (Some(folder), Ok(writer)) = (std::env::var_os(FOLDER), std::env::var(WRITER)) else { return };
    let journal = open(Path::new(&folder));
    for n in 1..=RECORDS {
        // Tips do not matter to this journal.
        let record = TestRecord::new(n, Tip::START, writer.parse().unwrap(), 3_000);
        if journal.place(&record.placing()).unwrap() == Placed::Yes {
            let mut out = std::io::stdout().lock();
            writeln!(out, "placed {n}").unwrap();
            out.flush().unwrap();
        }
    }
}

fn spawn(folder: &Path, writer: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_places_every_number", "--nocapture"])
        .env(FOLDER, folder)
        .env(WRITER, writer.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn placed(line: &str) -> Option<u64> {
    line.strip_prefix("placed ")?.parse().ok()
}

#[test]
fn each_number_is_placed_by_one_of_several_processes() {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<(u64, Child)> = (1..=3).map(|writer| (writer, spawn(folder.path(), writer))).collect();
    let mut expected = BTreeMap::new();
    for (writer, mut child) in children {
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Some(n) = placed(&line.unwrap()) {
                let record = TestRecord::new(n, Tip::START, writer, 3_000).bytes;
                assert_eq!(expected.insert(n, record), None, "{n} was placed twice");
            }
        }
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(expected.len() as u64, RECORDS);
    assert_eq!(open(folder.path()).read(1, WHOLE).unwrap(), expected.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_killed_writer_leaves_whole_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut confirmed = 0;
    // Each round goes on a little further than the one before.
    for round in 1..=8 {
        let mut child = spawn(folder.path(), round);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers = lines.map_while(Result::ok).filter_map(|line| placed(&line));
        confirmed = numbers.take(round as usize * 3).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let found = open(folder.path()).read(1, WHOLE).unwrap();
        assert!(confirmed <= found.len() as u64, "{confirmed} confirmed, {} there", found.len());
        for (n, bytes) in found {
            let is_whole =
                (1..=round).any(|writer| TestRecord::new(n, Tip::START, writer, 3_000).bytes == bytes);
            assert!(is_whole, "{n} is nobody's record");
        }
    }
    assert!(confirmed > 100, "{confirmed}");
}

#[test]
fn check_removes_old_leftovers_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path());
    let leftover = |name: &str, hours: u64| {
        let file = File::create(folder.path().join("temp").join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3_600)).unwrap();
    };
    leftover("old", 2);
    leftover("young", 0);
    let journal = DirectoryJournal::new(folder.path());
    let remarks = journal.check().unwrap().remarks;
    assert!(remarks.iter().any(|remark| remark.starts_with("1 files")), "{remarks:?}");
    let left: Vec<_> = fs::read_dir(folder.path().join("temp")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn everything_is_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("new");
    let journal = open(&root);
    assert_eq!(journal.check().unwrap().remarks, [""; 0]);
    journal.place(&TestChain::START.candidate(1, 100).placing()).unwrap();
    journal.put_part(&PartName("1-a/0".to_owned()), b"part").unwrap();
    assert!(journal.set_manifest(b"manifest", None).unwrap());
    let mode = |path: &str| root.join(path).metadata().unwrap().permissions().mode() & 0o777;
    for path in ["", "journal", "snapshot", "snapshot/1-a", "temp"] {
        assert_eq!(mode(path), 0o700, "{path}");
    }
    for path in ["journal/00000000000000000001", "snapshot/1-a/0", "manifest", "manifest.lock"] {
        assert_eq!(mode(path), 0o600, "{path}");
    }
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    let remarks = journal.check().unwrap().remarks;
    assert!(remarks[0].contains("chmod 700"), "{remarks:?}");
}

#[test]
fn a_folder_that_is_gone_is_not_an_empty_journal() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(&folder.path().join("journal"));
    let name = PartName("1-a/0".to_owned());
    fs::rename(folder.path().join("journal"), folder.path().join("elsewhere")).unwrap();
    let record = TestChain::START.candidate(1, 100);
    for error in [
        journal.read(1, WHOLE).err(),
        journal.place(&record.placing()).err(),
        journal.manifest().err(),
        journal.set_manifest(b"new", None).err(),
        journal.put_part(&name, b"part").err(),
        journal.get_part(&name).err(),
        journal.parts().err(),
        journal.delete_part(&name).err(),
        journal.delete_below(5).err(),
    ] {
        assert!(matches!(error, Some(JournalError::Refused(_))), "{error:?}");
    }
    let deep = DirectoryJournal::new(folder.path().join("not-mounted/journal"));
    let error = deep.check().unwrap_err();
    assert!(
        matches!(error, JournalError::Refused(_)) && error.to_string().contains("not-mounted"),
        "{error}"
    );
}

#[test]
fn a_part_cannot_leave_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let error = journal.put_part(&PartName("../manifest".to_owned()), b"mine").unwrap_err();
    assert!(matches!(error, JournalError::Refused(_)), "{error}");
    assert_eq!(journal.manifest().unwrap(), None);
}

#[test]
fn a_damaged_manifest_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    fs::write(folder.path().join("manifest"), "").unwrap();
    let error = journal.manifest().unwrap_err();
    assert!(matches!(error, JournalError::Refused(_)) && error.to_string().contains("backup"), "{error}");
    assert!(journal.set_manifest(b"new", None).is_err());
}

#[test]
fn a_number_that_was_deleted_is_free_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let record = TestChain::START.candidate(1, 100);
    assert_eq!(journal.place(&record.placing()), Ok(Placed::Yes));
    journal.delete_below(2).unwrap();
    assert_eq!(journal.place(&record.placing()), Ok(Placed::Yes), "which is why HeadGuard::Manifest is told");
}
