//! A leader that is cut off from the engine: it cannot know whether it was replaced, so it lets its clients go.

use std::path::Path;
use std::time::Duration;

use crate::cluster::{Member, leader, wait_for};
use crate::engines::TestEngine;
use crate::load::Load;
use crate::proxy::{Line, Proxy};

const FLAGS: [&str; 2] = ["--lead-timeout-ms", "1000"];

/// Starts servers, each behind a proxy of its own to the engine.
fn start(folder: &Path, engine: &TestEngine, count: usize) -> (Vec<Member>, Vec<Proxy>) {
    let proxies: Vec<Proxy> = (0..count).map(|_| Proxy::to(engine.addr)).collect();
    let members = proxies.iter().enumerate().map(|(at, proxy)| {
        Member::start(folder, &format!("server-{at}"), &engine.url_at(proxy.addr()), &FLAGS)
    });
    (members.collect(), proxies)
}

fn is_doubted(member: &Member) -> Option<()> {
    (member.metric("lead_in_doubt")? > 0.0).then_some(())
}

#[test]
fn clients_of_a_leader_that_is_cut_off_go_on_with_the_next_one() {
    let Some(engine) = TestEngine::postgres() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (members, proxies) = start(folder.path(), &engine, 2);
    let first = leader(&members);
    let load = Load::start(&members.iter().map(Member::ws).collect::<Vec<_>>().join(","));
    wait_for("publishes are confirmed", || (load.confirmed() >= 30).then_some(()));
    // Packets vanish: nobody tells the leader anything.
    proxies[first].set(Line::Silent);
    wait_for("the leader doubts its lead", || (members[first].metric("lead_in_doubt")? > 0.0).then_some(()));
    let (status, _, body) = members[first].get("/readyz").unwrap();
    assert!(status == 503 && body.contains("another one may lead"), "{status} {body}");
    // The line stays as it is, and the clients work with the other server.
    let before = load.confirmed();
    wait_for("publishes go on elsewhere", || (load.confirmed() >= before + 100).then_some(()));
    assert_eq!(members[first].metric("lead_in_doubt"), Some(1.0));
    assert!(members[first].log().contains("the lead is in doubt"), "{}", members[first].log());
    proxies[first].set(Line::Open);
    wait_for("the old leader follows", || (members[first].role()? == "follower").then_some(()));
    load.stop_publishing();
    load.wait_until_all_is_delivered();
    load.end();
}

#[test]
fn a_leader_that_was_not_replaced_goes_on_when_the_engine_is_back() {
    let Some(engine) = TestEngine::postgres() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (members, proxies) = start(folder.path(), &engine, 1);
    leader(&members);
    let load = Load::start(&members[0].ws());
    wait_for("publishes are confirmed", || (load.confirmed() >= 30).then_some(()));
    for line in [Line::Cut, Line::Silent] {
        proxies[0].set(line);
        wait_for("the leader doubts", || is_doubted(&members[0]));
        // A write is refused at once; reads go on.
        let (status, body) = members[0].post("1").unwrap();
        assert!(status == 503 && body.contains("\"moved\""), "{status} {body}");
        assert_eq!(members[0].get("/topics/orders/events?from=1&limit=1").unwrap().0, 200);
        std::thread::sleep(Duration::from_millis(1_500));
        proxies[0].set(Line::Open);
        let before = load.confirmed();
        wait_for("publishes go on", || (load.confirmed() >= before + 30).then_some(()));
        wait_for("no doubt is left", || (members[0].metric("lead_in_doubt")? == 0.0).then_some(()));
    }
    let log = members[0].log();
    assert_eq!(log.matches("this server leads the store").count(), 1, "the lead was never lost: {log}");
    load.stop_publishing();
    load.wait_until_all_is_delivered();
    load.end();
}
