//! Guests that trap, loop for ever, leak, flood or use wild pointers: each is stopped or continues, with a clear
//! message.

use std::process::Command;

use crate::program::{FOREVER, Program, poll, timer_arm, watch};
use crate::run::{command, finish};
use crate::stage::{Stage, compiled};

#[test]
fn a_trap_ends_the_guest_and_says_where() {
    let ran = Stage::with_module(&Program::new().print("before\n").code("(unreachable)").end()).run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "before\n"));
    for part in ["the guest trapped: wasm `unreachable` instruction executed", "bytes into the module"] {
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    let divide =
        Program::new().returning("(i32.div_u (i32.const 1) (i32.sub (local.get $res) (i32.const 1)))");
    Stage::with_module(&divide).run(&[]).refused(1, &["integer divide by zero"]);
    let beyond = Program::new().code("(i32.store (i32.const -4) (i32.const 1))").end();
    Stage::with_module(&beyond).run(&[]).refused(1, &["out of bounds memory access"]);
}

#[test]
fn endless_recursion_is_a_trap() {
    let text = r#"(module (memory (export "memory") 1)
      (func $deeper (param i32) (result i32) (i32.add (call $deeper (local.get 0)) (i32.const 1)))
      (func (export "main") (param i32 i32) (result i32) (call $deeper (i32.const 0))))"#;
    Stage::with_module(text).run(&[]).refused(1, &["call stack exhausted", "deeper"]);
}

#[test]
fn a_guest_that_spins_is_stopped() {
    let stage = Stage::with_module(&Program::new().code("(loop $ever (br $ever))").end());
    stage.run(&["--step-ms-max", "50"]).refused(1, &["computed for 50 ms without a call", "step_ms_max"]);
    stage.run(&["--wall-ms-max", "50"]).refused(1, &["has run for 50 ms", "wall_ms_max"]);
    let start = r#"(module (memory (export "memory") 1) (func (export "main") (param i32 i32))
      (func $start (loop $ever (br $ever))) (start $start))"#;
    Stage::with_module(start).run(&["--step-ms-max", "50"]).refused(1, &["computed for 50 ms"]);
}

#[test]
fn waiting_is_not_spinning_but_counts_as_time() {
    let waits = Program::new().open_loop().send(&timer_arm(1, 300_000_000, 0)).send(&poll(1, FOREVER)).end();
    assert_eq!(Stage::with_module(&waits).run(&["--step-ms-max", "50"]).ok(), "");
    let for_ever = Program::new().open_loop().send(&poll(1, FOREVER)).end();
    Stage::with_module(&for_ever).run(&["--wall-ms-max", "50"]).refused(1, &["has run for 50 ms"]);
}

#[test]
fn a_guest_that_calls_for_ever_is_stopped_by_its_time() {
    let stage =
        Stage::with_module(&Program::new().code("(loop $ever (drop (call $version)) (br $ever))").end());
    stage.run(&["--wall-ms-max", "100", "--step-ms-max", "20"]).refused(1, &["has run for 100 ms"]);
}

#[test]
fn memory_grows_up_to_its_limit() {
    // Grows by a page until that fails, then by the allocator, which must fail too; the guest goes on.
    let code = r#"(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (if (i64.ne (call $alloc (i32.const 100000000)) (i64.const 0)) (then (unreachable)))"#;
    let pages = "(i32.sub (memory.size) (i32.const 100))";
    let stage = Stage::with_module(&Program::new().code(code).returning(pages));
    assert_eq!(stage.run(&["--memory-bytes-max", "6553600"]).code, Some(0));
}

#[test]
fn the_allocator_grows_the_memory_and_ends_with_it() {
    // Allocates blocks of 1 MiB, each written to its last byte, until there is none: with 16 MiB that is 15.
    let code = r#"(block $end (loop $next
      (local.set $req (i32.wrap_i64 (call $alloc (i32.const 1048576))))
      (br_if $end (i32.eqz (local.get $req)))
      (i32.store8 (i32.add (local.get $req) (i32.const 1048575)) (i32.const 1))
      (global.set $loop (i32.add (global.get $loop) (i32.const 1)))
      (br $next)))
    (if (i32.ne (call $free (i64.const 262144)) (i32.const 0)) (then (unreachable)))
    (if (i32.ne (call $free (i64.const 262144)) (i32.const -1)) (then (unreachable)))
    (if (i64.ne (call $alloc (i32.const 1048576)) (i64.const 262144)) (then (unreachable)))"#;
    let stage = Stage::with_module(
        &Program::new().code(code).returning("(i32.add (global.get $loop) (i32.const 1))"),
    );
    assert_eq!(stage.run(&["--memory-bytes-max", "16777216"]).code, Some(15));
}

