//! Broken modules and wrong flags: each gets one clear error.

use crate::program::Program;
use crate::run::run;
use crate::stage::Stage;

const MEMORY: &str = r#"(memory (export "memory") 1)"#;
const MAIN: &str = r#"(func (export "main") (param i32 i32))"#;

#[test]
fn what_is_no_guest_says_why() {
    for (module, parts) in [
        ("(module".to_owned(), vec!["g.wat", "text format"]),
        ("\0asm".to_owned(), vec!["g.wat"]),
        (String::new(), vec!["g.wat"]),
        ("(module)".to_owned(), vec!["no export memory"]),
        (format!("(module {MEMORY})"), vec!["no export main", "function of (i32, i32)"]),
        (format!("(module {MAIN})"), vec!["no export memory"]),
        (
            format!(r#"(module {MEMORY} (func (export "main") (param i32)))"#),
            vec!["the export main is not a function of (i32, i32)"],
        ),
        (
            format!(r#"(module {MEMORY} (func (export "main") (param i32 i32) (result i64) (i64.const 0)))"#),
            vec!["the export main is not a function"],
        ),
        (
            format!(r#"(module (memory (export "memory") i64 1) {MAIN})"#),
            vec!["the export memory is not a memory of 32-bit"],
        ),
        (
            format!(r#"(module {MEMORY} {MAIN} (global (export "__heap_base") i64 (i64.const 8)))"#),
            vec!["the export __heap_base is not a global of type i32"],
        ),
        (
            format!(
                r#"(module (import "env" "zi_exit" (func)) (import "wasi" "fd_write" (func)) {MEMORY} {MAIN})"#
            ),
            vec!["imports env.zi_exit, wasi.fd_write, but", "env.zi_read"],
        ),
        (
            format!(r#"(module (import "env" "zi_end" (func (param i64))) {MEMORY} {MAIN})"#),
            vec!["env::zi_end", "incompatible import type"],
        ),
    ] {
        Stage::with_module(&module).run(&[]).refused(1, &parts);
    }
}

#[test]
fn a_guest_that_does_not_fit_is_not_started() {
    let text = format!(r#"(module (memory (export "memory") 100) {MAIN})"#);
    let stage = Stage::with_module(&text);
    stage.run(&["--memory-bytes-max", "1000000"]).refused(1, &["the guest did not start", "memory"]);
    assert_eq!(stage.run(&[]).ok(), "");
    let text = format!(r#"(module {MEMORY} {MAIN} (data (i32.const 65535) "xyz"))"#);
    Stage::with_module(&text).run(&[]).refused(1, &["out of bounds memory access"]);
    let text = format!(r#"(module {MEMORY} {MAIN} (func $start (unreachable)) (start $start))"#);
    Stage::with_module(&text).run(&[]).refused(1, &["the guest trapped", "unreachable", "in start"]);
}

#[test]
fn wrong_usage_is_told_apart() {
    let stage = Stage::with_module(&Program::new().end());
    assert_eq!(stage.run(&[]).ok(), "");
    for (flags, parts) in [
        (&["--net", "nonsense"][..], &["--net", "\"nonsense\"", "HOST:PORT"][..]),
        (&["--net", "loopback,x:99999"], &["--net", "x:99999"]),
        (&["--net", ""], &["--net"]),
        (&["--dir", "no-such-folder"], &["--dir", "no-such-folder"]),
        (&["--dir", "g.wat"], &["--dir", "g.wat"]),
        (&["--env", "NOVALUE"], &["--env", "NOVALUE", "NAME=VALUE"]),
        (&["--env", "=x"], &["--env", "no name"]),
        (&["--allow", "sys/everything"], &["--allow", "sys/everything", "event/bus"]),
        (&["--allow", "net/tcp"], &["--allow", "--net"]),
        (&["--allow", "file/aio"], &["--allow", "--dir"]),
        (&["--deny", "loop"], &["--deny", "\"loop\"", "sys/loop"]),
        (&["--memory-bytes-max", "none"], &["guest-memory-bytes-max", "none"]),
        (&["--step-ms-max", "0"], &["guest-step-ms-max"]),
        (&["stray"], &["stray"]),
    ] {
        stage.run(flags).refused(2, parts);
    }
    run(&["guest"]).refused(2, &["MODULE"]);
    run(&["guest", "/no/such/guest.wasm"]).refused(2, &["cannot read /no/such/guest.wasm"]);
}

#[test]
fn a_binary_module_runs_like_its_text() {
    let stage = Stage::empty();
    let binary = wat::parse_str(Program::new().print("binary\n").end()).unwrap();
    std::fs::write(stage.path("g.wat"), binary).unwrap();
    assert_eq!(stage.run(&[]).ok(), "binary\n");
}
