//! A database that is set back to an older backup: the servers notice, tell which events are gone, keep the copy that has
//! them, and go on.

use crate::cluster::{Member, leader, payloads, program, publish, wait_for};
use crate::private::PrivateEngine;

#[test]
fn a_database_that_was_set_back_is_noticed_and_the_lost_events_are_listed() {
    let Some(mut engine) = PrivateEngine::postgres() else { return };
    engine.start();
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--lead-timeout-ms", "1000"];
    let members = ["one", "two"].map(|name| Member::start(folder.path(), name, &engine.url(), &flags));
    leader(&members);
    let urls = members.iter().map(Member::ws).collect::<Vec<_>>().join(",");
    publish(&urls, "1");
    engine.stop();
    engine.back_up();
    engine.start();
    for n in 2..=4 {
        let id = format!("lost-{n}");
        let ran =
            program().args(["pub", "orders", &n.to_string(), "--id", &id, "--url", &urls]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
    for member in &members {
        wait_for("both have the events", || (payloads(member) == ["1", "2", "3", "4"]).then_some(()));
    }
    engine.stop();
    engine.restore();
    engine.start();
    for member in &members {
        wait_for("the loss is told", || member.log().contains("the engine has lost events").then_some(()));
        let aside = member.cached(".diverged-");
        assert!(!aside.is_empty(), "the copy that has the events is kept");
        let lists = member.cached(".lost-");
        let [list] = &lists[..] else { panic!("{lists:?}") };
        let text = std::fs::read_to_string(list).unwrap();
        // The topic's own events and those of the server's own topics.
        for n in 2..=4u64 {
            let line = format!("\"offset\":{n}");
            let is_listed = |row: &str| row.contains(&format!("\"lost-{n}\"")) && row.contains(&line);
            assert!(text.lines().any(is_listed), "lost-{n} is missing in {text}");
        }
        let lines = text.lines().count();
        wait_for("the metric counts them", || {
            (member.metric("store_lost_events_total")? >= lines as f64).then_some(())
        });
    }
    leader(&members);
    publish(&urls, "5");
    for member in &members {
        wait_for("both go on from the backup", || (payloads(member) == ["1", "5"]).then_some(()));
    }
}
