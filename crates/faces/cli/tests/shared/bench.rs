//! `millrace bench engines` in small: it runs to its end, reports every figure beside a raw request of its engine, and
//! leaves nothing behind. The figures are not judged here.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::cluster::{program, wait_for};

const SMALL: [&str; 9] =
    ["--rounds", "1", "--seconds", "0.2", "--log-events", "512", "--kills", "1", "--json"];

fn bench(folder: &Path, store: &str, scenarios: &str) -> Vec<Value> {
    let ran = start(folder, store, scenarios).args(["--lead-timeout-ms", "1000"]).output().unwrap();
    rows(&ran)
}

fn start(folder: &Path, store: &str, scenarios: &str) -> Command {
    let temporary = folder.join("temporary");
    std::fs::create_dir_all(&temporary).unwrap();
    let mut command = program();
    command
        .args(["bench", "engines", "--store", store, "--scenario", scenarios, "--dir"])
        .arg(temporary)
        .args(SMALL)
        .env("AWS_ACCESS_KEY_ID", "tests")
        .env("AWS_SECRET_ACCESS_KEY", "secret-of-the-tests-0123456789")
        .env("AWS_REGION", "us-east-1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn rows(ran: &Output) -> Vec<Value> {
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    report["rows"].as_array().unwrap().clone()
}

#[track_caller]
fn has_figures(rows: &[Value], engine: &str, figures: &[(&str, &str)]) {
    for (scenario, figure) in figures {
        let scenario = format!("{engine} {scenario}");
        let is_it = |row: &&Value| row["scenario"] == *scenario && row["figure"] == *figure;
        let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("{scenario}, {figure}: {rows:#?}"));
        assert!(row["median"].as_f64().is_some_and(|median| median > 0.0), "{row}");
        assert!(row["probe_ms"].as_f64().is_some_and(|probe| probe > 0.0), "{row}");
    }
}

