//! Events that an application publishes inside its own PostgreSQL transaction: published if and only if it commits,
//! and once, also when the leader is killed meanwhile.

use std::collections::BTreeMap;

use crate::cluster::{Member, leader, wait_for};
use crate::engines::TestEngine;
use crate::postgres::psql;

#[test]
fn what_a_transaction_publishes_is_stored_once_if_it_commits() {
    let Some(engine) = TestEngine::postgres() else { return };
    let url = engine.url();
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--lead-timeout-ms", "1000"];
    let mut members = vec![
        Member::start(folder.path(), "one", &url, &flags),
        Member::start(folder.path(), "two", &url, &flags),
    ];
    let mut at = leader(&members);
    let schema = url.rsplit_once("schema=").unwrap().1.to_owned();
    let publish = |n: u32, end: &str| {
        let sql = format!("BEGIN; SELECT {schema}.millrace_publish('orders', '{{\"n\":{n}}}'); {end};");
        psql(&url, &sql);
    };
    for n in 0..200u32 {
        publish(n, if n % 4 == 3 { "ROLLBACK" } else { "COMMIT" });
        if n % 50 == 25 {
            members[at].kill();
            members[at].restart();
            at = leader(&members);
        }
    }
    let expected: Vec<u32> = (0..200).filter(|n| n % 4 != 3).collect();
    wait_for("the outbox is empty", || {
        (psql(&url, &format!("SELECT count(*) FROM {schema}.millrace_outbox")) == "0").then_some(())
    });
    let times = wait_for("all of them are stored", || {
        let (status, _, body) = members[at].get("/topics/orders/events?from=1&limit=1000")?;
        assert_eq!(status, 200, "{body}");
        let page: serde_json::Value = serde_json::from_str(&body).ok()?;
        let mut times: BTreeMap<u32, u32> = BTreeMap::new();
        for event in page["events"].as_array()? {
            *times.entry(event["payload"]["n"].as_u64()? as u32).or_default() += 1;
        }
        (times.len() >= expected.len()).then_some(times)
    });
    assert_eq!(times.keys().copied().collect::<Vec<_>>(), expected);
    assert!(times.values().all(|count| *count == 1), "{times:?}");
}

#[test]
fn rows_that_wait_hold_up_none_behind_them_and_rows_that_are_too_large_are_refused() {
    let Some(engine) = TestEngine::postgres() else { return };
    let url = engine.url();
    let folder = tempfile::tempdir().unwrap();
    let member = Member::start(folder.path(), "one", &url, &["--topics-max", "8"]);
    leader(std::slice::from_ref(&member));
    let schema = url.rsplit_once("schema=").unwrap().1.to_owned();
    psql(&url, &format!("SELECT {schema}.millrace_publish('orders', '1')"));
    // More topics than this server may have, and more rows than the relay reads at once.
    psql(
        &url,
        &format!("SELECT count({schema}.millrace_publish('new.' || g, '1')) FROM generate_series(1, 600) g"),
    );
    psql(&url, &format!("SELECT {schema}.millrace_publish('orders', to_json(repeat('x', 3000000)))"));
    psql(&url, &format!("SELECT {schema}.millrace_publish('orders', '2')"));
    wait_for("the events behind are stored", || {
        let (_, _, body) = member.get("/topics/orders/events?from=1")?;
        body.contains("\"payload\":2").then_some(())
    });
    let refused =
        format!("SELECT count(*) FROM {schema}.millrace_outbox_refused WHERE reason LIKE '%1048576%'");
    wait_for("the large event is refused", || (psql(&url, &refused) == "1").then_some(()));
    assert!(
        psql(&url, &format!("SELECT count(*) FROM {schema}.millrace_outbox")).parse::<u32>().unwrap() > 500
    );
}
