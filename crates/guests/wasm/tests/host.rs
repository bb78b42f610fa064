//! Guarantees of the host beyond the conformance table: buffers, types, registration, diagnostics, instances.

mod support;

use millrace_wasm::{
    Clock, EffectOutcome, Generation, HandlerError, InstanceLimits, OpKey, RegisterError, RunStartError,
    RunsLimits, Signature, Value, ValueSchema, typed_async_handler_fn, typed_handler_fn,
};
use serde::{Deserialize, Serialize};

use support::doctored::{Doctored, Step, request_a};
use support::{
    Fixture, arg, doubling, end, failure, mains, on, on_async, resume, run, sum_module, tail, value,
};

fn buffers_of(bytes: u32) -> InstanceLimits {
    InstanceLimits { buffer_bytes: Some(bytes), ..InstanceLimits::default() }
}

#[test]
fn a_payload_that_fits_exactly_is_accepted_and_one_byte_less_is_not() {
    let fixture = Fixture::virtual_time();
    let outcome = |generation, bytes| {
        run(&fixture.instance_with(&sum_module(generation, 2), &buffers_of(bytes), doubling))
    };
    assert_eq!(value(outcome(Generation::A, 65)), 2);
    assert_eq!(failure(outcome(Generation::A, 64)), "wasm trap: wasm `unreachable` instruction executed");
    assert_eq!(value(outcome(Generation::B, 160)), 2);
    let overflow = "the payload does not fit the run's buffer of 159 bytes: increase buffer_bytes";
    assert_eq!(failure(outcome(Generation::B, 159)), overflow);
}

#[test]
fn a_reply_that_exceeds_the_buffer_is_refused_before_it_is_written() {
    let fixture = Fixture::virtual_time();
    let reply = |len: usize| {
        let steps = vec![Step::new(1, &request_a(&[])), Step::new(0, &[42])];
        let module = Doctored::new(Generation::A, steps).wat();
        let instance = fixture.instance_with(&module, &buffers_of(128), |handlers| {
            on(handlers, "number", move |_| resume("x".repeat(len)));
        });
        run(&instance)
    };
    assert_eq!(value(reply(126)), 42);
    assert_eq!(failure(reply(127)), "resume payload exceeds buffer size");
}

#[test]
fn memory_for_buffers_is_bounded_and_given_back() {
    let fixture = Fixture::virtual_time();
    // Four pages of memory, and one page for the heap of objects, which counts as well.
    let limits = InstanceLimits { memory_bytes_max: 5 * 65_536, ..buffers_of(65_536 - 64) };
    let instance = fixture.instance_with(&sum_module(Generation::A, 1), &limits, |handlers| {
        on_async(handlers, "bump", |call| async move {
            call.sleep_ms(10).await?;
            resume(1)
        });
    });
    for _ in 0..5 {
        let outcomes: Vec<EffectOutcome> =
            instance.start_all(mains(4)).unwrap().iter().map(|run| run.wait()).collect();
        let kinds: Vec<&str> = outcomes.iter().map(EffectOutcome::kind).collect();
        assert_eq!(kinds, ["value", "value", "failed", "failed"]);
        let text = failure(outcomes[2].clone());
        assert!(text.starts_with("memory memory grow failed"), "{text}");
    }
}

#[test]
fn a_trap_in_the_entry_says_where() {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(Generation::B, 1), |_| {});
    let EffectOutcome::Failed(failed) = instance.start("crash", vec![]).unwrap().wait() else { panic!() };
    assert_eq!(failed.to_string(), "panic: sum is broken");
    let report = failed.trap().unwrap();
    assert!(report.function_index.is_some() && report.module_offset.is_some() && report.effect.is_none());
    let json = report.to_json();
    assert_eq!(json["transition"], serde_json::json!({"point": "effectful_entry", "direction": "host->vm"}));
    assert_eq!((&json["kind"], &json["panic"]), (&"wasm-trap".into(), &"sum is broken".into()));
    // The text of one panic must not appear in the report of the next trap.
    let EffectOutcome::Failed(again) = run(&fixture.instance(&trap_on_resume(), answer_one)) else {
        panic!()
    };
    assert_eq!(again.trap().unwrap().panic, None);
}