#[track_caller]
fn has_aims(rows: &[Value], figures: &[&str]) {
    for figure in figures {
        let row = rows.iter().find(|row| row["figure"] == *figure).expect(figure);
        assert!(row["aim"].is_string() && row["verdict"].is_string(), "{row}");
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// Every scenario that needs no SQL.
const FIGURES: [(&str, &str); 14] = [
    ("serial", "confirmed publish p50"),
    ("inflight", "256 in flight, rate"),
    ("inflight", "events per record"),
    ("commits", "256 events per commit"),
    ("fold", "journal folded"),
    ("fold", "folded / unsynced append"),
    ("fold", "new machine from a snapshot"),
    ("bytes", "journal bytes per event, 64 per record"),
    ("bytes", "journal bytes per handled event"),
    ("puts", "idle, records"),
    ("takeover", "kill -9 to publish, longest"),
    ("takeover", "orderly stop to publish, longest"),
    ("takeover", "lead timeout 1000 ms: kill -9 to publish p50"),
    ("fold", "unsynced append, 256 per commit"),
];

#[test]
fn a_folder_is_measured_beside_raw_files_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    std::fs::create_dir(&store).unwrap();
    std::fs::write(store.join("mine"), "mine").unwrap();
    let url = format!("dir:///{}", store.display());
    let rows = bench(folder.path(), &url, "serial,inflight,commits,fold,bytes,puts,takeover");
    has_figures(&rows, "dir", &FIGURES);
    has_figures(&rows, "dir", &[("serial", "raw append and sync of the disk p50")]);
    has_aims(
        &rows,
        &[
            "confirmed publish p50",
            "folded / unsynced append",
            "new machine from a snapshot",
            "journal bytes per event, 64 per record",
            "journal bytes per handled event",
            "kill -9 to publish, longest",
            "orderly stop to publish, longest",
        ],
    );
    assert_eq!(names_in(&store), ["mine"]);
    assert!(names_in(&folder.path().join("temporary")).is_empty());
}

#[test]
fn one_file_and_postgresql_are_measured_in_one_run() {
    let Ok(database) = std::env::var("TEST_POSTGRES") else {
        println!("skipped: TEST_POSTGRES is not set (cargo xtask test starts the engines)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:///{},{database}", folder.path().join("mine.db").display());
    let rows = bench(folder.path(), &url, "serial,inflight,commits,fold,bytes,outbox,takeover");
    has_figures(&rows, "sqlite", &[("serial", "confirmed publish p50"), ("inflight", "256 in flight, rate")]);
    let figures: Vec<(&str, &str)> =
        FIGURES.into_iter().filter(|(scenario, _)| *scenario != "puts").collect();
    has_figures(&rows, "postgres", &figures);
    has_figures(
        &rows,
        "postgres",
        &[
            ("inflight", "256 rows in one insert"),
            ("inflight", "256 rows in one insert, unique ids"),
            ("inflight", "rate / 256 rows in one insert"),
            ("commits", "rate / 256 rows in one insert"),
            ("commits", "rate / the same with unique ids"),
            ("outbox", "publishing / not publishing"),
            ("outbox", "outbox emptied"),
        ],
    );
    has_aims(&rows, &["rate / 256 rows in one insert"]);
    assert_eq!(names_in(folder.path()), ["temporary"]);
}

#[test]
fn object_storage_is_measured_with_and_without_its_interval() {
    let Ok(endpoint) = std::env::var("TEST_S3_SEAWEED") else {
        println!("skipped: TEST_S3_SEAWEED is not set (cargo xtask test starts the engines)");
        return;
    };
    // There already if another test was first.
    let _ = ureq::put(format!("{endpoint}/millrace-tests")).send_empty();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("s3://millrace-tests/bench?endpoint={endpoint}&allow_http=true");
    let rows = bench(folder.path(), &url, "serial,bytes");
    has_figures(
        &rows,
        "s3",
        &[
            ("serial", "confirmed publish p50, idle store"),
            ("serial", "raw conditional put p50, with the same pauses"),
            ("serial", "confirmed publish p50, interval 100 ms (default)"),
            ("serial", "confirmed publish p50, interval 1 ms"),
            ("bytes", "journal bytes per handled event"),
        ],
    );
    has_aims(&rows, &["confirmed publish p50, idle store", "confirmed publish p50, interval 1 ms"]);
}

#[test]
fn mongodb_is_measured_beside_raw_inserts() {
    let Ok(url) = std::env::var("TEST_MONGO") else {
        println!("skipped: TEST_MONGO is not set (cargo xtask test starts the engines)");
        return;
    };
    let join = if url.contains('?') { '&' } else { '?' };
    let folder = tempfile::tempdir().unwrap();
    let rows = bench(folder.path(), &format!("{url}{join}allow_unsynced=true"), "serial,fold");
    has_figures(&rows, "mongodb", &[("serial", "confirmed publish p50"), ("fold", "journal folded")]);
}

#[test]
fn an_interrupted_run_removes_its_store_and_its_servers() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let url = format!("dir:///{}", store.display());
    // The servers follow for an hour: the run ends by the signal only.
    let child =
        start(folder.path(), &url, "takeover").args(["--lead-timeout-ms", "3600000"]).spawn().unwrap();
    let servers = || {
        let listed = Command::new("ps").args(["-o", "pid=", "--ppid", &child.id().to_string()]).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        listed.lines().map(|pid| pid.trim().to_owned()).collect::<Vec<_>>()
    };
    let servers = wait_for("three servers are there", || Some(servers()).filter(|pids| pids.len() == 3));
    assert!(Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap().success());
    let ran = child.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(130), "{}", String::from_utf8_lossy(&ran.stderr));
    for pid in servers {
        assert!(!Path::new("/proc").join(&pid).exists(), "process {pid} is still there");
    }
    assert!(names_in(&store).is_empty() && names_in(&folder.path().join("temporary")).is_empty());
}

#[test]
fn a_store_that_cannot_be_measured_is_wrong_usage_and_its_secrets_are_not_shown() {
    for url in ["memory:", "redis://user:topsecret@host/0"] {
        let ran = program().args(["bench", "engines", "--store", url]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains("postgres://") && !said.contains("topsecret"), "{said}");
    }
}
