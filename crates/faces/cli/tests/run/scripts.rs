//! Scripts, traces, outcomes: the contract of `millrace run`.

use serde_json::{Value, json};

use crate::stage::{DOUBLE_AND_TEN, SUM_A, SUM_B, Stage};

fn sum() -> Stage {
    Stage::with_module(SUM_A)
}

#[test]
fn a_value_is_one_json_line_and_exit_code_zero() {
    for module in [SUM_A, SUM_B] {
        let ran = Stage::with_module(module).run_script(DOUBLE_AND_TEN, &[]);
        // bump(0) = 0, tick(1) = 11, bump(2) = 4.
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(ran.stdout, "{\"run\":\"run_1\",\"kind\":\"value\",\"value\":15}\n");
    }
}

#[test]
fn a_trace_tells_calls_replies_and_outcomes_in_order() {
    for module in [SUM_A, SUM_B] {
        let ran = Stage::with_module(module).run_script(DOUBLE_AND_TEN, &["--trace"]);
        assert_eq!(
            ran.trace(),
            [
                json!(["call", "Hand::bump", [0]]),
                json!(["reply", "Hand::bump", "resume", 0]),
                json!(["call", "Hand::tick", [1]]),
                json!(["reply", "Hand::tick", "tail", 11]),
                json!(["call", "Hand::bump", [2]]),
                json!(["reply", "Hand::bump", "resume", 4]),
                json!(["outcome", "run_1", "value"]),
            ]
        );
    }
}

#[test]
fn replies_after_a_time_wake_their_handler_under_the_virtual_clock() {
    let script = r#"{"handlers":{
        "Hand::bump":[{"do":"resume","value":1,"after_ms":3600000}],
        "Hand::tick":[{"do":"tail","value":1}]}}"#;
    let ran = sum().run_script(script, &["--trace", "--clock", "virtual"]);
    assert_eq!(ran.value(), json!(3));
    assert_eq!(
        ran.trace()[..4],
        [
            json!(["call", "Hand::bump", [0]]),
            json!(["woke", "Hand::bump"]),
            json!(["reply", "Hand::bump", "resume", 1]),
            json!(["call", "Hand::tick", [1]]),
        ]
    );
}

#[test]
fn the_real_clock_waits() {
    let script = r#"{"handlers":{"Hand::bump":[{"do":"end","value":7,"after_ms":5}]}}"#;
    assert_eq!(sum().run_script(script, &[]).value(), json!(7));
}

#[test]
fn end_completes_the_run_with_its_value() {
    let script = r#"{"handlers":{"Hand::bump":[{"do":"resume","value":1},{"do":"end","value":[1,"x"]}],
        "Hand::tick":[{"do":"tail","value":0}]}}"#;
    assert_eq!(sum().run_script(script, &[]).value(), json!([1, "x"]));
}