#[test]
fn pointers_that_point_anywhere_are_errors() {
    // Each call has an address or a length outside the memory: the result is negative, and there is no trap.
    let mut program = Program::new().open_loop();
    for call in [
        "(call $write (i32.const 1) (i64.const 262140) (i32.const 5))",
        "(call $write (i32.const 1) (i64.const -1) (i32.const 1))",
        "(call $write (i32.const 1) (i64.const 4294967296) (i32.const 1))",
        "(call $write (global.get $loop) (i64.const 8) (i32.const -1))",
        "(call $read (i32.const 0) (i64.const 262144) (i32.const 1))",
        "(call $read (global.get $loop) (i64.const 9223372036854775807) (i32.const -1))",
        "(call $open (i64.const 262110))",
        "(call $open (i64.const -40))",
        "(call $telemetry (i64.const 262144) (i32.const 1) (i64.const 8) (i32.const 1))",
    ] {
        let check = format!("(if (i32.ne {call} (i32.const -2)) (then (unreachable)))");
        program = program.code(&check);
    }
    for call in ["(call $free (i64.const 9999999))", "(call $free (i64.const -1))"] {
        program = program.code(&format!("(if (i32.ne {call} (i32.const -1)) (then (unreachable)))"));
    }
    for handle in [3_i32 + 1, 1000, -1, i32::MIN, i32::MAX] {
        for call in [
            format!("(call $read (i32.const {handle}) (i64.const 8) (i32.const 1))"),
            format!("(call $write (i32.const {handle}) (i64.const 8) (i32.const 1))"),
            format!("(call $end (i32.const {handle}))"),
        ] {
            program = program.code(&format!("(if (i32.ne {call} (i32.const -7)) (then (unreachable)))"));
        }
    }
    assert_eq!(Stage::with_module(&program.print("alive\n").end()).run(&[]).ok(), "alive\n");
}

#[test]
fn a_guest_that_leaks_handles_runs_out_of_its_own() {
    // Opens loops until that fails with -8 (no memory), ends one, and opens one again.
    let code = r#"(loop $more (global.set $loop (call $open_loop)) (br_if $more (i32.gt_s (global.get $loop) (i32.const 0))))
    (if (i32.ne (global.get $loop) (i32.const -8)) (then (unreachable)))
    (drop (call $must (call $end (i32.const 3))))
    (global.set $loop (call $must (call $open_loop)))"#;
    let program = Program::new().code(code).send(&poll(1, 0)).print("one left\n");
    assert_eq!(Stage::with_module(&program.end()).run(&[]).ok(), "one left\n");
}

#[test]
fn a_guest_that_takes_every_descriptor_gets_an_error() {
    let mut program = Program::new().open_loop();
    let listener = program.listener("127.0.0.1");
    // Opens listeners until that fails, ends one, and opens one again. The guest's loop still works.
    let code = format!(
        r#"(loop $more (local.set $res (call $open {listener})) (br_if $more (i32.gt_s (local.get $res) (i32.const 0))))
    (drop (call $must (call $end (i32.const 4))))
    (drop (call $must (call $open {listener})))"#
    );
    let program = program.code(&code).send(&timer_arm(1, 1, 0)).send(&poll(1, FOREVER)).print("alive\n");
    let stage = Stage::with_module(&program.end());
    let millrace = command(&[]);
    let script = format!("ulimit -n 40 && exec {:?} guest g.wat --net loopback", millrace.get_program());
    let output = Command::new("sh").args(["-c", &script]).current_dir(stage.folder()).output().unwrap();
    let ran = finish(output);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "alive\n"), "{}", ran.stderr);
}