fn trap_on_resume() -> String {
    Doctored::new(Generation::A, vec![Step::new(1, &request_a(&[]))]).wat()
}

fn answer_one(handlers: &mut millrace_wasm::Handlers) {
    on(handlers, "number", |_| resume(1));
}

#[test]
fn a_trap_while_resuming_names_the_effect() {
    let fixture = Fixture::virtual_time();
    let EffectOutcome::Failed(failed) = run(&fixture.instance(&trap_on_resume(), answer_one)) else {
        panic!()
    };
    let report = failed.trap().unwrap();
    assert_eq!(report.transition.as_str(), "resume_effectful");
    let effect = report.effect.as_ref().unwrap();
    assert_eq!((&*effect.label, &*effect.effect_id, effect.op_id), ("case::Ask.number", "case.ask", 0));
}

#[test]
fn arguments_of_generation_b_are_typed_and_checked_at_once() {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(Generation::B, 1), doubling);
    let upto = |args: Vec<Value>| instance.start("upto", args);
    assert_eq!(value(upto(vec![Value::Int(5)]).unwrap().wait()), 20);
    assert_eq!(upto(vec![]).unwrap_err().to_string(), "typed export upto expected 1 args, got 0");
    let wrong = upto(vec![Value::from("x")]).unwrap_err().to_string();
    assert_eq!(wrong, "typed export upto arg0 expected i32, got string");
    assert_eq!(run(&instance).kind(), "value", "refused starts take no number");
    assert!(fixture.trace.lines().last().unwrap().starts_with("run_2"));
}

#[test]
fn generation_a_takes_no_arguments() {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(Generation::A, 1), doubling);
    let error = instance.start("main", vec![Value::Int(1)]).unwrap_err();
    assert_eq!(error.to_string(), "start: effectful exports do not accept arguments yet");
}

#[test]
fn replies_and_early_ends_of_generation_b_are_checked_against_the_module() {
    let fixture = Fixture::virtual_time();
    let with = |reply: fn() -> millrace_wasm::HandlerResult| {
        failure(run(&fixture
            .instance(&sum_module(Generation::B, 1), |handlers| on(handlers, "bump", move |_| reply()))))
    };
    let text = "typed export effect hand::Hand.bump arg0 expected i32, got string";
    assert_eq!(with(|| resume("forty")), text);
    assert_eq!(with(|| end("forty")), "typed export main result expected i32, got string");
}

#[test]
fn declared_types_are_checked_because_generation_a_would_read_zero() {
    let fixture = Fixture::virtual_time();
    let outcome = |params: Vec<ValueSchema>, reply: fn() -> Value| {
        let instance = fixture.instance(&sum_module(Generation::A, 1), |handlers| {
            on(handlers, "bump", move |_| resume(reply()));
            let params = params.into_iter().map(Into::into).collect();
            let types = Signature { params, result: Some(ValueSchema::I32.into()), ..Signature::default() };
            handlers.declare(&OpKey::named("case.hand", "bump"), types).unwrap();
        });
        run(&instance)
    };
    assert_eq!(value(outcome(vec![ValueSchema::I32], || Value::Int(7))), 7);
    let wrong = failure(outcome(vec![ValueSchema::I32], || Value::from("x")));
    assert_eq!(wrong, "reply to effect hand::Hand.bump expected i32, got string");
    let wrong = failure(outcome(vec![ValueSchema::Str], || Value::Int(7)));
    assert_eq!(wrong, "effect hand::Hand.bump arg0 expected string, got integer");
    let wrong = failure(outcome(vec![], || Value::Int(7)));
    assert_eq!(wrong, "effect hand::Hand.bump expected 0 args, got 1");
}

#[derive(Serialize, Deserialize)]
struct Twice(i32);

