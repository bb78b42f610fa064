//! The ends of guests: exit codes, signals, standard streams.

use std::io::Write;

use crate::program::{FOREVER, Program, poll};
use crate::run::{run, run_with_stdin};
use crate::stage::Stage;

#[test]
fn the_exit_code_is_what_main_returns() {
    for code in [0, 1, 3, 130, 255] {
        let ran = Stage::with_module(&Program::new().returning(&format!("(i32.const {code})"))).run(&[]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""));
    }
    for code in [-1, -3, 256, i32::MIN, i32::MAX] {
        let ran = Stage::with_module(&Program::new().returning(&format!("(i32.const {code})"))).run(&[]);
        assert_eq!(ran.code, Some(255));
        assert!(ran.stderr.contains(&format!("main returned {code}")), "{}", ran.stderr);
    }
    let nothing = r#"(module (memory (export "memory") 1) (func (export "main") (param i32 i32)))"#;
    assert_eq!(Stage::with_module(nothing).run(&[]).code, Some(0));
}

#[test]
fn main_gets_standard_input_and_output() {
    let handles = "(i32.add (i32.mul (local.get $req) (i32.const 10)) (local.get $res))";
    assert_eq!(Stage::with_module(&Program::new().returning(handles)).run(&[]).code, Some(1));
}

/// Returns a guest that copies its input to its output, then ends the output.
fn cat() -> String {
    let code = r#"(block $end (loop $next
      (global.set $loop (call $read (local.get $req) (i64.const 1000) (i32.const 1000)))
      (br_if $end (i32.eqz (global.get $loop)))
      (drop (call $must (call $write (local.get $res) (i64.const 1000) (global.get $loop))))
      (br $next)))
    (drop (call $must (call $end (local.get $res))))"#;
    Program::new().code(code).end()
}

#[test]
fn standard_streams_are_the_commands() {
    let stage = Stage::with_module(&cat());
    let path = stage.path("g.wat");
    let input = "line\n".repeat(1000);
    assert_eq!(run_with_stdin(&["guest", path.to_str().unwrap()], &input).ok(), input);
    let error = Program::new().code("(i32.store8 (i32.const 500) (i32.const 120))");
    let error = error.code("(drop (call $must (call $write (i32.const 2) (i64.const 500) (i32.const 1))))");
    let ran = Stage::with_module(&error.end()).run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", "x"));
}

#[test]
fn what_a_guest_reports_is_in_the_log() {
    let mut program = Program::new();
    let (topic, text) = (program.place(b"progress"), program.place("halfway \u{2713}".as_bytes()));
    let program = program.code(&format!("(drop (call $must (call $telemetry {topic} {text})))"));
    let ran = Stage::with_module(&program.end()).run(&[]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("halfway \u{2713}") && ran.stderr.contains("progress"), "{}", ran.stderr);
}

#[test]
fn a_signal_ends_a_guest_inside_poll() {
    for signal in ["TERM", "INT"] {
        let program = Program::new().open_loop().print("waiting\n").send(&poll(1, FOREVER)).print("woken\n");
        let stage = Stage::with_module(&program.end());
        let mut guest = stage.start(&[]);
        assert_eq!(guest.line(), "waiting\n");
        let ended = guest.interrupt(signal);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(130), "", ""));
    }
}

#[test]
fn a_signal_ends_a_guest_that_spins() {
    let stage = Stage::with_module(&Program::new().print("spinning\n").code("(loop $ever (br $ever))").end());
    let mut guest = stage.start(&["--step-ms-max", "100000000"]);
    assert_eq!(guest.line(), "spinning\n");
    assert_eq!(guest.interrupt("TERM").code, Some(130));
}

#[test]
fn a_signal_ends_a_guest_that_waits_for_input() {
    let stage = Stage::with_module(&cat());
    let mut guest = stage.start(&[]);
    guest.stdin().write_all(b"first\n").unwrap();
    assert_eq!(guest.line(), "first\n");
    assert_eq!(guest.interrupt("TERM").code, Some(130));
}

#[test]
fn help_tells_the_grants_and_the_exit_codes() {
    let help = run(&["guest", "--help"]).ok();
    for part in
        ["--dir", "--net", "--env", "--allow", "--deny", "--memory-bytes-max", "Exit code", "sys/loop"]
    {
        assert!(help.contains(part), "{part} is not in: {help}");
    }
}
