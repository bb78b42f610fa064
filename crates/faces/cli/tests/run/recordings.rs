//! Runs are recorded, and replayed from the file.

use serde_json::json;

use crate::program::ask;
use crate::run::Ran;
use crate::stage::{DOUBLE_AND_TEN, SUM_A, SUM_B, Stage};

#[test]
fn a_recording_replays_without_the_handlers() {
    for module in [SUM_A, SUM_B] {
        let stage = Stage::with_module(module);
        let first = stage.run_script(DOUBLE_AND_TEN, &["--record", "r.ndjson", "--trace"]);
        let again = stage.run(&["--replay", "r.ndjson", "--trace"]);
        assert_eq!(first.value(), again.value(), "{}", again.stderr);
        assert_eq!(first.trace(), again.trace());
    }
}

/// Records a run, replays it without any other flag, and compares results, exit code and trace.
#[track_caller]
fn replays_the_same(stage: &Stage, script: &str, flags: &[&str]) -> Ran {
    let first = stage.run_script(script, &[flags, &["--record", "r.ndjson", "--trace"]].concat());
    let again = stage.run(&["--replay", "r.ndjson", "--trace"]);
    assert_eq!((&first.stdout, first.code), (&again.stdout, again.code), "{}", again.stderr);
    assert_eq!(first.trace(), again.trace());
    first
}

const SLOW: &str = r#"{"handlers":{
    "Hand::bump":[{"do":"resume","value":1,"after_ms":100}],"Hand::tick":[{"do":"tail","value":0}]}}"#;

#[test]
fn the_trace_of_a_replay_is_the_recorded_one() {
    let stage = Stage::with_module(SUM_A);
    let woke =
        replays_the_same(&stage, SLOW, &["--clock", "virtual", "--export", "main", "--export", "main"]);
    assert!(woke.trace().contains(&json!(["woke", "Hand::bump"])), "{}", woke.stderr);
    replays_the_same(&stage, SLOW, &["--clock", "virtual", "--cancel-at", "50"]);
    replays_the_same(&stage, SLOW, &["--clock", "virtual", "--cancel-at", "0"]);
    replays_the_same(&stage, SLOW, &["--clock", "virtual", "--cancel-at", "100"]);
}

#[test]
fn the_limits_of_a_recording_are_those_of_its_replay() {
    let stage = Stage::with_module(SUM_A);
    for (flags, part) in [(["--fuel", "3"], "3 units of fuel"), (["--buffer", "20"], "unreachable")] {
        let failure = replays_the_same(&stage, DOUBLE_AND_TEN, &flags).failure();
        assert!(failure.contains(part), "{failure}");
    }
    stage.run_script(DOUBLE_AND_TEN, &["--fuel", "3", "--record", "r.ndjson"]);
    stage
        .run(&["--replay", "r.ndjson", "--fuel", "5"])
        .refused(2, &["r.ndjson", "--fuel is 5", "recorded with 3"]);
    let same = stage.run(&["--replay", "r.ndjson", "--fuel", "3"]);
    assert!(same.failure().contains("3 units of fuel"));
    // Only a flag is refused; a value in a file or the environment is not meant for this replay.
    let other = stage.run_with_env(&[("MILLRACE_FUEL", "5")], &["--replay", "r.ndjson"]);
    assert!(other.failure().contains("3 units of fuel"));
}

/// Returns the sum program, whose entry first runs the code in `first`.
fn sum_after(first: &str) -> Stage {
    let entry = "(call $step (i32.const 0) (i32.const 0) (local.get $p) (local.get $cap))";
    assert!(SUM_A.contains(entry));
    Stage::with_module(&SUM_A.replace(entry, &format!("{first} {entry}")))
}

#[test]
fn a_step_that_took_too_long_is_not_measured_again() {
    let stage = sum_after("(loop $for_ever (br $for_ever))");
    let flags = ["--step-ms-max", "50", "--fuel", "9223372036854775807"];
    let failure = replays_the_same(&stage, DOUBLE_AND_TEN, &flags).failure();
    assert!(failure.contains("50 ms"), "{failure}");
}

#[test]
fn a_deadline_between_a_reply_and_the_next_step_replays() {
    // The first step takes longer than the whole run may. A budget of one makes the scheduler check the clock after it.
    let stage = sum_after(
        "(global.set $burned (i32.const 0))
         (loop $burn (global.set $burned (i32.add (global.get $burned) (i32.const 1)))
           (br_if $burn (i32.lt_u (global.get $burned) (i32.const 30000000))))",
    );
    let module = stage.read("m.wat");
    let at = module.rfind(')').unwrap();
    stage.write("m.wat", &format!("{}(global $burned (mut i32) (i32.const 0)))", &module[..at]));
    let ran = replays_the_same(&stage, DOUBLE_AND_TEN, &["--budget", "1", "--wall-ms-max", "1"]);
    assert!(ran.failure().contains("deadline"), "{}", ran.stdout);
    let recorded = stage.read("r.ndjson");
    let kinds: Vec<&str> = recorded
        .lines()
        .map(|line| {
            ["start", "call", "reply", "outcome"]
                .into_iter()
                .find(|kind| line.contains(&format!("\"{kind}\":")))
                .unwrap_or("head")
        })
        .collect();
    assert_eq!(kinds, ["head", "start", "call", "reply", "outcome"], "{recorded}");
}