#[test]
fn typed_handlers_take_and_return_rust_types() {
    for generation in [Generation::A, Generation::B] {
        let fixture = Fixture::virtual_time();
        let instance = fixture.instance(&sum_module(generation, 2), |handlers| {
            let bump = typed_handler_fn(|_, (number,): (i32,)| Ok(Twice(number * 2 + 1)));
            handlers.on(&OpKey::named("case.hand", "bump"), bump).unwrap();
            let tick = typed_async_handler_fn(|call, (number,): (u8,)| async move {
                call.sleep_ms(3).await?;
                Ok(i32::from(number) + 10)
            });
            handlers.on(&OpKey::id("case.hand", 1), tick).unwrap();
        });
        assert_eq!(value(run(&instance)), 12);
        let instance = fixture.instance(&sum_module(generation, 1), |handlers| {
            let bump = typed_handler_fn(|_, (text,): (String,)| Ok::<String, HandlerError>(text));
            handlers.on(&OpKey::named("case.hand", "bump"), bump).unwrap();
        });
        let text = failure(run(&instance));
        assert!(
            text.starts_with("the arguments of hand::Hand.bump are not what its handler takes"),
            "{text}"
        );
    }
}

/// Two instantiations of a generic operation: same effect and operation id, different signatures.
fn generic_table() -> Vec<u8> {
    let mut table = support::doctored::ask_table();
    let second = 8 + 28;
    table[second + 12] = 0;
    table[second + 16] = 0;
    table[second + 20] = 0x12;
    let label = 9_u32.to_le_bytes();
    table[second + 24..second + 28].copy_from_slice(&label);
    table
}

#[test]
fn registration_is_exact() {
    let fixture = Fixture::virtual_time();
    let module = Doctored { table: Some(generic_table()), ..Doctored::new(Generation::A, vec![]) };
    let module = fixture.host.load(module.wat().as_bytes()).unwrap();
    let mut handlers = module.handlers();
    let register = |handlers: &mut millrace_wasm::Handlers, key: &OpKey| {
        handlers
            .on(key, millrace_wasm::handler_fn(|_| resume(1)))
            .map_err(|error: RegisterError| error.to_string())
    };
    let number = || OpKey::named("case.ask", "number");
    let expected = "Ambiguous handler key case.ask::number: it fits the signatures 0x11111111, 0x11111112; add one of them";
    assert_eq!(register(&mut handlers, &number()), Err(expected.to_owned()));
    assert_eq!(register(&mut handlers, &number().signature(0x1111_1112)), Ok(()));
    let unknown = register(&mut handlers, &OpKey::id("case.ask", 7).signature(5)).unwrap_err();
    assert!(
        unknown.starts_with("Unknown effect op for case.ask::7::0x00000005; the module has case.ask::number"),
        "{unknown}"
    );
    assert!(register(&mut handlers, &OpKey::named("case.tell", "number")).is_err());
    let answer: std::sync::Arc<dyn millrace_wasm::EffectHandler> =
        std::sync::Arc::new(millrace_wasm::handler_fn(|_| resume(1)));
    let inside_a_name = handlers.on_suffix("sk::number", &answer).unwrap_err().to_string();
    assert!(inside_a_name.starts_with("no operation's label ends with sk::number"), "{inside_a_name}");
    assert_eq!(handlers.on_suffix("Ask::number", &answer), Ok(()));
}

#[test]
fn many_instances_share_a_host_and_nothing_else() {
    let fixture = Fixture::virtual_time();
    let one = fixture.instance(&sum_module(Generation::A, 3), doubling);
    let two = fixture.instance(&sum_module(Generation::B, 3), |handlers| {
        on(handlers, "bump", |call| resume(arg(&call) * 100));
        on(handlers, "tick", |call| tail(arg(&call) * 100));
    });
    let runs = [one.start("main", vec![]).unwrap(), two.start("main", vec![]).unwrap()];
    assert_eq!(runs.map(|run| value(run.wait())), [6, 300]);
    drop(one);
    assert_eq!(value(run(&two)), 300);
}

#[test]
fn a_host_full_of_runs_refuses_the_next() {
    let limits = RunsLimits { runs_max: 2, ..RunsLimits::default() };
    let fixture = Fixture::with_limits(Clock::Real, limits, None);
    let instance = fixture.instance(&sum_module(Generation::A, 1), |handlers| {
        on_async(handlers, "bump", |_| std::future::pending());
    });
    let runs = instance.start_all(mains(2)).unwrap();
    assert_eq!(instance.start("main", vec![]).unwrap_err(), RunStartError::TooManyRuns { max: 2 });
    assert!(runs[0].cancel(None));
    assert_eq!(runs[0].id().to_string(), "run_1");
}

