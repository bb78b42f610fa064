//! Engines that keep a commit on more than one machine: publishes are confirmed as `replicated`, by every way.

use crate::cluster::{Member, leader, program};
use crate::engines::TestEngine;

#[test]
fn a_replicated_engine_confirms_publishes_by_every_way() {
    let Some(engine) = TestEngine::seaweed() else { return };
    let url = format!("{}&replicated=true", engine.url());
    let folder = tempfile::tempdir().unwrap();
    let member = Member::start(folder.path(), "one", &url, &["--durability", "replicated"]);
    leader(std::slice::from_ref(&member));
    let ran = program().args(["pub", "orders", "1", "--json", "--url", &member.ws()]).output().unwrap();
    let (out, log) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.contains("replicated"), "{out} {log}");
    let (status, body) = member.post("2").unwrap();
    assert!(status == 200 && body.contains("\"replicated\""), "{status} {body}");
}

#[test]
fn a_server_that_must_replicate_does_not_start_on_an_engine_that_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::engines::folder_url(folder.path());
    for store in [store.as_str(), "sqlite:///app.db"] {
        let mut command = program();
        command.args(["serve", "--listen", "127.0.0.1:0", "--socket", "none", "--store", store]);
        let ran = command.args(["--durability", "replicated"]).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(2) && said.contains("can promise fsync at most"), "{said}");
    }
}