#[test]
fn a_watched_handle_may_be_closed() {
    let mut program = Program::new().open_loop();
    let listener = program.listener("127.0.0.1");
    let program = program
        .code(&format!("(local.set $res (call $must (call $open {listener})))"))
        // The listener is handle 4. Its watch stays after its end, and reports nothing.
        .send(&watch(4, 1, 77))
        .code("(drop (call $must (call $end (local.get $res))))")
        .send(&timer_arm(1, 5_000_000, 0))
        .send(&poll(8, FOREVER))
        .send(&crate::program::unwatch(77))
        .print("closed\n");
    assert_eq!(Stage::with_module(&program.end()).run(&["--net", "loopback"]).ok(), "closed\n");
}

#[test]
fn a_guest_that_closes_its_own_loop_goes_on() {
    let program = Program::new()
        .open_loop()
        .send(&timer_arm(1, 1, 1))
        .code("(drop (call $must (call $end (global.get $loop))))")
        .code("(if (i32.ge_s (call $end (global.get $loop)) (i32.const 0)) (then (unreachable)))")
        .open_loop()
        .send(&poll(1, 0))
        .print("another\n");
    assert_eq!(Stage::with_module(&program.end()).run(&[]).ok(), "another\n");
}

#[test]
fn a_flood_of_requests_is_answered_or_refused() {
    // Writes requests without reading a reply, until -6; then reads all replies and is served again.
    let mut program = Program::new().open_loop();
    let request = program.place(&poll(1, 0).bytes());
    let code = format!(
        r#"(loop $more
      (local.set $res (call $write (global.get $loop) {request}))
      (br_if $more (i32.gt_s (local.get $res) (i32.const 0))))
    (if (i32.ne (local.get $res) (i32.const -6)) (then (unreachable)))
    (loop $more
      (local.set $res (call $read (global.get $loop) (i64.const 65536) (i32.const 65536)))
      (br_if $more (i32.gt_s (local.get $res) (i32.const 0))))
    (if (i32.ne (local.get $res) (i32.const -6)) (then (unreachable)))"#
    );
    let program = program.code(&code).send(&poll(1, 0)).print("served\n");
    assert_eq!(Stage::with_module(&program.end()).run(&[]).ok(), "served\n");
}

#[test]
fn garbage_is_refused_and_the_next_request_works() {
    let mut program = Program::new().open_loop();
    let garbage = program.place(&[0xff; 4000]);
    let program = program
        .code(&format!(
            "(if (i32.ge_s (call $write (global.get $loop) {garbage}) (i32.const 0)) (then (unreachable)))"
        ))
        .send(&poll(1, 0))
        .print("served\n");
    assert_eq!(Stage::with_module(&program.end()).run(&[]).ok(), "served\n");
}

#[test]
fn time_is_over_also_while_the_guest_waits_for_input() {
    let stage = Stage::with_module(
        &Program::new().returning("(call $read (i32.const 0) (i64.const 1000) (i32.const 10))"),
    );
    // Standard input stays open, and silent.
    let ran = stage.start(&["--wall-ms-max", "50"]).end();
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("it has run for 50 ms"), "{}", ran.stderr);
}

#[test]
fn a_file_that_grows_beyond_the_limit_of_the_system_is_an_error() {
    let stage = Stage::empty();
    std::fs::write(stage.path("source"), vec![1; 100_000]).unwrap();
    let line = format!(
        "ulimit -f 16; exec {} guest {} --dir . -- /source /target",
        env!("CARGO_BIN_EXE_millrace"),
        compiled("copy")
    );
    let output = Command::new("bash").args(["-c", &line]).current_dir(stage.folder()).output();
    finish(output.unwrap()).refused(1, &["copy: cannot write /target"]);
}

#[test]
fn a_guest_cannot_write_lines_of_others_into_the_log() {
    let mut program = Program::new();
    let text = program.place(b"first\nERROR millrace: forged\0\x1b[31m");
    let topic = program.place(b"t\nopic");
    let code = format!("(drop (call $telemetry {topic} {text}))");
    let ran = Stage::with_module(&program.code(&code).end()).run(&[]);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains(r"first\nERROR millrace: forged\u{0}\u{1b}[31m"), "{}", ran.stderr);
}
