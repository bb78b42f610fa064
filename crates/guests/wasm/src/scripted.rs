//! Scripts as handlers of a host.

use std::sync::Arc;

use millrace_runs::HandlerError;
use parking_lot::Mutex;

use crate::call::HandlerCall;
use crate::handler::{Continuation, EffectHandler, Handled, HandlerResult};
use crate::handlers::Handlers;
use crate::script::{Script, ScriptAction, ScriptReply};
use crate::value::Value;

impl Script {
    /// Registers the script's handlers, replacing those that its operations have. Replies are counted over all hosts
    /// and instances that get their handlers from the same call.
    ///
    /// Returns the script's names that no operation of the module ends with.
    pub fn register(self, handlers: &mut Handlers) -> Vec<String> {
        let found: Vec<Option<usize>> = handlers.operations().iter().map(|op| self.find(&op.label)).collect();
        let unused = self.names().enumerate().filter(|(at, _)| !found.contains(&Some(*at)));
        let unused = unused.map(|(_, name)| name.to_owned()).collect();
        let script = Arc::new(Mutex::new(self));
        for (index, found) in (0..).zip(found) {
            if let Some(at) = found {
                handlers.set(index, Arc::new(ScriptedHandler { script: script.clone(), at }));
            }
        }
        unused
    }
}

struct ScriptedHandler {
    script: Arc<Mutex<Script>>,
    at: usize,
}

impl EffectHandler for ScriptedHandler {
    fn call(&self, call: HandlerCall) -> Handled {
        let mut script = self.script.lock();
        let Some(reply) = script.next_reply(self.at).cloned() else {
            return Handled::Now(Err(HandlerError::new("the script has no reply for this operation")));
        };
        drop(script);
        match reply.after_ms {
            None => Handled::Now(answer(&reply, call.args())),
            Some(ms) => {
                let sleep = call.sleep_ms(ms);
                Handled::Later(Box::pin(async move {
                    sleep.await?;
                    answer(&reply, call.args())
                }))
            }
        }
    }
}

fn answer(reply: &ScriptReply, args: &[Value]) -> HandlerResult {
    let value = || reply.value(args).map_err(|error| HandlerError::new(error.to_string()));
    match reply.action {
        ScriptAction::Resume => Ok(Continuation::Resume(value()?)),
        ScriptAction::Tail => Ok(Continuation::Tail(value()?)),
        ScriptAction::End => Ok(Continuation::End(value()?)),
        ScriptAction::Plain => Ok(Continuation::Plain(value()?)),
        ScriptAction::Throw => Err(HandlerError::new(reply.error.clone())),
    }
}
