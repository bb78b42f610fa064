//! Two servers on one store: one leads, the other follows, and takes over.

use crate::cluster::{Member, leader, payloads, publish, wait_for};
use crate::engines;

#[test]
fn a_follower_sends_clients_on_and_takes_over_when_the_leader_stops_or_dies() {
    engines::each(|store| {
        let folder = tempfile::tempdir().unwrap();
        let flags = ["--lead-timeout-ms", "1000"];
        let mut members = vec![
            Member::start(folder.path(), "one", store, &flags),
            Member::start(folder.path(), "two", store, &flags),
        ];
        let first = leader(&members);
        let second = 1 - first;
        let urls = members.iter().map(Member::ws).collect::<Vec<_>>().join(",");
        publish(&urls, "1");
        let phases = [first, second].map(|at| members[at].readyz().unwrap()["phase"].clone());
        assert_eq!(phases, ["leading", "following"]);
        // The follower has the event, and says where to publish.
        wait_for("the follower has the event", || {
            let (status, head, body) = members[second].get("/topics/orders/events?from=1")?;
            (status == 200
                && body.contains("\"payload\":1")
                && head.to_lowercase().contains("x-millrace-position"))
            .then_some(())
        });
        let (status, head, body) = members[second].get("/stats").unwrap();
        assert_eq!(status, 503, "{head} {body}");
        assert!(body.contains("\"moved\"") && body.contains(&members[first].addr.to_string()), "{body}");
        // An orderly stop hands the lead over.
        assert_eq!(members[first].stop(), Some(0), "{}", members[first].log());
        assert_eq!(leader(&members), second);
        publish(&urls, "2");
        // The old leader comes back as a follower.
        members[first].restart();
        wait_for("the old leader follows", || (members[first].role()? == "follower").then_some(()));
        // A killed leader is replaced after the timeout.
        members[second].kill();
        assert_eq!(leader(&members), first);
        publish(&urls, "3");
        members[second].restart();
        assert_eq!(payloads(&members[first]), ["1", "2", "3"]);
        wait_for("the other copy has all of it", || {
            (payloads(&members[second]) == ["1", "2", "3"]).then_some(())
        });
    });
}

#[test]
fn a_follower_logs_whom_it_follows_and_that_the_leader_has_the_same_address() {
    let store = tempfile::tempdir().unwrap();
    let url = engines::folder_url(store.path());
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str, advertise: &str| {
        Member::start(folder.path(), name, &url, &["--lead-timeout-ms", "30000", "--advertise", advertise])
    };
    let first = start("one", "http://one.test:7070");
    leader(std::slice::from_ref(&first));
    let (same, other) = (start("same", "http://one.test:7070"), start("other", "http://two.test:7070"));
    wait_for("the other one logs its leader", || {
        other.log().contains("this server follows http://one.test:7070").then_some(())
    });
    wait_for("the same address is noticed", || {
        same.log().contains("advertises the same address").then_some(())
    });
    assert_eq!(same.log().matches("advertises the same address").count(), 1, "said once");
}

#[test]
fn a_copy_that_is_deleted_or_damaged_is_made_again() {
    engines::each(|store| {
        let folder = tempfile::tempdir().unwrap();
        let mut member = Member::start(folder.path(), "one", store, &["--lead-timeout-ms", "1000"]);
        leader(std::slice::from_ref(&member));
        for payload in ["1", "2", "3"] {
            publish(&member.ws(), payload);
        }
        member.kill();
        let cache = member.folder().join("cache");
        std::fs::remove_dir_all(&cache).unwrap();
        member.restart();
        leader(std::slice::from_ref(&member));
        assert_eq!(payloads(&member), ["1", "2", "3"]);
        member.kill();
        let copy = std::fs::read_dir(&cache)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|extension| extension == "db"))
            .unwrap();
        std::fs::write(&copy, vec![0x5a; 40_000]).unwrap();
        member.restart();
        leader(std::slice::from_ref(&member));
        assert_eq!(payloads(&member), ["1", "2", "3"], "{}", member.log());
    });
}
