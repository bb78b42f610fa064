//! What happened once is recorded, and happens again from the file.

use serde_json::json;

use crate::program::ask;
use crate::stage::{DOUBLE_AND_TEN, SUM_A, SUM_B, Stage};

#[test]
fn a_recording_replays_without_the_handlers() {
    for module in [SUM_A, SUM_B] {
        let stage = Stage::with_module(module);
        let first = stage.run_script(DOUBLE_AND_TEN, &["--record", "r.ndjson", "--trace"]);
        let again = stage.run(&["--replay", "r.ndjson", "--trace"]);
        assert_eq!(first.value(), again.value(), "{}", again.stderr);
        let calls = |ran: &crate::run::Ran| {
            ran.trace().into_iter().filter(|line| line[0] != "woke").collect::<Vec<_>>()
        };
        assert_eq!(calls(&first), calls(&again));
    }
}

#[test]
fn real_time_random_numbers_and_files_come_back_from_the_recording() {
    let stage = Stage::with_program(&[
        ask("std::random::Random", "next_i64", vec![]),
        ask("std::fs::Fs", "write_string", vec![json!({ "path": "w", "value": "x" })]),
        ask("std::time::Time", "sleep_millis", vec![json!(3)]),
        ask("std::random::Random", "fill_bytes", vec![json!(8)]),
    ]);
    let first = stage.run(&["--allow", "random,time,fs=.", "--record", "r.ndjson"]);
    std::fs::remove_file(stage.path("w")).unwrap();
    let again = stage.run(&["--replay", "r.ndjson"]);
    assert_eq!(first.value(), again.value());
    assert!(!stage.path("w").exists(), "a replay touches nothing");
}

#[test]
fn several_runs_replay_in_their_order_with_failures_and_ends() {
    let stage = Stage::with_module(SUM_A);
    let script = r#"{"handlers":{
        "Hand::bump":[{"do":"resume","value":1,"after_ms":9},{"do":"resume","value":2,"after_ms":3},
                      {"do":"throw","error":"no more"},{"do":"end","value":"over","after_ms":1}],
        "Hand::tick":[{"do":"tail","value":0}]}}"#;
    let exports = ["--export", "main"].repeat(3);
    let record = [&exports[..], &["--clock", "virtual", "--record", "r.ndjson"]].concat();
    let first = stage.run_script(script, &record);
    assert_eq!(first.code, Some(1));
    let again = stage.run(&["--replay", "r.ndjson"]);
    assert_eq!((first.stdout, first.code), (again.stdout, again.code), "{}", again.stderr);
}

#[test]
fn unhandled_effects_and_cancellations_replay_too() {
    let stage = Stage::with_module(SUM_A);
    let unhandled = stage.run(&["--record", "r.ndjson"]);
    let again = stage.run(&["--replay", "r.ndjson"]);
    assert_eq!((unhandled.stdout, Some(1)), (again.stdout, again.code), "{}", again.stderr);

    let script = r#"{"handlers":{"Hand::bump":[{"do":"resume","value":1,"after_ms":100}]}}"#;
    let flags = ["--clock", "virtual", "--cancel-at", "50", "--record", "c.ndjson"];
    let cancelled = stage.run_script(script, &flags);
    let again = stage.run(&["--replay", "c.ndjson"]);
    assert_eq!((cancelled.stdout, Some(1)), (again.stdout, again.code), "{}", again.stderr);
}

#[test]
fn the_first_difference_is_reported_with_both_sides() {
    let stage = Stage::with_module(SUM_A);
    stage.run_script(DOUBLE_AND_TEN, &["--record", "r.ndjson"]).ok();
    let changed = stage.read("r.ndjson").replace("\"args\":[1]", "\"args\":[5]");
    stage.write("r.ndjson", &changed);
    let ran = stage.run(&["--replay", "r.ndjson"]);
    assert_eq!(ran.code, Some(1));
    for part in [
        "differs from the recording at line 5",
        "recorded: run_1 calls hand::Hand.tick with [5]",
        "replayed: run_1 calls hand::Hand.tick with [1]",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}

#[test]
fn another_outcome_is_a_difference() {
    let stage = Stage::with_module(SUM_A);
    stage.run_script(DOUBLE_AND_TEN, &["--record", "r.ndjson"]).ok();
    let changed = stage.read("r.ndjson").replace("\"value\":15", "\"value\":16");
    stage.write("r.ndjson", &changed);
    let ran = stage.run(&["--replay", "r.ndjson"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("value 16") && ran.stderr.contains("value 15"), "{}", ran.stderr);
}

#[test]
fn a_recording_of_another_module_is_warned_of() {
    let stage = Stage::with_module(SUM_A);
    stage.run_script(DOUBLE_AND_TEN, &["--record", "r.ndjson"]).ok();
    stage.write("m.wat", &format!("{SUM_A}\n;; changed"));
    let ran = stage.run(&["--replay", "r.ndjson"]);
    assert_eq!(ran.value(), json!(15));
    assert!(ran.stderr.contains("another module"), "{}", ran.stderr);
}

#[test]
fn a_recording_that_was_cut_off_says_where_it_ends() {
    let stage = Stage::with_module(SUM_A);
    stage.run_script(DOUBLE_AND_TEN, &["--record", "r.ndjson"]).ok();
    let lines: Vec<String> = stage.read("r.ndjson").lines().map(str::to_owned).collect();
    stage.write("r.ndjson", &format!("{}\n", lines[..5].join("\n")));
    assert_eq!(stage.run(&["--replay", "r.ndjson"]).code, Some(1));
}

#[test]
fn what_is_no_recording_is_wrong_usage() {
    let stage = Stage::with_module(SUM_A);
    stage.write("r.ndjson", "{}\n");
    stage.run(&["--replay", "r.ndjson"]).refused(2, &["r.ndjson", "line 1"]);
    stage.run(&["--replay", "no.ndjson"]).refused(2, &["no.ndjson"]);
    stage.run(&["--replay", "r.ndjson", "--export", "main"]).refused(2, &["--replay", "--export"]);
    stage.run(&["--record", "no/such/folder"]).refused(2, &["cannot write", "no/such/folder"]);
}