#[test]
fn a_value_as_deep_as_programs_send_it_replays() {
    let deep = (0..126).fold(json!(5), |inner, _| json!([inner]));
    let stage = Stage::with_program(&[ask("case.deep", "dive", vec![deep])]);
    let ran = replays_the_same(&stage, r#"{"handlers":{"deep::dive":[{"do":"tail","value":1}]}}"#, &[]);
    assert_eq!(ran.value(), json!(1));
}

#[test]
fn a_recording_without_settings_is_read_and_takes_those_of_the_command() {
    let stage = Stage::with_module(SUM_A);
    stage.run_script(DOUBLE_AND_TEN, &["--fuel", "3", "--record", "r.ndjson"]);
    let recorded = stage.read("r.ndjson");
    let (_, events) = recorded.split_once('\n').unwrap();
    stage.write("r.ndjson", &format!("{{\"recording\":1,\"module\":\"\"}}\n{events}"));
    assert!(stage.run(&["--replay", "r.ndjson", "--fuel", "3"]).failure().contains("3 units of fuel"));
    let other = stage.run(&["--replay", "r.ndjson"]);
    assert!(other.stderr.contains("differs from the recording"), "{}", other.stderr);
}

#[test]
fn a_recording_without_the_start_of_a_run_is_refused_by_its_line() {
    let stage = Stage::with_module(SUM_A);
    let exports = ["--export", "main"].repeat(2);
    stage.run_script(DOUBLE_AND_TEN, &[&exports[..], &["--record", "r.ndjson"]].concat()).ok();
    let recorded = stage.read("r.ndjson");
    let lines: Vec<&str> = recorded.lines().collect();
    for (start, line, part) in
        [(1, "line 2", "the next run is run_1"), (2, "line 5", "run_2 was not started")]
    {
        let kept: Vec<&str> =
            lines.iter().enumerate().filter(|(at, _)| *at != start).map(|(_, line)| *line).collect();
        stage.write("r.ndjson", &format!("{}\n", kept.join("\n")));
        stage.run(&["--replay", "r.ndjson"]).refused(2, &["r.ndjson", line, part]);
    }
}

#[test]
fn a_recording_is_not_written_over_what_is_no_recording() {
    let stage = Stage::with_module(SUM_A);
    stage.write("script.json", DOUBLE_AND_TEN).write("notes.txt", "mine\n");
    std::fs::hard_link(stage.path("m.wat"), stage.path("linked")).unwrap();
    std::os::unix::fs::symlink("script.json", stage.path("symlinked")).unwrap();
    let module = stage.read("m.wat");
    for (file, part) in [
        ("m.wat", "the same file as m.wat"),
        ("linked", "the same file as m.wat"),
        ("script.json", "the same file as script.json"),
        ("symlinked", "the same file as script.json"),
        ("notes.txt", "exists and is no recording"),
    ] {
        let ran = stage.run(&["--script", "script.json", "--record", file]);
        ran.refused(2, &["--record", file, part]);
    }
    assert_eq!((stage.read("m.wat"), stage.read("script.json")), (module, DOUBLE_AND_TEN.to_owned()));
    assert_eq!(stage.read("notes.txt"), "mine\n");
    // An empty file and a longer, older recording are overwritten.
    stage.write("r.ndjson", "");
    stage.run(&["--script", "script.json", "--record", "r.ndjson"]).ok();
    let recorded = stage.read("r.ndjson");
    stage.write("r.ndjson", &format!("{recorded}{recorded}"));
    stage.run(&["--script", "script.json", "--record", "r.ndjson"]).ok();
    assert_eq!(stage.read("r.ndjson"), recorded);
    // A broken module does not erase the recording.
    stage.write("m.wat", "(module");
    stage.run(&["--record", "r.ndjson"]).refused(1, &["m.wat"]);
    assert_eq!(stage.read("r.ndjson"), recorded);
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
    let ran = stage.run(&["--replay", "r.ndjson", "--trace"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    let said = ran.stderr.lines().last().unwrap();
    assert_eq!(
        said,
        "millrace: the recording ends at line 5, before run_1 ended: the replay agrees with it so far"
    );
    assert_eq!(ran.trace().len(), 3, "{}", ran.stderr);
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