#[test]
fn runs_of_a_host_that_is_dropped_go_on_while_somebody_holds_a_handle() {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(Generation::A, 3), doubling);
    let run = instance.start("main", vec![]).unwrap();
    drop((instance, fixture));
    assert_eq!(value(run.wait()), 6);
}

#[test]
fn a_virtual_clock_waits_for_whoever_holds_it() {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(Generation::A, 2), |handlers| {
        on_async(handlers, "bump", |call| async move {
            let hold = call.hold_clock();
            // Real work on another thread, while the other run has a timer.
            tokio::task::spawn_blocking(std::thread::yield_now).await.unwrap();
            drop(hold);
            resume(i64::try_from(call.monotonic_ms()).unwrap())
        });
        on_async(handlers, "tick", |call| async move {
            call.sleep_ms(1_000).await?;
            tail(0)
        });
    });
    let values: Vec<i64> =
        instance.start_all(mains(5)).unwrap().iter().map(|run| value(run.wait())).collect();
    assert_eq!(values, [0; 5]);
}

#[tokio::test]
async fn outcomes_can_be_awaited() {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(Generation::A, 3), doubling);
    let run = instance.start("main", vec![]).unwrap();
    assert_eq!(run.outcome().await.into_result(), Ok(Value::Int(6)));
    let failing = fixture.instance(&sum_module(Generation::A, 3), |_| {}).start("main", vec![]).unwrap();
    let error = failing.outcome().await.into_result().unwrap_err();
    assert_eq!(error.to_string(), "Unhandled effect hand::Hand.bump (resume)");
}

/// A module with exports besides those of the protocol.
fn with_fields(fields: &str) -> String {
    Doctored { fields: fields.to_owned(), ..Doctored::body("") }.wat()
}

#[test]
fn exports_that_ask_for_no_effects_are_called_with_plain_numbers() {
    let fixture = Fixture::virtual_time();
    let add = "(func (export \"add\") (param i32 f64) (result f64) \
               (f64.add (f64.convert_i32_s (local.get 0)) (local.get 1))) \
               (func (export \"none\")) (func (export \"trap\") (unreachable)) \
               (func (export \"list\") (result anyref) (ref.null any))";
    let instance = fixture.instance(&with_fields(add), |_| {});
    let add = |args: Vec<Value>| instance.start("add", args).map(|run| run.wait());
    assert_eq!(add(vec![Value::Int(2), Value::F64(0.5)]), Ok(EffectOutcome::Value(Value::F64(2.5))));
    assert_eq!(add(vec![Value::Int(2), Value::Int(1)]), Ok(EffectOutcome::Value(Value::F64(3.0))));
    assert_eq!(add(vec![]).unwrap_err().to_string(), "export add expected 2 args, got 0");
    let wrong = add(vec![Value::from("x"), Value::Int(1)]).unwrap_err().to_string();
    assert_eq!(wrong, "export add arg0 expected i32, got string");
    assert_eq!(instance.start("none", vec![]).unwrap().wait(), EffectOutcome::Value(Value::Nil));
    let trap = instance.start("trap", vec![]).unwrap().wait();
    assert_eq!(failure(trap), "wasm trap: wasm `unreachable` instruction executed");
    assert!(instance.start("list", vec![]).unwrap_err().to_string().contains("more than plain numbers"));
    assert!(
        instance.start("init_effects", vec![Value::Int(0)]).is_err(),
        "the protocol's own exports are no programs"
    );
}

#[test]
fn the_math_of_generation_a_is_provided() {
    let fixture = Fixture::virtual_time();
    let fields = "(import \"voyd_math\" \"pow\" (func $pow (param f64 f64) (result f64))) \
                  (func (export \"cube\") (param f64) (result f64) (call $pow (local.get 0) (f64.const 3)))";
    let instance = fixture.instance(&with_fields(fields), |_| {});
    let outcome = instance.start("cube", vec![Value::F64(2.0)]).unwrap().wait();
    assert_eq!(outcome, EffectOutcome::Value(Value::F64(8.0)));
}
