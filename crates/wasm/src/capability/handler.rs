//! Capabilities as handlers of a host.

use std::sync::Arc;

use millrace_runs::HandlerError;

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError};
use super::grant::Grant;
use super::grants::Grants;
use crate::call::Call;
use crate::handler::{Handled, Handler};
use crate::handlers::Handlers;

impl Grants {
    /// Answers the operations of default capabilities that have no handler yet: with the capability if it is granted, else
    /// with an error that names the grant. Handlers that are registered before or after this win.
    pub fn offer_to(&self, handlers: &mut Handlers) {
        handlers.offer(|op| {
            let grant = Grant::of_effect(&op.effect_id)?;
            let handler: Arc<dyn Handler> = Arc::new(CapabilityHandler { grants: self.clone(), grant });
            Some(handler)
        });
    }
}

struct CapabilityHandler {
    grants: Grants,
    grant: Grant,
}

impl Handler for CapabilityHandler {
    fn call(&self, call: Call) -> Handled {
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
                // What is waited for is real, whatever the clock.
                let hold = call.hold_clock();
                Handled::Later(Box::pin(async move {
                    let value = answer.await.map_err(|error| failed(&error))?;
                    drop(hold);
                    Ok(call.answer(value))
                }))
            }
            Ok(CapabilityAnswer::Blocking(work)) => {
                let hold = call.hold_clock();
                Handled::Later(Box::pin(async move {
                    let value = tokio::task::spawn_blocking(work).await;
                    drop(hold);
                    let value = value.map_err(|error| HandlerError::new(error.to_string()))?;
                    Ok(call.answer(value))
                }))
            }
        }
    }
}

fn failed(error: &CapabilityError) -> HandlerError {
    HandlerError::new(error.to_string())
}
