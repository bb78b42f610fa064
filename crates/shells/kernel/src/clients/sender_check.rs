//! A timer sends its message on behalf of the agent that set it. Whether that agent may still send it is checked when
//! the timer is due, not when it was set.

use std::sync::Arc;

use millrace_model::{OsMessage, Principal};
use millrace_router::{Input, NotTrusted};

use crate::clients::audit_hook::{AuditEvent, AuditHook};
use crate::clients::credentials::CheckSender;

/// Without a `check_sender` function every timer may act as the agent that set it.
#[derive(Default)]
pub(crate) struct SenderCheck {
    pub(crate) check_sender: Option<CheckSender>,
    /// Called for every refused timer, for the audit.
    pub(crate) audit_hook: Option<AuditHook>,
}

impl SenderCheck {
    /// Returns the answer to [`millrace_router::Effect::CheckSender`].
    pub(crate) fn answer(&self, timer: u64, by: Principal, message: &OsMessage) -> Input {
        let result = match &self.check_sender {
            Some(check_sender) => check_sender(&by, message),
            None => return Input::SenderChecked { timer, result: Ok(Arc::new(by)) },
        };
        match (&result, &self.audit_hook) {
            (Err(NotTrusted::Refused(why)), Some(hook)) => {
                let (by, what, code) = (Some(&by), message.ty.as_str(), 403);
                hook(&AuditEvent::Refused { by, code, what, why: &format!("a timer was not sent: {why}") });
            }
            (Err(NotTrusted::InDoubt(why)), _) => {
                tracing::warn!(timer, why, "a timer waits: the wall clock is in doubt, and so is the expiry");
            }
            _ => {}
        }
        Input::SenderChecked { timer, result }
    }
}
