//! An engine that is not there: at the start, and for long in the middle. Servers wait, tell why, and go on by
//! themselves.

use crate::cluster::{Member, leader, payloads, program, publish, wait_for};
use crate::private::PrivateEngine;

#[test]
fn servers_start_before_their_engine_and_are_ready_when_it_appears() {
    let Some(mut engine) = PrivateEngine::postgres() else { return };
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--lead-timeout-ms", "1000"];
    let members = ["one", "two"].map(|name| Member::start(folder.path(), name, &engine.url(), &flags));
    for member in &members {
        let is_told = |why: &String| why.contains("waiting for the engine of the shared store");
        let why = wait_for("the server is not ready", || member.not_ready().filter(is_told));
        assert!(why.contains("refused"), "the cause is told: {why}");
        wait_for("the metric tells it", || (member.metric("store_reachable")? == 0.0).then_some(()));
        assert!(member.log().contains("waiting for the engine"), "{}", member.log());
        let (status, body) = member.post("0").unwrap();
        assert_eq!(status, 503, "{body}");
        assert_eq!(member.get("/healthz").unwrap().0, 200);
    }
    let too_long = program()
        .args(["serve", "--socket", "none", "--listen", "127.0.0.1:0", "--store-wait-ms", "300", "--store"])
        .arg(engine.url())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&too_long.stderr);
    assert_eq!(too_long.status.code(), Some(3), "{told}");
    assert!(told.contains("could not be reached"), "{told}");
    engine.start();
    leader(&members);
    publish(&members.iter().map(Member::ws).collect::<Vec<_>>().join(","), "1");
    for member in &members {
        wait_for("both are ready", || member.not_ready().is_none().then_some(()));
        wait_for("both have the event", || (payloads(member) == ["1"]).then_some(()));
        assert_eq!(member.metric("store_reachable"), Some(1.0));
    }
}

#[test]
fn an_engine_that_is_away_for_long_stops_nothing_but_writing() {
    let Some(mut engine) = PrivateEngine::postgres() else { return };
    engine.start();
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--lead-timeout-ms", "1000", "--commit-stall-ms-max", "500", "--store-wait-ms", "300"];
    let members = ["one", "two"].map(|name| Member::start(folder.path(), name, &engine.url(), &flags));
    leader(&members);
    let urls = members.iter().map(Member::ws).collect::<Vec<_>>().join(",");
    publish(&urls, "1");
    wait_for("both have the event", || members.iter().all(|member| payloads(member) == ["1"]).then_some(()));
    engine.stop();
    for member in &members {
        // The leader doubts its lead, the follower misses the engine.
        let words = ["could not write to the shared store", "the engine of the store could not be reached"];
        let is_told = |why: &String| words.iter().any(|words| why.contains(words));
        wait_for("the server is not ready", || member.not_ready().filter(is_told));
        assert_eq!(member.metric("store_reachable"), Some(0.0));
        assert_eq!(payloads(member), ["1"], "history is read from the copy");
        assert!(member.log().contains("cannot be reached"), "{}", member.log());
    }
    engine.start();
    leader(&members);
    publish(&urls, "2");
    for member in &members {
        wait_for("both are ready", || member.not_ready().is_none().then_some(()));
        wait_for("both have the events", || (payloads(member) == ["1", "2"]).then_some(()));
        assert!(member.log().contains("reachable again"), "{}", member.log());
    }
}
