//! The same seed gives the same trace, byte for byte.

use std::collections::BTreeSet;

use crate::stage::{SUM_A, Stage};

/// Eight runs whose handlers wake at the same moments.
const TOGETHER: &str = r#"{"handlers":{
    "Hand::bump":[{"do":"resume","value":{"arg":0,"mul":2},"after_ms":10}],
    "Hand::tick":[{"do":"tail","value":{"arg":0,"add":1},"after_ms":10}]}}"#;

fn trace(stage: &Stage, flags: &[&str]) -> String {
    let exports = ["--export", "main"].repeat(8);
    let ran = stage.run_script(TOGETHER, &[&exports[..], &["--clock", "virtual", "--trace"], flags].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    format!("{}{}", ran.stderr, ran.stdout)
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    let stage = Stage::with_module(SUM_A);
    for flags in [&[][..], &["--seed", "1"], &["--seed", "2"]] {
        assert_eq!(trace(&stage, flags), trace(&stage, flags), "{flags:?}");
    }
}

#[test]
fn seeds_shuffle_what_happens_at_the_same_moment() {
    let stage = Stage::with_module(SUM_A);
    // A shuffle changes the order in which the runs end.
    let ends = |seed: &str| {
        let trace = trace(&stage, &["--seed", seed]);
        trace.lines().filter(|line| line.starts_with("[\"outcome\"")).collect::<Vec<_>>().join(" ")
    };
    let orders: BTreeSet<String> = ["1", "2", "3", "4"].into_iter().map(ends).collect();
    assert!(orders.len() > 1, "{orders:?}");
}

#[test]
fn runs_that_wait_for_real_things_give_the_same_trace_under_the_virtual_clock() {
    let time = "std::time::Time";
    let stage = Stage::with_program(&[
        crate::program::ask(time, "sleep_millis", vec![20.into()]),
        crate::program::ask(time, "monotonic_now_millis", vec![]),
        crate::program::ask("std::random::Random", "next_i64", vec![]),
    ]);
    let run = || {
        let flags = [
            "--allow",
            "time,random",
            "--clock",
            "virtual",
            "--trace",
            "--export",
            "main",
            "--export",
            "main",
        ];
        let ran = stage.run(&flags);
        format!("{}{}", ran.stderr, ran.stdout)
    };
    assert_eq!(run(), run());
}
