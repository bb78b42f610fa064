//! `millrace bench handlers`, `bench growth` and `bench soak`, in small: they run to their end, report, and clean up.
//! Their figures are not judged here.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::run::{command, finish, run};
use crate::server::eventually;

fn checks(report: &Value) -> &Vec<Value> {
    report["checks"].as_array().expect("a list of checks")
}

fn is_empty(folder: &std::path::Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}

#[test]
fn a_short_soak_strands_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let ran = run(&["bench", "soak", "--minutes", "0.03", "--seed", "7", "--dir", dir, "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    for check in checks(&report) {
        assert_eq!(check["passed"], true, "{check}");
    }
    let count = |name: &str| report[name].as_u64().unwrap();
    // Each of the four publishers sends an event that five groups refuse until it is a dead letter; the other five
    // groups accept it.
    assert!(count("dead_letters") >= 20, "{report}");
    assert_eq!(count("handled") + count("dead_letters"), 10 * count("published"), "{report}");
    assert!(ran.stderr.contains("peak of this topology"), "{}", ran.stderr);
    assert!(is_empty(folder.path()));
}

#[test]
fn an_interrupted_soak_ends_its_server_and_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let child = command(&["bench", "soak", "--minutes", "60", "--dir", dir])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the store is there", || {
        let mut folders = folder.path().read_dir().unwrap().filter_map(Result::ok);
        folders.any(|folder| folder.path().join("bench.db").exists())
    });
    assert!(Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap().success());
    let ran = finish(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert!(is_empty(folder.path()));
}

#[test]
fn growth_compares_a_filled_server_with_a_fresh_one() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let sizes = ["--events", "2000", "--topics", "20", "--groups", "5"];
    let ran = run(&[
        &["bench", "growth"],
        sizes.as_slice(),
        &["--rounds", "1", "--seconds", "0.1", "--dir", dir, "--json"],
    ]
    .concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let ratios: Vec<&str> = rows
        .iter()
        .filter(|row| row["unit"] == "ratio" && row["aim"] == "<= 1.3")
        .filter_map(|row| row["figure"].as_str())
        .collect();
    let named = ["serial p50", "256 in flight", "8 clients", "consume", "fan-out p50", "fan-out p99"];
    assert_eq!(ratios, named.map(|name| format!("grown / fresh, {name}")));
    assert!(is_empty(folder.path()));
}

#[test]
fn the_loop_is_measured_beside_a_raw_echo() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let sizes =
        ["--scenario", "ping,pipelined,memory", "--requests", "2000", "--rounds", "1", "--seconds", "0.1"];
    let ran = run(&[&["bench", "router"], sizes.as_slice(), &["--dir", dir, "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let row = |figure: &str| rows.iter().find(|row| row["figure"] == figure).expect(figure);
    assert_eq!(row("one in flight p50")["aim"], "<= 0.06");
    assert!(row("one in flight p50")["per_probe"].as_f64().is_some_and(|ratio| ratio > 0.0));
    for figure in
        ["raw echo p50", "1 connection", "8 connections", "before", "after", "memory after / before"]
    {
        assert!(row(figure)["median"].as_f64().is_some_and(|median| median > 0.0), "{figure}");
    }
    assert!(row("requests")["median"].as_f64().is_some_and(|requests| requests >= 2000.0));
    assert!(is_empty(folder.path()));
}

#[test]
fn handlers_are_measured_alone_and_in_eight_processes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    // Long enough that eight processes on two busy cores handle something in at least one slice.
    let sizes = ["--events", "2000", "--rounds", "1", "--seconds", "0.5"];
    let ran = run(&[&["bench", "handlers"], sizes.as_slice(), &["--dir", dir, "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        // A share may be zero: in slices of 50 ms one of eight processes may not get a turn.
        let is_share = row["figure"].as_str().is_some_and(|figure| figure.starts_with("slowest / fastest"));
        assert!(row["median"].as_f64().is_some_and(|median| median > 0.0 || is_share), "{row}");
        assert!(row["probe_ms"].as_f64().is_some(), "{row}");
    }
    let aims: Vec<(&str, &str, &str)> = rows
        .iter()
        .filter_map(|row| Some((row["scenario"].as_str()?, row["figure"].as_str()?, row["aim"].as_str()?)))
        .collect();
    let wanted = [
        ("noop", "handled", ">= 15000"),
        ("noop", "handled per sync", ">= 20"),
        ("state", "handled per sync", ">= 8"),
        ("enqueue", "64 threads, rate", ">= 50000"),
        ("processes", "slowest / fastest, publishing", ">= 0.333"),
        ("processes", "slowest / fastest, handling", ">= 0.333"),
        ("retained", "long / short log, idle claim p50", "<= 1.5"),
        ("retained", "long / short log, claim of 100 p50", "<= 1.5"),
    ];
    for aim in wanted {
        assert!(aims.contains(&aim), "{aim:?} is not in {aims:?}");
    }
    assert!(is_empty(folder.path()));
}

#[test]
fn an_interrupted_run_of_handlers_ends_its_processes_and_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let scenario = ["--scenario", "processes", "--seconds", "3600"];
    let child = command(&[&["bench", "handlers"], scenario.as_slice(), &["--dir", dir]].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let workers = || {
        let listed = Command::new("ps").args(["-o", "pid=", "--ppid", &child.id().to_string()]).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        listed.lines().map(|pid| pid.trim().to_owned()).collect::<Vec<_>>()
    };
    eventually("eight processes are there", || workers().len() == 8);
    let workers = workers();
    assert!(Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap().success());
    let ran = finish(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    for pid in workers {
        assert!(!std::path::Path::new("/proc").join(&pid).exists(), "process {pid} is still there");
    }
    assert!(is_empty(folder.path()));
}

#[test]
fn a_scenario_that_handlers_do_not_have_is_wrong_usage() {
    let ran = run(&["bench", "handlers", "--scenario", "fanout"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("known are noop, keyed, state, one, many, emit"), "{}", ran.stderr);
}

#[test]
fn a_soak_of_no_length_is_wrong_usage() {
    let ran = run(&["bench", "soak", "--minutes", "0"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--minutes is 0: it must be from 0.02"), "{}", ran.stderr);
}