#[test]
fn wrong_continuations_fail_with_the_words_of_the_generation() {
    let failures = |module: &str| {
        let failure = |handlers: &str| {
            let stage = Stage::with_module(module);
            stage.run_script(&format!(r#"{{"handlers":{handlers}}}"#), &[]).failure()
        };
        [
            failure(r#"{"Hand::bump":[{"do":"tail","value":1}]}"#),
            failure(r#"{"Hand::bump":[{"do":"plain","value":1}]}"#),
            failure(r#"{"Hand::bump":[{"do":"resume","value":1}],"Hand::tick":[{"do":"resume","value":1}]}"#),
            failure(r#"{"Hand::bump":[{"do":"resume","value":1}],"Hand::tick":[{"do":"end","value":1}]}"#),
            failure(r#"{"Hand::bump":[{"do":"throw","error":"the wheel is broken"}]}"#),
            failure(r#"{"Hand::bump":[{"do":"resume","value":1}]}"#),
        ]
    };
    assert_eq!(
        failures(SUM_A),
        [
            "Resume effect hand::Hand.bump cannot return tail(...) (return resume(...) or end(...))",
            "Effect handler for hand::Hand.bump must return a continuation call (return resume(...), tail(...), or end(...))",
            "Tail effect hand::Hand.tick must return tail(...)",
            "Tail effect hand::Hand.tick must return tail(...)",
            "the wheel is broken",
            "Unhandled effect hand::Hand.tick (tail)",
        ]
    );
    assert_eq!(
        failures(SUM_B),
        [
            "handler for hand::Hand.bump cannot return tail(...)",
            "handler for hand::Hand.bump must return a continuation call",
            "handler for hand::Hand.tick must return tail(...)",
            "handler for hand::Hand.tick must return tail(...)",
            "the wheel is broken",
            "Unhandled effect hand::Hand.tick",
        ]
    );
}

#[test]
fn cancel_at_cancels_what_has_not_ended() {
    let script = r#"{"handlers":{"Hand::bump":[{"do":"resume","value":1,"after_ms":100}],"Hand::tick":[{"do":"tail","value":0}]}}"#;
    let flags = ["--clock", "virtual", "--cancel-at", "50", "--trace"];
    let ran = sum().run_script(script, &flags);
    assert_eq!(ran.code, Some(1));
    let result = ran.result();
    assert_eq!((&result["run"], &result["kind"]), (&json!("run_1"), &json!("cancelled")));
    assert!(result.as_object().unwrap().contains_key("reason"));
    assert_eq!(
        ran.trace(),
        [
            json!(["call", "Hand::bump", [0]]),
            json!(["cancel", "run_1", true]),
            json!(["outcome", "run_1", "cancelled"]),
        ]
    );
    // The run ends before the cancel.
    let ran = sum().run_script(script, &["--clock", "virtual", "--cancel-at", "201"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
}

#[test]
fn several_exports_are_several_runs_on_one_scheduler() {
    let script = r#"{"handlers":{
        "Hand::bump":[{"do":"resume","value":{"arg":0},"after_ms":20},{"do":"resume","value":{"arg":0},"after_ms":10},
                      {"do":"end","value":"last"}],
        "Hand::tick":[{"do":"throw","error":"tick"},{"do":"tail","value":1}]}}"#;
    let ran = sum().run_script(
        script,
        &["--export", "main", "--export", "main_effectful", "--clock", "virtual", "--trace"],
    );
    assert_eq!(ran.code, Some(1), "one of them failed");
    // The bump of run_2 is answered first, so its tick is the one that throws.
    let kinds: Vec<Value> =
        ran.results().iter().map(|result| json!([result["run"], result["kind"]])).collect();
    assert_eq!(kinds, [json!(["run_1", "value"]), json!(["run_2", "failed"])]);
    assert_eq!(ran.results()[0]["value"], json!("last"));
    assert_eq!(ran.trace()[2], json!(["woke", "Hand::bump"]));
    assert_eq!(ran.trace().last().unwrap(), &json!(["outcome", "run_1", "value"]));
}

#[test]
fn arguments_reach_typed_exports_and_are_refused_by_generation_a() {
    let typed = Stage::with_module(SUM_B);
    let ran = typed.run_script(DOUBLE_AND_TEN, &["--export", "upto", "--arg", "2"]);
    assert_eq!(ran.value(), json!(11));
    typed
        .run_script(DOUBLE_AND_TEN, &["--export", "upto", "--arg", "\"x\""])
        .refused(1, &["expected i32", "string"]);
    typed.run_script(DOUBLE_AND_TEN, &["--export", "upto"]).refused(1, &["expected 1 args", "0"]);
    sum()
        .run_script(DOUBLE_AND_TEN, &["--arg", "1"])
        .refused(1, &["effectful exports do not accept arguments"]);
    sum().run(&["--arg", "{"]).refused(2, &["--arg", "not valid JSON"]);
    sum().run(&["--arg", "18446744073709551616"]).refused(2, &["--arg", "beyond 64 bits"]);
}

#[test]
fn a_budget_of_one_changes_nothing_inside_a_run() {
    let stage = sum();
    let full = stage.run_script(DOUBLE_AND_TEN, &["--trace"]);
    let one = stage.run_script(DOUBLE_AND_TEN, &["--trace", "--budget", "1"]);
    assert_eq!(full.trace(), one.trace());
}

#[test]
fn bad_scripts_are_wrong_usage() {
    let stage = sum();
    stage.run_script("{", &[]).refused(2, &["script.json", "not valid JSON"]);
    stage.run_script(r#"{"handlers":{"Hand::bump":[{"do":"jump"}]}}"#, &[]).refused(
        2,
        &[
            "script.json",
            "Hand::bump, reply 0",
            "\"jump\"",
            "\"resume\", \"tail\", \"end\", \"throw\" or \"plain\"",
        ],
    );
    stage.run(&["--script", "no.json"]).refused(2, &["cannot read", "no.json"]);
    let reply = |reply: &str| stage.run_script(&format!(r#"{{"handlers":{{"Hand::bump":[{reply}]}}}}"#), &[]);
    reply(r#"{"do":"resume","vlaue":7}"#).refused(2, &["Hand::bump, reply 0", "\"vlaue\"", "\"value\""]);
    reply(r#"{"do":"resume","value":{"arg":0,"foo":1}}"#).refused(2, &["\"foo\"", "\"plus_arg\""]);
    reply(r#"{"do":"resume","value":18446744073709551616}"#).refused(2, &["18446744073709551616", "f64"]);
}

#[test]
fn a_result_keeps_entries_whose_keys_have_the_same_text() {
    for map in [json!({ "map": [[1, 2], ["1", 3]] }), json!({ "map": [["a", 2], ["a", 3]] })] {
        let script = json!({ "handlers": { "Hand::bump": [{ "do": "end", "value": map }] } });
        assert_eq!(sum().run_script(&script.to_string(), &[]).value(), map);
    }
}

#[test]
fn a_name_in_the_script_that_fits_no_operation_is_warned_of() {
    let ran = sum().run_script(r#"{"handlers":{"Hand::jump":[{"do":"resume"}]}}"#, &[]);
    assert!(ran.stderr.contains("no operation") && ran.stderr.contains("Hand::jump"), "{}", ran.stderr);
    assert_eq!(ran.failure(), "Unhandled effect hand::Hand.bump (resume)");
}
