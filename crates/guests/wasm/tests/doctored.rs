//! Modules that break the protocol, give false lengths, or never yield: each fails its run, or is refused, with a text
//! that says why.
#![allow(clippy::unwrap_used)]

mod support;

use millrace_wasm::{Compiler, Generation, InstanceLimits, LoadError, RunLimits, RunStart};

use support::doctored::{Doctored, RequestB, Step, ask_table, request_a, result_b};
use support::{Fixture, failure, on, resume, run, value};

/// Runs `main` of a doctored module whose operations are answered with 40.
fn outcome_of(module: &Doctored) -> millrace_wasm::EffectOutcome {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&module.wat(), |handlers| on(handlers, "number", |_| resume(40)));
    run(&instance)
}

fn failure_of(generation: Generation, steps: Vec<Step>) -> String {
    failure(outcome_of(&Doctored::new(generation, steps)))
}

fn load_error(module: &Doctored) -> String {
    Compiler::new().unwrap().load(module.wat().as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_module_of_the_kind_that_is_doctored_here_works() {
    let steps = vec![Step::new(1, &request_a(&[])), Step::new(0, &[42])];
    assert_eq!(value(outcome_of(&Doctored::new(Generation::A, steps))), 42);
    let steps = vec![Step::new(1, &RequestB::default().bytes()), Step::new(0, &result_b())];
    assert_eq!(value(outcome_of(&Doctored::new(Generation::B, steps))), 42);
}

#[test]
fn protocol_mismatch_invalid_status() {
    for generation in [Generation::A, Generation::B] {
        assert_eq!(failure_of(generation, vec![Step::new(7, &[1])]), "unexpected effect status 7");
        assert_eq!(failure_of(generation, vec![Step::new(-1, &[1])]), "unexpected effect status -1");
    }
}

#[test]
fn protocol_mismatch_of_the_operation_in_generation_a() {
    let failed = |changes: &[(&str, i64)]| failure_of(Generation::A, vec![Step::new(1, &request_a(changes))]);
    assert_eq!(failed(&[("resumeKind", 5)]), "unsupported resume kind 5");
    assert_eq!(failed(&[("handle", 99), ("opIndex", 99)]), "Unknown effect op index 99");
    assert_eq!(failed(&[("effectId", 1)]), "Effect id mismatch for opIndex 0 (expected 0xbd3df8faa3a0827a)");
    assert_eq!(failed(&[("handle", 1)]), "Effect op index mismatch for handle 1 (expected 1, got 0)");
    assert_eq!(failed(&[("opId", 3)]), "Effect op id mismatch for case::Ask.number (expected 0, got 3)");
    let wrong_kind = "Resume kind mismatch for case::Ask.number (expected resume, got tail)";
    assert_eq!(failed(&[("resumeKind", 1)]), wrong_kind);
}

#[test]
fn protocol_mismatch_of_the_operation_in_generation_b() {
    let failed = |request: RequestB| failure_of(Generation::B, vec![Step::new(1, &request.bytes())]);
    let request = RequestB::default;
    assert_eq!(
        failed(RequestB { version: 1, ..request() }),
        "effect request frame: is not of frame version 2"
    );
    assert_eq!(failed(RequestB { tag: 1, ..request() }), "effect request frame: has another frame's tag");
    assert_eq!(failed(RequestB { op_index: 9, ..request() }), "Unknown effect op index 9");
    let other_effect = "Effect id mismatch for opIndex 0 (expected case.ask)";
    assert_eq!(failed(RequestB { effect: "case.tell", ..request() }), other_effect);
    let other_op = "Effect op id mismatch for case::Ask.number (expected 0, got 1)";
    assert_eq!(failed(RequestB { op_id: 1, ..request() }), other_op);
    let other_signature =
        "Effect signature mismatch for case::Ask.number (expected 0x11111111, got 0x80000000)";
    assert_eq!(failed(RequestB { signature: 0x8000_0000, ..request() }), other_signature);
    let other_kind = "Resume kind mismatch for case::Ask.number (expected resume, got tail)";
    assert_eq!(failed(RequestB { kind: 1, ..request() }), other_kind);
}

#[test]
fn lengths_that_lie_about_the_buffer() {
    for generation in [Generation::A, Generation::B] {
        let failed = |len| failure_of(generation, vec![Step::new(0, &[1]).with_len(len)]);
        assert_eq!(failed(0), "no msgpack payload written to buffer");
        assert_eq!(failed(-2), "no msgpack payload written to buffer");
        let lie = failed(i32::MAX);
        assert!(lie.starts_with("the module wrote 2147483647 bytes into its buffer"), "{lie}");
        let lie = failed(131_073);
        assert!(lie.starts_with("the module wrote 131073 bytes into its buffer"), "{lie}");
    }
    let overflow = failure_of(Generation::B, vec![Step::new(1, &[1]).with_len(-1)]);
    assert_eq!(overflow, "the payload does not fit the run's buffer of 131072 bytes: increase buffer_bytes");
}

#[test]
fn absurd_lengths_inside_a_payload() {
    for generation in [Generation::A, Generation::B] {
        for payload in
            [&[0xdd, 0xff, 0xff, 0xff, 0xff][..], &[0xdb, 0x7f, 0xff, 0xff, 0xff, b'x'], &[0xdf, 0, 1, 0, 0]]
        {
            for status in [0, 1] {
                let failed = failure_of(generation, vec![Step::new(status, payload)]);
                assert!(failed.starts_with("MsgPack payload ends at byte"), "{failed}");
            }
        }
    }
}

#[test]
fn a_result_that_is_no_result() {
    assert_eq!(failure_of(Generation::A, vec![Step::new(0, &[0xc1])]).split(' ').next(), Some("MsgPack"));
    assert_eq!(
        failure_of(Generation::A, vec![Step::new(0, &[1, 2])]),
        "MsgPack payload has 1 bytes after its value"
    );
    let mut other_export = result_b();
    other_export[7] = 5;
    assert_eq!(
        failure_of(Generation::B, vec![Step::new(0, &other_export)]),
        "export completion frame: is of another export"
    );
    // [direction, frame category, phase, category, code, provider code, message, path]
    let mut failed = vec![0x94, 2, 1, 0xce, 0x75, 0x48, 0x71, 0x04, 0x92, 1, 0x98, 0, 0, 0, 0, 0, 0, 0xa3];
    failed.extend(b"bad\xc0");
    assert_eq!(failure_of(Generation::B, vec![Step::new(0, &failed)]), "the module reports a failure: bad");
}

#[test]
fn null_references_fail_the_run() {
    let null_result = Step { null_result: true, ..Step::new(0, &[1]) };
    assert_eq!(failure_of(Generation::A, vec![null_result]), "wasm trap: null reference");
    let null_continuation = Step { null_continuation: true, ..Step::new(1, &request_a(&[])) };
    assert_eq!(failure_of(Generation::A, vec![null_continuation]), "effect_cont returned null for a request");
}

#[test]
fn every_missing_export_is_named() {
    let required =
        ["memory", "init_effects", "effect_status", "effect_len", "effect_cont", "resume_effectful"];
    for name in required {
        let module = Doctored { without: Some(name), ..Doctored::new(Generation::A, vec![]) };
        assert_eq!(load_error(&module), format!("Missing export {name}"));
    }
    let fixture = Fixture::virtual_time();
    let module = Doctored { without: Some("main_effectful"), ..Doctored::new(Generation::A, vec![]) };
    let instance = fixture.instance(&module.wat(), |_| {});
    let error = instance.start("main", vec![]).unwrap_err().to_string();
    assert_eq!(error, "Missing export main_effectful; the module has no effectful exports");
    assert!(
        instance
            .start("main_effectful", vec![])
            .unwrap_err()
            .to_string()
            .starts_with("Missing export main_effectful;")
    );
}

#[test]
fn exports_of_the_wrong_type_are_named() {
    let fixture = Fixture::virtual_time();
    let module = Doctored {
        without: Some("effect_status"),
        fields: "(func (export \"effect_status\") (result i32) (i32.const 0))".to_owned(),
        ..Doctored::new(Generation::A, vec![])
    };
    let module = fixture.host.load(module.wat().as_bytes()).unwrap();
    let error = fixture.host.instantiate(&module, module.handlers(), &InstanceLimits::default()).unwrap_err();
    assert_eq!(error.to_string(), "export effect_status is not a function of (result) -> i32");
}

#[test]
fn broken_tables_are_refused() {
    let with_table = |table| Doctored { table, ..Doctored::new(Generation::A, vec![]) };
    assert_eq!(load_error(&with_table(None)), "Missing effect table export __voyd_effect_table");
    let mut table = ask_table();
    table[0] = 9;
    assert_eq!(load_error(&with_table(Some(table))), "Unsupported effect table version 9");
    let table = ask_table();
    assert_eq!(load_error(&with_table(Some(table[..50].to_vec()))), "Effect table payload is truncated");
    let mut table = ask_table();
    table[4] = 200;
    assert_eq!(load_error(&with_table(Some(table))), "Effect table payload is truncated");
    let mut table = ask_table();
    table[8 + 25] = 0x7f;
    assert_eq!(load_error(&with_table(Some(table))), "Name offset 32521 is out of bounds");
    let mut table = ask_table();
    table[8 + 16] = 3;
    assert_eq!(load_error(&with_table(Some(table))), "unsupported resume kind 3");
}

#[test]
fn what_is_no_module_is_refused() {
    let compiler = Compiler::new().unwrap();
    let error = |bytes: &[u8]| compiler.load(bytes).unwrap_err();
    assert!(matches!(error(b"hello"), LoadError::Text(_)));
    assert!(matches!(error(&[0xff; 9]), LoadError::Text(_)));
    assert!(matches!(error(b"\0asm\x01\0\0\0\x01"), LoadError::Section(_)));
    let import = Doctored { fields: "(import \"env\" \"now\" (func))".to_owned(), ..Doctored::body("") };
    assert_eq!(
        load_error(&import),
        "the module imports env.now, but effect modules are given nothing but voyd_math"
    );
    let abi = Doctored { export_abi: Some("{\"hostAbi\":9}".to_owned()), ..Doctored::body("") };
    assert!(load_error(&abi).contains("hostAbi 9"));
}

fn limited(instructions: &str, limits: &RunLimits) -> String {
    let fixture = Fixture::virtual_time();
    let module = Doctored { steps: vec![Step::new(0, &[42])], ..Doctored::body(instructions) };
    let small = InstanceLimits { memory_bytes_max: 1 << 20, ..InstanceLimits::default() };
    let instance = fixture.instance_with(&module.wat(), &small, |_| {});
    let start = || RunStart { limits: limits.clone(), ..RunStart::new("main", vec![]) };
    let failed = failure(instance.start_run(start()).unwrap().wait());
    assert_eq!(
        failure(instance.start_run(start()).unwrap().wait()),
        failed,
        "the instance goes on, and fails the same"
    );
    failed
}

#[test]
fn a_guest_that_loops_for_ever_is_stopped_by_its_fuel() {
    let limits = RunLimits { step_fuel_max: 100_000, ..RunLimits::default() };
    let failed = limited("(loop $l (br $l))", &limits);
    assert!(failed.starts_with("the guest used more than 100000 units of fuel in one step"), "{failed}");
}

#[test]
fn a_guest_with_few_but_long_instructions_is_stopped_by_the_clock() {
    let limits = RunLimits { step_fuel_max: u64::MAX, step_wall_ms_max: 20, ..RunLimits::default() };
    let fill = "(loop $l (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)) (br $l))";
    let failed = limited(fill, &limits);
    assert!(failed.starts_with("the guest ran for more than 20 ms in one step"), "{failed}");
}

#[test]
fn a_guest_that_grows_memory_without_end_gets_no_more_than_its_limit() {
    // Traps with a division by zero once memory.grow has failed, which proves that it failed.
    let grow = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) \
                (drop (i32.div_u (i32.const 1) (i32.const 0)))";
    assert_eq!(limited(grow, &RunLimits::default()), "wasm trap: integer divide by zero");
}

/// A module with many memories or tables, whose export `grow` grows each of them and returns how often that worked.
fn growing(kind: &str, each: &str, by: u32, count: usize) -> String {
    let declared: String = (0..count).map(|index| format!("({kind} $x{index} {each}) ")).collect();
    let value = if kind == "table" { "(ref.null func)" } else { "" };
    let grow = |index| {
        format!(
            "(if (i32.ne ({kind}.grow $x{index} {value} (i32.const {by})) (i32.const -1)) \
             (then (local.set $n (i32.add (local.get $n) (i32.const 1)))))"
        )
    };
    let body: String = (0..count).map(grow).collect();
    let function = format!("(func (export \"grow\") (result i32) (local $n i32) {body} (local.get $n))");
    Doctored { fields: format!("{declared}{function}"), ..Doctored::body("") }.wat()
}

fn grown(module: &str, limits: &InstanceLimits) -> i64 {
    let fixture = Fixture::virtual_time();
    value(fixture.instance_with(module, limits, |_| {}).start("grow", vec![]).unwrap().wait())
}

#[test]
fn all_memories_of_an_instance_share_one_limit() {
    let mebibytes =
        |count: usize| InstanceLimits { memory_bytes_max: count << 20, ..InstanceLimits::default() };
    let module = growing("memory", "0 65536", 16, 40);
    // The memory that every module has uses a part of the limit.
    assert_eq!(grown(&module, &mebibytes(4)), 3);
    assert_eq!(grown(&module, &mebibytes(64)), 40);
}

#[test]
fn all_tables_of_an_instance_share_one_limit() {
    let module = growing("table", "0 1048576 funcref", 100_000, 90);
    assert_eq!(grown(&module, &InstanceLimits::default()), 10, "2^20 elements by default");
    let limits = InstanceLimits {
        memory_bytes_max: 4 << 20,
        table_elements_max: usize::MAX,
        ..InstanceLimits::default()
    };
    assert_eq!(grown(&module, &limits), 5, "an element takes 8 bytes of the instance's memory");
    let limits = InstanceLimits { table_elements_max: usize::MAX, ..InstanceLimits::default() };
    assert_eq!(grown(&module, &limits), 90);
}

#[test]
fn growth_that_is_refused_is_not_counted() {
    // Growth beyond the declared maximum, growth beyond 32-bit addresses, both in a loop: none of it changes the
    // account.
    let refused = "(loop $l (drop (memory.grow $x0 (i32.const 9))) (drop (memory.grow $x1 (i32.const 65536))) \
                   (local.set $k (i32.add (local.get $k) (i32.const 1))) \
                   (br_if $l (i32.lt_u (local.get $k) (i32.const 100))))";
    let module = growing("memory", "0 65536", 16, 40)
        .replace("$x0 0 65536", "$x0 0 8")
        .replace("(local $n i32)", &format!("(local $n i32) (local $k i32) {refused}"))
        .replace("(local.get $n))", &format!("{refused} (local.get $n))"));
    let limits = InstanceLimits { memory_bytes_max: 4 << 20, ..InstanceLimits::default() };
    assert_eq!(grown(&module, &limits), 3);
}

#[test]
fn the_limits_of_an_instance_hold_for_what_runs_while_it_is_made() {
    let fixture = Fixture::virtual_time();
    let error = |module: &Doctored, limits: &InstanceLimits| {
        let module = fixture.host.load(module.wat().as_bytes()).unwrap();
        fixture.host.instantiate(&module, module.handlers(), limits).map(drop).unwrap_err().to_string()
    };
    let start =
        |body: &str| Doctored { fields: format!("(func $s {body}) (start $s)"), ..Doctored::body("") };
    let init = |body: &str| Doctored {
        without: Some("init_effects"),
        fields: format!("(func (export \"init_effects\") (param i32) {body})"),
        ..Doctored::body("")
    };
    let endless = "(loop $l (br $l))";
    let fuel = InstanceLimits { step_fuel_max: 100_000, ..InstanceLimits::default() };
    let used = "the guest used more than 100000 units of fuel in one step";
    let text = error(&start(endless), &fuel);
    assert!(text.starts_with(&format!("the module did not start: {used}")), "{text}");
    let text = error(&init(endless), &fuel);
    assert!(text.starts_with(&format!("init_effects failed: {used}")), "{text}");
    let time = InstanceLimits { step_fuel_max: u64::MAX, step_wall_ms_max: 20, ..InstanceLimits::default() };
    let ran = "the guest ran for more than 20 ms in one step";
    let text = error(&start(endless), &time);
    assert!(text.starts_with(&format!("the module did not start: {ran}")), "{text}");
    let text = error(&init(endless), &time);
    assert!(text.starts_with(&format!("init_effects failed: {ran}")), "{text}");
    let trap = "wasm trap: wasm `unreachable` instruction executed";
    assert_eq!(error(&start("(unreachable)"), &fuel), format!("the module did not start: {trap}"));
    assert_eq!(error(&init("(unreachable)"), &fuel), format!("init_effects failed: {trap}"));
}

#[test]
fn a_guest_that_keeps_objects_without_end_gets_no_more_than_its_limit() {
    let keep = "(local $list anyref) \
                (loop $l (local.set $list (struct.new $result (i32.const 0) (local.get $list) (i32.const 0))) (br $l))";
    let failed = limited(keep, &RunLimits::default());
    assert!(failed.contains("GC heap"), "{failed}");
}

#[test]
fn a_guest_that_recurses_without_end_traps() {
    let fixture = Fixture::virtual_time();
    let module = Doctored {
        fields: "(func $deep (call $deep) (call $deep))".to_owned(),
        ..Doctored::body("(call $deep)")
    };
    let instance = fixture.instance(&module.wat(), |_| {});
    assert_eq!(failure(run(&instance)), "wasm trap: call stack exhausted");
}

#[test]
fn a_run_that_takes_too_long_on_the_hosts_clock_fails() {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(
        &Doctored::new(Generation::A, vec![Step::new(1, &request_a(&[]))]).wat(),
        |handlers| {
            support::on_async(handlers, "number", |call| async move {
                call.sleep_ms(1_000).await?;
                resume(1)
            });
        },
    );
    let limits = RunLimits { wall_ms_max: Some(250), ..RunLimits::default() };
    let outcome = instance.start_run(RunStart { limits, ..RunStart::new("main", vec![]) }).unwrap().wait();
    assert_eq!(failure(outcome), "the run did not end by its deadline, 250 ms on the monotonic clock");
}
