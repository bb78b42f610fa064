//! SIGHUP on a server that follows: after a takeover the new leader honours the tokens of the reloaded file, and a leader
//! that is replaced keeps them, too.

use std::path::Path;
use std::time::Duration;

use crate::cluster::{Member, leader, program, wait_for};
use crate::engines::folder_url;

fn write(folder: &Path, agents: &[&str]) {
    let tokens: String = agents
        .iter()
        .map(|agent| {
            let scopes = "scopes = [\"publish\", \"subscribe\"]";
            format!("[[auth.tokens]]\ntoken = \"{agent}-secret\"\nagent = \"{agent}\"\n{scopes}\n")
        })
        .collect();
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("millrace.toml"), tokens).unwrap();
}

/// Waits until a server takes the new token and refuses the old one.
#[track_caller]
fn knows_the_new_token(member: &Member) {
    wait_for("the new token is valid", || (member.status_as("new-secret", "/topics")? == 200).then_some(()));
    assert_eq!(member.status_as("old-secret", "/topics"), Some(401));
}

#[test]
fn tokens_that_a_follower_has_read_again_hold_after_it_has_taken_the_lead() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder_url(folder.path());
    let flags = ["--lead-timeout-ms", "1000", "--config", "millrace.toml"];
    let mut members = ["one", "two"].map(|name| {
        write(&folder.path().join(name), &["old"]);
        Member::start(folder.path(), name, &store, &flags)
    });
    let first = leader(&members);
    let second = 1 - first;
    wait_for("the follower takes the old token", || {
        (members[second].status_as("old-secret", "/topics")? == 200).then_some(())
    });
    write(members[second].folder(), &["new"]);
    members[second].signal("HUP");
    knows_the_new_token(&members[second]);
    assert_eq!(members[first].status_as("old-secret", "/topics"), Some(200), "nobody told the leader");
    members[first].kill();
    assert_eq!(leader(&members), second);
    knows_the_new_token(&members[second]);
    let publish = |token: &str, member: &Member| {
        let url = member.ws();
        let args = ["pub", "orders", "1", "--token", token, "--url", &url];
        program().args(args).output().unwrap().status.success()
    };
    assert!(publish("new-secret", &members[second]));
    assert!(!publish("old-secret", &members[second]));
    // The leader is replaced and follows: what it has read again still holds.
    write(members[first].folder(), &["new"]);
    members[first].restart();
    wait_for("the other server follows", || (members[first].role()? == "follower").then_some(()));
    members[second].signal("STOP");
    std::thread::sleep(Duration::from_millis(2_000));
    assert_eq!(leader(&members[first..=first]), 0);
    members[second].signal("CONT");
    wait_for("the leader of before follows", || (members[second].role()? == "follower").then_some(()));
    knows_the_new_token(&members[second]);
    assert!(publish("new-secret", &members[first]));
}
