//! Embeds the host: a program that asks for a price, a tax and a pause, answered by three handlers of ours.
//!
//! `cargo run -p millrace-wasm --example embed`

use std::error::Error;

use millrace_wasm::{
    HandlerError, Host, HostOptions, InstanceLimits, OpKey, async_handler_fn, handler_fn, typed_handler_fn,
};

/// Written by hand; docs/effects.md walks through its bytes.
const ORDER: &[u8] = include_bytes!("order.wat");

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::new(HostOptions::default())?;
    let module = host.load(ORDER)?;
    let mut handlers = module.handlers();

    // Rust types: the arguments are a tuple, the result is any serializable value. An error fails the run.
    let price = typed_handler_fn(|_, (article,): (i32,)| match article {
        7 => Ok(1_250),
        other => Err(HandlerError::new(format!("there is no article {other}"))),
    });
    handlers.on(&OpKey::named("shop.order", "price"), price)?;

    // Values as they are, without Rust types. `answer` continues by `resume` or `tail`, as the operation's kind
    // demands.
    let tax = handler_fn(|call| {
        let cents = call.args().first().and_then(|cents| cents.as_i64()).unwrap_or(0);
        Ok(call.answer(cents * 19 / 100))
    });
    handlers.on(&OpKey::named("shop.order", "tax"), tax)?;

    // A handler that waits. Other runs go on meanwhile; under a virtual clock the wait takes no time.
    let pause = async_handler_fn(|call| {
        let ms = call.args().first().and_then(|ms| ms.as_i64()).unwrap_or(0);
        let sleep = call.sleep_ms(ms.unsigned_abs());
        async move {
            sleep.await?;
            Ok(call.answer(()))
        }
    });
    handlers.on(&OpKey::named("shop.order", "pause"), pause)?;

    let instance = host.instantiate(&module, handlers, &InstanceLimits::default())?;
    let run = instance.start("main", vec![])?;
    let cents = run.wait().into_result()?;
    println!("{}: {cents} cents", run.id());
    Ok(())
}
