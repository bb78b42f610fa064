//! The capabilities that flags grant, as the guest sees them.

use crate::program::Program;
use crate::run::run;
use crate::stage::{Stage, compiled};

/// Returns a guest that opens a capability and copies what it reads from it to its output. If opening fails, `main`
/// returns the error as a positive number.
fn reader(kind: &str, name: &str) -> String {
    let mut program = Program::new();
    let record = program.open_record(kind, name, &[]);
    let code = format!(
        r#"(global.set $loop (call $open {record}))
    (if (i32.lt_s (global.get $loop) (i32.const 0)) (then (return (i32.sub (i32.const 0) (global.get $loop)))))
    (block $end (loop $next
      (local.set $res (call $read (global.get $loop) (i64.const 1000) (i32.const 7)))
      (br_if $end (i32.le_s (local.get $res) (i32.const 0)))
      (drop (call $must (call $write (i32.const 1) (i64.const 1000) (local.get $res))))
      (br $next)))"#
    );
    program.code(&code).end()
}

/// Returns the texts of the list that proc/argv and proc/env return.
fn texts(bytes: &str) -> Vec<String> {
    let mut rest = bytes.as_bytes();
    assert_eq!(number(&mut rest), 1, "the version");
    let mut texts = Vec::new();
    for _ in 0..number(&mut rest) {
        let length = number(&mut rest) as usize;
        let (text, after) = rest.split_at(length);
        texts.push(String::from_utf8(text.to_vec()).unwrap());
        rest = after;
    }
    assert!(rest.is_empty());
    texts
}

fn number(bytes: &mut &[u8]) -> u32 {
    let (word, rest) = bytes.split_at(4);
    *bytes = rest;
    u32::from_le_bytes(word.try_into().unwrap())
}

#[test]
fn arguments_are_the_module_and_what_follows_the_dashes() {
    let stage = Stage::with_module(&reader("proc", "argv"));
    assert_eq!(texts(&stage.run(&[]).ok()), ["g.wat"]);
    let words = texts(&stage.run(&["--", "one", "--net", "", "two words"]).ok());
    assert_eq!(words, ["g.wat", "one", "--net", "", "two words"]);
}

#[test]
fn variables_are_those_that_are_given() {
    let stage = Stage::with_module(&reader("proc", "env"));
    assert_eq!(stage.run_with_env(&[("SECRET", "x")], &[]).code, Some(4), "denied without a grant");
    let ran = stage.run_with_env(&[("SECRET", "x")], &["--env", "A=1", "--env", "B=x=y,z", "--env", "C="]);
    assert_eq!(texts(&ran.ok()), ["A=1", "B=x=y,z", "C="]);
}

#[test]
fn capabilities_are_denied_unless_they_are_granted() {
    let code = |kind: &str, name: &str, flags: &[&str]| {
        let mut program = Program::new();
        let record = program.open_record(kind, name, &[]);
        let opened = format!("(call $open {record})");
        let negative = format!(
            "(if (result i32) (i32.lt_s (local.tee $res {opened}) (i32.const 0)) (then (i32.sub (i32.const 0) (local.get $res))) (else (i32.const 0)))"
        );
        Stage::with_module(&program.returning(&negative)).run(flags).code.unwrap()
    };
    const DENIED: i32 = 4;
    for (kind, name) in [("sys", "loop"), ("sys", "info"), ("proc", "argv"), ("async", "default")] {
        assert_eq!(code(kind, name, &[]), 0, "{kind}/{name}");
        assert_eq!(
            code(kind, name, &["--deny", &format!("proc/env,{kind}/{name}")]),
            DENIED,
            "{kind}/{name}"
        );
    }
    for (kind, name, flags) in [
        ("event", "bus", ["--allow", "event/bus"]),
        ("file", "aio", ["--dir", "."]),
        ("net", "http", ["--net", "loopback"]),
        ("proc", "env", ["--env", "A=1"]),
    ] {
        assert_eq!(code(kind, name, &[]), DENIED, "{kind}/{name}");
        assert_eq!(code(kind, name, &flags), 0, "{kind}/{name}");
        let capability = format!("{kind}/{name}");
        let denied = [&flags[..], &["--deny", &capability]].concat();
        assert_eq!(code(kind, name, &denied), DENIED, "{kind}/{name}");
    }
    assert_eq!(code("no", "such", &[]), 3);
}

#[test]
fn limits_are_settings_too() {
    let grow = "(i32.eq (memory.grow (i32.const 100)) (i32.const -1))";
    let stage = Stage::with_module(&Program::new().returning(grow));
    assert_eq!(stage.run(&[]).code, Some(0));
    assert_eq!(stage.run_with_env(&[("MILLRACE_GUEST_MEMORY_BYTES_MAX", "1000000")], &[]).code, Some(1));
    std::fs::write(stage.path("millrace.toml"), "guest_memory_bytes_max = 1000000\n").unwrap();
    assert_eq!(stage.run(&["--config", "millrace.toml"]).code, Some(1));
    assert_eq!(stage.run(&["--config", "millrace.toml", "--memory-bytes-max", "100000000"]).code, Some(0));
}

#[test]
fn the_list_of_capabilities_has_two_forms() {
    let list = |flags: &[&str]| run(&[&["guest", &compiled("caps")], flags].concat());
    let documented = list(&[]).ok();
    assert_eq!(documented, list(&["--caps-list", "documented"]).ok());
    let described = list(&["--caps-list", "described"]).ok();
    assert!(documented.contains("loop") && !documented.contains('{'), "{documented:?}");
    assert!(described.contains("loop") && described.contains('{'), "{described:?}");
    list(&["--caps-list", "other"]).refused(2, &["documented", "described"]);
}
