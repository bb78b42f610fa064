//! The settings of runs in the file, in the environment and as flags.

use serde_json::json;

use crate::run::run;
use crate::stage::{DOUBLE_AND_TEN, SUM_A, Stage};

#[test]
fn a_setting_has_three_spellings() {
    let stage = Stage::with_module(SUM_A);
    let script = r#"{"handlers":{"Hand::bump":[{"do":"end","value":1,"after_ms":600000}]}}"#;
    stage.write("script.json", script).write("c.toml", "clock = 'virtual'\nallow = ['time']\nbudget = 7\n");
    let flags = ["--script", "script.json"];
    assert_eq!(stage.run(&[&flags[..], &["--clock", "virtual"]].concat()).value(), json!(1));
    assert_eq!(stage.run_with_env(&[("MILLRACE_CLOCK", "virtual")], &flags).value(), json!(1));
    assert_eq!(stage.run(&[&flags[..], &["--config", "c.toml"]].concat()).value(), json!(1));
}

#[test]
fn config_print_shows_them() {
    let shown = run(&["config", "print", "--json", "--fuel", "5", "--allow", "time,fs=/tmp"]).json();
    assert_eq!(shown["fuel"], json!({ "value": 5, "from": "flag" }));
    assert_eq!(shown["allow"]["value"], json!(["time", "fs=/tmp"]));
    assert_eq!(shown["budget"], json!({ "value": 1024, "from": "default" }));
    assert_eq!(shown["clock"]["value"], json!("real"));
}

#[test]
fn bad_values_say_what_is_accepted() {
    let stage = Stage::with_module(SUM_A);
    stage.run(&["--clock", "sundial"]).refused(2, &["clock", "sundial", "real, virtual"]);
    stage.run(&["--budget", "0"]).refused(2, &["budget", "\"0\"", "from 1"]);
    stage.run(&["--seed", "x"]).refused(2, &["seed", "\"x\"", "whole number"]);
    stage.run(&["--cancel-at", "soon"]).refused(2, &["--cancel-at", "soon"]);
    stage.run(&["--run-memory-bytes-max", "1"]).refused(2, &["run-memory-bytes-max"]);
    stage.run(&["--memory-bytes-max", "1"]).refused(2, &["run-memory-bytes-max"]);
}

#[test]
fn json_is_accepted_because_results_are_json() {
    assert_eq!(Stage::with_module(SUM_A).run_script(DOUBLE_AND_TEN, &["--json"]).value(), json!(15));
}
