//! An engine that refuses: rights that were taken away, a schema that was dropped. The servers stop writing, tell the
//! cause, and go on when an administrator has mended it.

use std::process::Command;

use crate::cluster::{Member, leader, payloads, publish, wait_for};
use crate::engines::{TestEngine, unique};
use crate::postgres::{postgres_bin, psql};

const FLAGS: [&str; 2] = ["--lead-timeout-ms", "1000"];

/// Waits until a server is not ready because of this, and looks at what else it tells.
#[track_caller]
fn refuses(member: &Member, cause: &str) {
    wait_for("the server tells the cause", || member.not_ready().filter(|why| why.contains(cause)));
    wait_for("the metric tells it", || (member.metric("store_reachable")? == 0.0).then_some(()));
    let log = member.log();
    assert!(log.lines().any(|line| line.contains("ERROR") && line.contains(cause)), "{log}");
    let (status, body) = member.post("9").unwrap();
    assert!(status >= 500, "{status} {body}");
}

#[test]
fn rights_that_are_taken_away_are_named_and_given_back_heal() {
    let Some(engine) = TestEngine::postgres() else { return };
    let admin = engine.url();
    let (role, schema) = (unique(), unique());
    psql(&admin, &format!("CREATE ROLE {role} LOGIN; CREATE SCHEMA {schema} AUTHORIZATION {role}"));
    let url = format!("postgres://{role}@{}/postgres?schema={schema}", engine.addr);
    let folder = tempfile::tempdir().unwrap();
    let members = ["one", "two"].map(|name| Member::start(folder.path(), name, &url, &FLAGS));
    leader(&members);
    let urls = members.iter().map(Member::ws).collect::<Vec<_>>().join(",");
    publish(&urls, "1");
    psql(&admin, &format!("REVOKE UPDATE ON {schema}.millrace_head FROM {role}"));
    for member in &members {
        refuses(member, &format!("GRANT UPDATE ON \"{schema}\".millrace_head TO"));
        assert!(member.log().contains("permission denied"), "{}", member.log());
    }
    psql(&admin, &format!("GRANT UPDATE ON {schema}.millrace_head TO {role}"));
    leader(&members);
    publish(&urls, "2");
    for member in &members {
        wait_for("both have the events", || (payloads(member) == ["1", "2"]).then_some(()));
        wait_for("both are ready", || member.not_ready().is_none().then_some(()));
        assert_eq!(member.metric("store_reachable"), Some(1.0));
    }
    drop(members);
    psql(&admin, &format!("DROP SCHEMA {schema} CASCADE; DROP ROLE {role}"));
}

#[test]
fn a_schema_that_was_dropped_is_not_made_anew_and_its_backup_heals() {
    let (Some(engine), Some(bin)) = (TestEngine::postgres(), postgres_bin()) else { return };
    let url = engine.url();
    let schema = url.rsplit_once("schema=").unwrap().1.to_owned();
    let folder = tempfile::tempdir().unwrap();
    let members = ["one", "two"].map(|name| Member::start(folder.path(), name, &url, &FLAGS));
    leader(&members);
    let urls = members.iter().map(Member::ws).collect::<Vec<_>>().join(",");
    publish(&urls, "1");
    let (database, backup) = (url.split('?').next().unwrap(), folder.path().join("backup.sql"));
    let dumped =
        Command::new(bin.join("pg_dump")).args([database, "-n", &schema, "-f"]).arg(&backup).status();
    assert!(dumped.unwrap().success());
    psql(&url, &format!("DROP SCHEMA {schema} CASCADE"));
    for member in &members {
        refuses(member, &format!("the schema {schema} of the journal is gone"));
    }
    assert_eq!(psql(&url, &format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'")), "0");
    let restored = Command::new(bin.join("psql"))
        .args([database, "-q", "-v", "ON_ERROR_STOP=1", "-f"])
        .arg(&backup)
        .output();
    let restored = restored.unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    leader(&members);
    publish(&urls, "2");
    for member in &members {
        wait_for("both have the events", || (payloads(member) == ["1", "2"]).then_some(()));
    }
}
