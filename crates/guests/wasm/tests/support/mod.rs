//! Shared by the tests of the host: modules, hosts with traces, handlers.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod doctored;
pub mod scenarios;

use std::sync::{Arc, Mutex};

use millrace_wasm::{
    Clock, Continuation, EffectHandler, EffectOutcome, Generation, HandlerCall, HandlerResult, Handlers,
    Host, HostOptions, Instance, InstanceLimits, RunEvent, RunStart, RunsLimits, Value, async_handler_fn,
    handler_fn,
};

/// Lines in the order in which things happened.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    pub fn say(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn observer(&self) -> Box<dyn FnMut(RunEvent<'_>) + Send> {
        let trace = self.clone();
        Box::new(move |event| match event {
            RunEvent::Started { .. } => {}
            RunEvent::Call { run, op, args, .. } => trace.say(format!("{run} call {}{args:?}", op.name())),
            RunEvent::Woke { run, op } => trace.say(format!("{run} woke {}", op.name())),
            RunEvent::Reply { run, op, reply: Ok(reply), .. } => {
                trace.say(format!("{run} {} {} {}", op.name(), reply.name(), reply.value()));
            }
            RunEvent::Reply { run, op, reply: Err(error), .. } => {
                trace.say(format!("{run} {} throw {error}", op.name()));
            }
            RunEvent::Cancel { run, accepted } => trace.say(format!("{run} cancel {accepted}")),
            RunEvent::Ended { run, outcome } => trace.say(format!("{run} {}", outcome.kind())),
        })
    }
}

/// The program that asks `bump` and `tick` in turns, `limit` times in all.
pub fn sum_module(generation: Generation, limit: u32) -> String {
    let text = match generation {
        Generation::A => include_str!("../modules/sum_a.wat"),
        Generation::B => include_str!("../modules/sum_b.wat"),
    };
    let (from, to) = (
        "(export \"limit\") (mut i32) (i32.const 3)",
        format!("(export \"limit\") (mut i32) (i32.const {limit})"),
    );
    assert!(text.contains(from));
    text.replace(from, &to)
}

/// A host with a trace of everything and of the error sink.
pub struct Fixture {
    pub host: Host,
    pub trace: Trace,
    pub errors: Trace,
}

impl Fixture {
    pub fn new(clock: Clock) -> Fixture {
        Fixture::with_limits(clock, RunsLimits::default(), None)
    }

    pub fn virtual_time() -> Fixture {
        Fixture::new(Clock::Virtual { system_start_ms: 0 })
    }

    pub fn with_limits(clock: Clock, limits: RunsLimits, seed: Option<u64>) -> Fixture {
        Fixture::with_options(HostOptions { clock, limits, seed, ..HostOptions::default() })
    }

    pub fn with_options(options: HostOptions) -> Fixture {
        let (trace, errors) = (Trace::default(), Trace::default());
        let sink = errors.clone();
        let options = HostOptions {
            observer: Some(trace.observer()),
            error_sink: Some(Box::new(move |run, failure| sink.say(format!("{run} {failure}")))),
            ..options
        };
        Fixture { host: Host::new(options).unwrap(), trace, errors }
    }

    pub fn instance(&self, wat: &str, register: impl FnOnce(&mut Handlers)) -> Instance {
        self.instance_with(wat, &InstanceLimits::default(), register)
    }

    pub fn instance_with(
        &self,
        wat: &str,
        limits: &InstanceLimits,
        register: impl FnOnce(&mut Handlers),
    ) -> Instance {
        let module = self.host.load(wat.as_bytes()).unwrap();
        let mut handlers = module.handlers();
        register(&mut handlers);
        self.host.instantiate(&module, handlers, limits).unwrap()
    }
}

/// Registers a handler that answers at once, for every operation of this name.
pub fn on(
    handlers: &mut Handlers,
    name: &str,
    function: impl Fn(HandlerCall) -> HandlerResult + Send + Sync + 'static,
) {
    let handler: Arc<dyn EffectHandler> = Arc::new(handler_fn(function));
    set(handlers, name, &handler);
}

/// Registers a handler with a future, for every operation of this name.
pub fn on_async<F, R>(handlers: &mut Handlers, name: &str, function: F)
where
    F: Fn(HandlerCall) -> R + Send + Sync + 'static,
    R: Future<Output = HandlerResult> + Send + 'static,
{
    let handler: Arc<dyn EffectHandler> = Arc::new(async_handler_fn(function));
    set(handlers, name, &handler);
}

pub fn set(handlers: &mut Handlers, name: &str, handler: &Arc<dyn EffectHandler>) {
    let indexes: Vec<u32> =
        handlers.operations().iter().filter(|op| op.name() == name).map(|op| op.index).collect();
    assert!(!indexes.is_empty(), "no operation {name}");
    for index in indexes {
        handlers.set(index, handler.clone());
    }
}

/// Doubles the argument of both operations of [`sum_module`].
pub fn doubling(handlers: &mut Handlers) {
    for name in ["bump", "tick"] {
        on(handlers, name, |call| Ok(call.answer(arg(&call) * 2)));
    }
}

pub fn arg(call: &HandlerCall) -> i64 {
    call.args()[0].as_i64().unwrap()
}

pub fn resume(value: impl Into<Value>) -> HandlerResult {
    Ok(Continuation::Resume(value.into()))
}

pub fn tail(value: impl Into<Value>) -> HandlerResult {
    Ok(Continuation::Tail(value.into()))
}

pub fn end(value: impl Into<Value>) -> HandlerResult {
    Ok(Continuation::End(value.into()))
}

pub fn run(instance: &Instance) -> EffectOutcome {
    instance.start("main", vec![]).unwrap().wait()
}

pub fn value(outcome: EffectOutcome) -> i64 {
    match outcome {
        EffectOutcome::Value(Value::Int(number)) => number,
        other => panic!("no number: {other:?}"),
    }
}

pub fn failure(outcome: EffectOutcome) -> String {
    match outcome {
        EffectOutcome::Failed(failure) => failure.to_string(),
        other => panic!("not failed: {other:?}"),
    }
}

pub fn mains(count: usize) -> Vec<RunStart> {
    vec![RunStart::new("main", vec![]); count]
}
