//! Default capabilities through the binary: denied unless allowed, in the shapes of generation A. The wasm crate's own
//! tests cover the shapes of generation B.

use serde_json::json;

use crate::program::{Ask, Kind, ask};
use crate::stage::Stage;

const FS: &str = "std::fs::Fs";
const TIME: &str = "std::time::Time";
const ENV: &str = "std::env::Env";
const RANDOM: &str = "std::random::Random";
const LOG: &str = "std::log::Log";

fn only(effect: &'static str, op: &'static str, args: Vec<serde_json::Value>) -> Stage {
    Stage::with_program(&[ask(effect, op, args)])
}

#[test]
fn nothing_is_allowed_by_default_and_the_failure_names_the_grant() {
    for (effect, op, grant) in [
        (FS, "read_string", "fs=DIR"),
        (TIME, "sleep_millis", "time"),
        (ENV, "get", "env"),
        (RANDOM, "next_i64", "random"),
        (LOG, "emit", "log"),
        ("voyd.std.input", "read_line", "input"),
        ("voyd.std.output", "write_op", "output"),
        ("millrace.bus", "publish", "bus"),
        ("millrace.store", "get", "store"),
    ] {
        let failure = only(effect, op, vec![json!("x")]).run(&[]).failure();
        assert!(failure.contains(op) && failure.contains("not granted"), "{failure}");
        assert!(failure.contains(&format!("--allow {grant}")), "{failure}");
    }
    // A grant covers only its own capability.
    let failure = only(FS, "exists", vec![json!("x")]).run(&["--allow", "time,env"]).failure();
    assert!(failure.contains("--allow fs=DIR"), "{failure}");
}

