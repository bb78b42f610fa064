//! Capabilities as handlers of a host.

use std::sync::Arc;

use millrace_runs::HandlerError;
use tokio::sync::Semaphore;

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError};
use super::grant::Grant;
use super::grants::Grants;
use crate::call::HandlerCall;
use crate::handler::{EffectHandler, Handled};
use crate::handlers::Handlers;
use crate::host::blocking::on_a_thread;
use crate::value::Value;

impl Grants {
    /// Registers a handler for every operation of a default capability that has none yet: the capability if it is
    /// granted, else an error that names the grant. Handlers that are registered before or after this take precedence.
    pub fn offer_to(&self, handlers: &mut Handlers) {
        handlers.offer(|op| {
            let grant = Grant::of_effect(&op.effect_id)?;
            let handler: Arc<dyn EffectHandler> = Arc::new(CapabilityHandler { grants: self.clone(), grant });
            Some(handler)
        });
    }
}

struct CapabilityHandler {
    grants: Grants,
    grant: Grant,
}

impl EffectHandler for CapabilityHandler {
    fn call(&self, call: HandlerCall) -> Handled {
        let asked = CapabilityCall {
            generation: call.generation(),
            op: call.op().name(),
            label: &call.op().label,
            args: call.args(),
            buffer_bytes: call.buffer_bytes() as usize,
            monotonic_ms: call.monotonic_ms(),
            system_ms: call.system_ms(),
        };
        match self.grants.call(self.grant, call.run().into(), &asked) {
            Err(error) => Handled::Now(Err(failed(&error))),
            Ok(CapabilityAnswer::Now(value)) => Handled::Now(Ok(call.answer(value))),
            Ok(CapabilityAnswer::AfterMs(ms, value)) => {
                let sleep = call.sleep_ms(ms);
                Handled::Later(Box::pin(async move {
                    sleep.await?;
                    Ok(call.answer(value))
                }))
            }
            Ok(CapabilityAnswer::Later(answer)) => {
                // The answer depends on something real, so even a virtual clock has to wait for it.
                let hold = call.hold_clock();
                Handled::Later(Box::pin(async move {
                    let value = answer.await.map_err(|error| failed(&error))?;
                    drop(hold);
                    Ok(call.answer(value))
                }))
            }
            Ok(CapabilityAnswer::Brief(work) | CapabilityAnswer::Stream(work))
                if call.tools.clock.is_virtual() =>
            {
                Handled::Now(Ok(call.answer(work())))
            }
            Ok(CapabilityAnswer::Brief(work)) => {
                let places = call.tools.blocking.brief.clone();
                blocking(call, places, work)
            }
            Ok(CapabilityAnswer::Stream(work)) => {
                let places = call.tools.blocking.stream.clone();
                blocking(call, places, work)
            }
            Ok(CapabilityAnswer::Blocking(work)) => {
                let places = call.tools.blocking.waiting.clone();
                blocking(call, places, work)
            }
        }
    }
}

fn blocking(call: HandlerCall, places: Arc<Semaphore>, work: Box<dyn FnOnce() -> Value + Send>) -> Handled {
    let hold = call.hold_clock();
    Handled::Later(Box::pin(async move {
        let value = on_a_thread(places, work).await?;
        drop(hold);
        Ok(call.answer(value))
    }))
}

fn failed(error: &CapabilityError) -> HandlerError {
    HandlerError::new(error.to_string())
}
