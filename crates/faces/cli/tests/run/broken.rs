//! Broken modules, and programs that do not stop: each gets one clear error.

use serde_json::json;

use crate::run::run;
use crate::stage::{DOUBLE_AND_TEN, SUM_A, Stage};

#[test]
fn what_is_no_module_says_why() {
    for (module, parts) in [
        ("(module", vec!["m.wat", "text format"]),
        ("\0asm", vec!["m.wat"]),
        ("(module)", vec!["m.wat", "effect table"]),
        (
            "(module (@custom \"__voyd_effect_table\" \"\\09\\00\\00\\00\\00\\00\\00\\00\"))",
            vec!["version 9"],
        ),
        (
            "(module (@custom \"__voyd_effect_table\" \"\\02\\00\\00\\00\\05\\00\\00\\00\"))",
            vec!["truncated"],
        ),
        (
            "(module (@custom \"__voyd_effect_table\" \"\\02\\00\\00\\00\\00\\00\\00\\00\"))",
            vec!["Missing export memory"],
        ),
    ] {
        Stage::with_module(module).run(&[]).refused(1, &parts);
    }
    run(&["run", "/no/such/module.wasm"]).refused(2, &["/no/such/module.wasm"]);
    run(&["run"]).refused(2, &["MODULE"]);
}

#[test]
fn an_export_that_is_missing_is_named_with_those_there_are() {
    let stage = Stage::with_module(SUM_A);
    stage.run(&["--export", "start"]).refused(1, &["Missing export start_effectful", "main"]);
    // Exports of the protocol cannot start a run.
    for export in ["resume", "resume_effectful", "effect_status", "init_effects"] {
        stage.run(&["--export", export]).refused(1, &["Missing export", export, "the module has main"]);
    }
}

/// The limits of a step also hold for code that runs before the first step.
#[test]
fn a_start_function_that_does_not_end_is_stopped_by_the_limits_of_a_step() {
    let end = SUM_A.rfind(')').unwrap();
    let endless = format!("{} (func $spin (loop $again (br $again))) (start $spin))", &SUM_A[..end]);
    let stage = Stage::with_module(&endless);
    stage.run(&["--fuel", "1000"]).refused(1, &["did not start", "1000 units of fuel"]);
    let long = ["--fuel", "9000000000000000000", "--step-ms-max", "20"];
    stage.run(&long).refused(1, &["did not start", "20 ms"]);
}

#[test]
fn a_binary_module_runs_like_its_text() {
    let stage = Stage::with_module(SUM_A);
    std::fs::write(stage.path("m.wat"), wat::parse_str(SUM_A).unwrap()).unwrap();
    assert_eq!(stage.run_script(DOUBLE_AND_TEN, &[]).value(), json!(15));
}

#[test]
fn a_trap_fails_its_run_and_tells_where() {
    let trap = SUM_A
        .replace("(call $step (i32.const 0) (i32.const 0) (local.get $p) (local.get $cap))", "(unreachable)");
    let ran = Stage::with_module(&trap).run(&[]);
    assert!(ran.failure().contains("unreachable"), "{}", ran.stdout);
    let told = &ran.result()["error"]["trap"];
    assert_eq!(told["transition"]["point"], json!("effectful_entry"));
    assert!(told["trap"]["wasmByteOffset"].is_u64(), "{told}");
}

/// Returns a program whose entry never returns.
fn endless() -> Stage {
    let body = "(loop $for_ever (br $for_ever)) (unreachable)";
    let entry = "(call $step (i32.const 0) (i32.const 0) (local.get $p) (local.get $cap))";
    assert!(SUM_A.contains(entry));
    Stage::with_module(&SUM_A.replace(entry, body))
}

#[test]
fn a_program_that_never_yields_is_stopped_by_its_fuel() {
    let failure = endless().run(&["--fuel", "1000000"]).failure();
    assert!(failure.contains("1000000 units of fuel"), "{failure}");
}

#[test]
fn a_program_that_never_yields_is_stopped_by_the_time_of_a_step() {
    let failure = endless().run(&["--step-ms-max", "50", "--fuel", "9223372036854775807"]).failure();
    assert!(failure.contains("50 ms"), "{failure}");
}

#[test]
fn a_run_that_takes_too_long_fails_by_its_own_clock() {
    let script = r#"{"handlers":{"Hand::bump":[{"do":"resume","value":1,"after_ms":5000}]}}"#;
    let ran = Stage::with_module(SUM_A).run_script(script, &["--clock", "virtual", "--wall-ms-max", "100"]);
    assert!(ran.failure().contains("100 ms"), "{}", ran.stdout);
}

#[test]
fn a_reply_that_does_not_fit_the_buffer_fails_the_run() {
    let script =
        format!(r#"{{"handlers":{{"Hand::bump":[{{"do":"resume","value":"{}"}}]}}}}"#, "x".repeat(5000));
    let failure = Stage::with_module(SUM_A).run_script(&script, &[]).failure();
    assert_eq!(failure, "resume payload exceeds buffer size");
}