#[test]
fn a_script_answers_what_is_not_allowed() {
    let stage = only(TIME, "system_now_millis", vec![]);
    let ran = stage.run_script(r#"{"handlers":{"Time::system_now_millis":[{"do":"tail","value":5}]}}"#, &[]);
    assert_eq!(ran.value(), json!(5));
}

#[test]
fn sleeping_moves_the_virtual_clock() {
    let stage = Stage::with_program(&[
        ask(TIME, "sleep_millis", vec![json!(250)]),
        ask(TIME, "sleep_millis", vec![json!(-5)]),
        ask(TIME, "monotonic_now_millis", vec![]),
    ]);
    assert_eq!(stage.run(&["--allow", "time", "--clock", "virtual"]).value(), json!(250));
    let system = only(TIME, "system_now_millis", vec![]);
    assert_eq!(system.run(&["--allow", "time", "--clock", "virtual"]).value(), json!(0));
    let now = system.run(&["--allow", "time"]).value();
    assert!(now.as_u64().unwrap() > 1_600_000_000_000, "{now}");
}

#[test]
fn random_follows_the_seed() {
    let stage = only(RANDOM, "next_i64", vec![]);
    let draw = |flags: &[&str]| stage.run(&[&["--allow", "random"], flags].concat()).value();
    assert_eq!(draw(&["--seed", "7"]), draw(&["--seed", "7"]));
    assert_ne!(draw(&["--seed", "7"]), draw(&["--seed", "8"]));
    assert_ne!(draw(&[]), draw(&[]));
    assert_eq!(draw(&["--clock", "virtual"]), draw(&["--clock", "virtual"]));
    let bytes = only(RANDOM, "fill_bytes", vec![json!(4)]).run(&["--allow", "random"]).value();
    assert_eq!(bytes.as_array().unwrap().len(), 4);
}

#[test]
fn environment_variables_are_those_that_were_granted() {
    let get = |name: &str, allow: &str| {
        let stage = only(ENV, "get", vec![json!(name)]);
        let env = [("COLOUR", "red"), ("MILLRACE_TOKEN", "hunter2")];
        stage.run_with_env(&env, &["--allow", allow]).value()
    };
    assert_eq!(get("COLOUR", "env"), json!("red"));
    assert_eq!(get("COLOUR", "env=COLOUR,env=SHAPE"), json!("red"));
    assert_eq!(get("COLOUR", "env=SHAPE"), json!(null));
    assert_eq!(get("MILLRACE_TOKEN", "env"), json!(null), "our own settings hold secrets");
    let set = Stage::with_program(&[
        ask(ENV, "set", vec![json!({ "key": "COLOUR", "value": "blue" })]),
        ask(ENV, "get", vec![json!("COLOUR")]),
    ]);
    assert_eq!(set.run_with_env(&[("COLOUR", "red")], &["--allow", "env"]).value(), json!("blue"));
    let bad = only(ENV, "set", vec![json!({ "key": "a=b", "value": "" })]).run(&["--allow", "env"]).value();
    assert_eq!((&bad["ok"], &bad["code"]), (&json!(false), &json!(1)));
}

#[test]
fn a_line_of_the_log_goes_to_stderr() {
    let line = json!({ "level": "warn", "message": "two\nlines", "fields": [{ "key": "n", "value": 3 }] });
    let ran = only(LOG, "emit", vec![line]).run(&["--allow", "log"]);
    assert_eq!(ran.value(), json!(null));
    assert!(ran.stderr.contains("WARN") && ran.stderr.contains("two\\nlines"), "{}", ran.stderr);
    assert!(ran.stderr.contains("n=3"), "{}", ran.stderr);
}

/// Returns a program with a folder `data` to be granted, and a secret beside it with links that lead there.
fn with_files(asks: &[Ask]) -> Stage {
    let stage = Stage::with_program(asks);
    std::fs::create_dir(stage.path("data")).unwrap();
    stage.write("secret", "s3cret").write("data/inside", "hello");
    std::os::unix::fs::symlink("../secret", stage.path("data/link")).unwrap();
    std::os::unix::fs::symlink("..", stage.path("data/up")).unwrap();
    stage
}

#[test]
fn files_of_the_folder_are_read_and_written() {
    let stage = with_files(&[
        ask(FS, "write_string", vec![json!({ "path": "new", "value": "text" })]),
        ask(FS, "write_bytes", vec![json!({ "path": "raw", "bytes": [1, 255] })]),
        ask(FS, "read_string", vec![json!("new")]),
    ]);
    assert_eq!(stage.run(&["--allow", "fs=data"]).value(), json!({ "ok": true, "value": "text" }));
    assert_eq!(std::fs::read(stage.path("data/raw")).unwrap(), [1, 255]);
    let value =
        |op, arg: &str| with_files(&[ask(FS, op, vec![json!(arg)])]).run(&["--allow", "fs=data"]).value();
    assert_eq!(value("exists", "inside"), json!(true));
    assert_eq!(value("exists", "outside"), json!(false));
    assert_eq!(value("read_bytes", "inside"), json!({ "ok": true, "value": [104, 101, 108, 108, 111] }));
    assert_eq!(value("list_dir", "."), json!({ "ok": true, "value": ["./inside", "./link", "./up"] }));
    let missing = value("read_string", "no");
    assert_eq!((&missing["ok"], &missing["code"]), (&json!(false), &json!(-2)));
}

#[test]
fn no_path_leads_out_of_the_folder() {
    for path in ["../secret", "link", "up/secret", "./../secret", "/etc/hostname", "up/../secret"] {
        let stage = with_files(&[ask(FS, "read_string", vec![json!(path)])]);
        let answer = stage.run(&["--allow", "fs=data"]).value();
        assert_eq!(answer["ok"], json!(false), "{path}: {answer}");
        assert!(
            answer["message"].as_str().unwrap().contains("outside the granted folder"),
            "{path}: {answer}"
        );
        let stage = with_files(&[ask(FS, "write_string", vec![json!({ "path": path, "value": "x" })])]);
        let answer = stage.run(&["--allow", "fs=data"]).value();
        assert_eq!(answer["ok"], json!(false), "{path}: {answer}");
        assert_eq!(stage.read("secret"), "s3cret");
    }
}

#[test]
fn a_file_that_does_not_fit_the_buffer_is_an_answer_and_no_failure() {
    let stage = with_files(&[ask(FS, "read_string", vec![json!("large")])]);
    stage.write("data/large", &"x".repeat(5000));
    let answer = stage.run(&["--allow", "fs=data"]).value();
    assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(1)));
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("read_string") && message.contains("4096"), "{message}");
    let answer = stage.run(&["--allow", "fs=data", "--buffer", "8192"]).value();
    assert_eq!(answer["value"].as_str().unwrap().len(), 5000);
}

