//! Several runs on one scheduler, and programs that break the protocol while they run.

use serde_json::{Value, json};

use crate::stage::{DOUBLE_AND_TEN, SUM_A, SUM_B, Stage};

#[test]
fn runs_take_turns_whatever_the_budget() {
    for module in [SUM_A, SUM_B] {
        for budget in ["1", "2", "1024"] {
            let flags =
                ["--export", "main", "--export", "main", "--export", "main", "--budget", budget, "--trace"];
            let ran = Stage::with_module(module).run_script(DOUBLE_AND_TEN, &flags);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let trace = ran.trace();
            let called: Vec<&Value> =
                trace.iter().filter(|line| line[0] == "call").map(|line| &line[2][0]).collect();
            // No run has its second step before every run has had its first.
            assert_eq!(called, [0, 0, 0, 1, 1, 1, 2, 2, 2].map(|arg| json!(arg)).iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_module_that_breaks_the_protocol_fails_its_run() {
    let status = "(struct.get $result 0 (local.get 0))";
    for (wrong, text) in [
        ("(i32.const 7)", "unexpected effect status 7"),
        ("(drop (struct.get $result 0 (local.get 0))) (i32.const -1)", "unexpected effect status -1"),
    ] {
        assert!(SUM_A.contains(status));
        let ran =
            Stage::with_module(&SUM_A.replacen(status, wrong, 1)).run_script(DOUBLE_AND_TEN, &["--trace"]);
        assert_eq!(ran.failure(), text);
        assert_eq!(ran.trace(), [json!(["outcome", "run_1", "failed"])], "no handler was called");
    }
    // The request names an operation that the effect table does not have.
    let index = "(i32.store8 offset=9 (local.get $p) (local.get $op))";
    assert!(SUM_A.contains(index));
    let wrong = "(i32.store8 offset=9 (local.get $p) (i32.const 9))";
    let failure =
        Stage::with_module(&SUM_A.replacen(index, wrong, 1)).run_script(DOUBLE_AND_TEN, &[]).failure();
    assert_eq!(failure, "Effect op index mismatch for handle 0 (expected 0, got 9)");
}
