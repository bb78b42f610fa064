//! Calls a handler, whether it is plain or async, and catches its panics.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use millrace_claims::{HandlerRun, OutEvent, RunError};

use crate::context::Core;
use crate::typed::{Called, Handler};

/// The async runtime of a handler thread. Made when the first async handler runs there.
#[derive(Debug, Default)]
pub(super) struct Driver(Option<tokio::runtime::Runtime>);

impl Driver {
    fn runtime(&mut self) -> std::io::Result<&tokio::runtime::Runtime> {
        if self.0.is_none() {
            self.0 = Some(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
        }
        self.0.as_ref().ok_or_else(|| std::io::Error::other("no runtime"))
    }
}

/// Returns the events that the handler emitted, or its error. A handler that panics has failed, and its message is the
/// error. An async handler is dropped at the point where it waits when `cut` completes with `Ok`.
pub(super) fn call<T>(
    handler: &Handler,
    core: Core,
    run: &HandlerRun,
    driver: &mut Driver,
    cut: impl Future<Output = Result<(), T>>,
) -> Result<Vec<OutEvent>, RunError> {
    let payload = &run.event.body.payload;
    if !handler.is_async() {
        // The value of a panic is the only thing used after it: the handler's half-done work is dropped.
        return ended(catch_unwind(AssertUnwindSafe(|| {
            handler.run(core, payload, |_| unreachable!("a plain handler is not driven"))
        })));
    }
    let runtime = driver.runtime().map_err(|error| RunError::Failed(format!("no async runtime: {error}")))?;
    ended(catch_unwind(AssertUnwindSafe(|| {
        handler.run(core, payload, |future| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    called = future => Some(called),
                    Ok(()) = cut => None,
                }
            })
        })
    })))
}

fn ended(called: Result<Option<(Core, Called)>, Box<dyn Any + Send>>) -> Result<Vec<OutEvent>, RunError> {
    match called {
        Ok(Some((core, Called::Succeeded))) => core.into_emitted(),
        Ok(Some((_, Called::Failed(error)))) => Err(RunError::Failed(error.to_string())),
        Ok(Some((_, Called::Undecodable(reason)))) => Err(RunError::Hopeless(reason)),
        Ok(Some((_, Called::Ended(outcome)))) => Err(outcome.into_run_error()),
        // The engine has ended the run already.
        Ok(None) => Err(RunError::Failed("cut off".to_owned())),
        Err(panic) => Err(RunError::Failed(format!("panicked: {}", message(&*panic)))),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