#[test]
fn what_is_too_long_once_it_is_encoded_is_an_answer_and_no_failure() {
    let stage = with_files(&[ask(FS, "read_string", vec![json!("bytes")])]);
    std::fs::write(stage.path("data/bytes"), [0xff; 2000]).unwrap();
    let answer = stage.run(&["--allow", "fs=data"]).value();
    assert_eq!(
        (&answer["ok"], &answer["code"]),
        (&json!(false), &json!(1)),
        "three bytes for each that is no UTF-8"
    );
    let stage = with_files(&[ask(FS, "list_dir", vec![json!("many")])]);
    std::fs::create_dir(stage.path("data/many")).unwrap();
    for number in 0..480 {
        stage.write(&format!("data/many/{number:03}"), "");
    }
    let answer = stage.run(&["--allow", "fs=data"]).value();
    assert_eq!(
        (&answer["ok"], &answer["code"]),
        (&json!(false), &json!(1)),
        "a byte for the length of each name"
    );
    let long = "x".repeat(5000);
    let ran = only(ENV, "get", vec![json!("LONG")]).run_with_env(&[("LONG", &long)], &["--allow", "env"]);
    assert_eq!(ran.value(), json!(null));
    assert!(ran.stderr.contains("LONG") && ran.stderr.contains("4096"), "{}", ran.stderr);
}

#[test]
fn output_goes_to_its_stream_and_results_begin_a_line() {
    let write = |target: &str| {
        ask("voyd.std.output", "write_op", vec![json!({ "value": "hello", "target": target })])
    };
    let ran = Stage::with_program(&[write("stdout"), write("stderr")]).run(&["--allow", "output"]);
    assert!(ran.stdout.starts_with("hello\n{"), "{}", ran.stdout);
    assert!(ran.stderr.contains("hello"), "{}", ran.stderr);
}

#[test]
fn input_is_read_from_stdin_and_its_end_is_told() {
    let stage = only("voyd.std.input", "read_line", vec![json!({})]);
    let answer = stage.run(&["--allow", "input"]).value();
    assert_eq!((&answer["ok"], &answer["found"]), (&json!(true), &json!(false)), "stdin is empty");
}

#[test]
fn what_an_operation_cannot_read_fails_the_run() {
    let failure = only(FS, "read_string", vec![json!(5)]).run(&["--allow", "fs=."]).failure();
    assert!(failure.contains("a path must be a string") && failure.contains('5'), "{failure}");
    let failure = only(FS, "format_disk", vec![]).run(&["--allow", "fs=."]).failure();
    assert!(failure.contains("format_disk") && failure.contains("read_bytes"), "{failure}");
}

#[test]
fn an_operation_of_either_kind_is_answered_by_its_kind() {
    let asks = [Ask { effect: TIME, op: "monotonic_now_millis", kind: Kind::Resume, args: vec![] }];
    assert_eq!(Stage::with_program(&asks).run(&["--allow", "time", "--clock", "virtual"]).value(), json!(0));
}

#[test]
fn what_cannot_be_allowed_is_wrong_usage() {
    let stage = only(TIME, "monotonic_now_millis", vec![]);
    stage.run(&["--allow", "network"]).refused(2, &["allow", "network", "fs=DIR"]);
    stage.run(&["--allow", "fs=nowhere"]).refused(2, &["allow", "nowhere"]);
    stage.run(&["--allow", "fs=.,fs=/tmp"]).refused(2, &["two folders"]);
}
