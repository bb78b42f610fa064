//! The cost of a step of a wasm program: decode its request, call its handler, encode the reply, resume the program.

use std::sync::Arc;

use millrace_wasm::{EffectOutcome, Host, HostOptions, InstanceLimits, Value, handler_fn};

use crate::cpu::CpuTime;
use crate::error::BenchError;
use crate::report::Collector;

/// The programs of the wasm host's own tests: they ask for `limit` effects and add up the replies.
const PROGRAMS: [(&str, &str); 2] = [
    ("generation A, effect step", include_str!("../../../../guests/wasm/tests/modules/sum_a.wat")),
    ("generation B, effect step", include_str!("../../../../guests/wasm/tests/modules/sum_b.wat")),
];
const LIMIT: &str = "(global $limit (export \"limit\") (mut i32) (i32.const 3))";
const STEPS: u32 = 100_000;

pub(super) fn measure(out: &mut Collector) -> Result<(), BenchError> {
    let wrong = |what: String| BenchError::Unexpected(what);
    for (figure, program) in PROGRAMS {
        let longer = LIMIT.replace("const 3", &format!("const {STEPS}"));
        let program = program.replace(LIMIT, &longer);
        let host = Host::new(HostOptions::default()).map_err(|error| wrong(error.to_string()))?;
        let module = host.load(program.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        let mut handlers = module.handlers();
        handlers.offer(|_| Some(Arc::new(handler_fn(|call| Ok(call.answer(1))))));
        let instance = host.instantiate(&module, handlers, &InstanceLimits::default());
        let instance = instance.map_err(|error| wrong(error.to_string()))?;
        let begun = CpuTime::start();
        let run = instance.start("main", Vec::new()).map_err(|error| wrong(error.to_string()))?;
        let outcome = run.wait();
        let took = begun.elapsed();
        match outcome {
            EffectOutcome::Value(sum) if sum == Value::from(STEPS) => {}
            other => return Err(wrong(format!("a wasm program ended with {other:?}"))),
        }
        out.add("wasm", figure, "us", took.as_secs_f64() * 1e6 / f64::from(STEPS));
    }
    Ok(())
}
