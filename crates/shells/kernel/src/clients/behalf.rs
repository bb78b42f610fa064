//! A timer sends its message on behalf of the agent that set it. Whether that agent may still send it is checked when
//! the timer is due, not when it was set.

use std::sync::Arc;

use millrace_model::{OsMessage, Principal};
use millrace_router::{Input, NotVouched};

use crate::clients::audit_hook::{AuditEvent, AuditHook};
use crate::clients::credentials::Vouch;

/// Without a `vouch` function every timer may act as the agent that set it.
#[derive(Default)]
pub(crate) struct Behalf {
    pub(crate) vouch: Option<Vouch>,
    /// Called for every refused timer, for the audit.
    pub(crate) watch: Option<AuditHook>,
}

impl Behalf {
    /// Returns the answer to [`millrace_router::Effect::Vouch`].
    pub(crate) fn answer(&self, timer: u64, by: Principal, message: &OsMessage) -> Input {
        let result = match &self.vouch {
            Some(vouch) => vouch(&by, message),
            None => return Input::Vouched { timer, result: Ok(Arc::new(by)) },
        };
        match (&result, &self.watch) {
            (Err(NotVouched::Refused(why)), Some(watch)) => {
                let (by, what, code) = (Some(Arc::new(by)), message.ty.as_str(), 403);
                watch(&AuditEvent::Refused {
                    by: &by,
                    code,
                    what,
                    why: &format!("a timer was not sent: {why}"),
                });
            }
            (Err(NotVouched::InDoubt(why)), _) => {
                tracing::warn!(timer, why, "a timer waits: the wall clock is in doubt, and so is the expiry");
            }
            _ => {}
        }
        Input::Vouched { timer, result }
    }
}
