//! The disk of the leader's copy is full: what it has confirmed stays, another server leads, and the first one follows
//! again when there is room.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{Member, leader, payloads, publish, wait_for};
use crate::engines::folder_url;

/// A small disk, which goes with this value.
struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Returns `None`, and says so, where nobody may mount anything.
    fn new(at: &Path) -> Option<SmallDisk> {
        std::fs::create_dir_all(at).unwrap();
        let disk = SmallDisk { at: at.to_owned() };
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(disk);
        }
        println!("skipped: this user may not mount a small disk");
        std::mem::forget(disk);
        None
    }

    fn grow(&self) {
        let grown = Command::new("mount").args(["-o", "remount,size=200m"]).arg(&self.at).status();
        assert!(grown.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Also while a server still has files open there.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

#[test]
fn a_full_disk_under_the_leaders_copy_costs_the_lead_and_no_event() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(&folder.path().join("one/cache")) else { return };
    let store = folder_url(folder.path());
    let flags = ["--lead-timeout-ms", "2000", "--disk-free-bytes-min", "0"];
    let one = Member::start(folder.path(), "one", &store, &flags);
    leader(std::slice::from_ref(&one));
    let members = [one, Member::start(folder.path(), "two", &store, &flags)];
    let urls = members.iter().map(Member::ws).collect::<Vec<_>>().join(",");
    // Each payload has 50 kB, so that the disk is soon full; the client finds the next leader by itself.
    let filler = "x".repeat(50_000);
    let payload = |n: u32| format!("\"{n}-{filler}\"");
    let mut count = 0;
    wait_for("another server leads", || {
        count += 1;
        publish(&urls, &payload(count));
        (members[1].role()? == "leader").then_some(())
    });
    count += 1;
    publish(&urls, &payload(count));
    let expected: Vec<String> = (1..=count).map(payload).collect();
    let is_whole = |member: &Member| payloads(member) == expected;
    wait_for("the other server has all of them", || is_whole(&members[1]).then_some(()));
    let why = wait_for("the server without room is not ready", || members[0].not_ready());
    println!("{count} events; {why}");
    assert!(members[0].log().to_lowercase().contains("full"), "{}", members[0].log());
    disk.grow();
    wait_for("the first server follows", || is_whole(&members[0]).then_some(()));
    wait_for("the first server is ready", || members[0].not_ready().is_none().then_some(()));
    assert_eq!(members[0].copies().len(), 1, "the copy that was full goes on: {:?}", members[0].cached(""));
    drop(members);
}
