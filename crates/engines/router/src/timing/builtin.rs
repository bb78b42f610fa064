//! The commands that the loop handles itself: setting and cancelling timers, and timing out a request.

use std::sync::Arc;

use millrace_model::{JsonText, Now, OsFault, OsId, OsKind, OsMessage, OsType, Requester};
use serde_json::{Value, json};

use crate::capabilities::manifest::{Branch, Manifest};
use crate::capabilities::schema::Schema;
use crate::capabilities::table::CapabilityTable;
use crate::interface::input::{CapabilityId, DeliveryId};
use crate::interface::note::Cause;
use crate::reports::messages::{self, RequestRef};
use crate::reports::trace::{Party, TraceStep};
use crate::router::Router;
use crate::routing::pending::OutcomeTo;
use crate::timing::timers::Owner;

/// The number of the engine's own capabilities.
pub(crate) const OWN: usize = 2;

pub(crate) const TIMER_SET: &str = "Timer.Set";
pub(crate) const TIMER_CANCEL: &str = "Timer.Cancel";
pub(crate) const TIMER_FIRED: &str = "Timer.Fired";
pub(crate) const REQUEST_TIMEOUT: &str = "Sys.RequestTimeout";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Builtins {
    timer: CapabilityId,
    sys: CapabilityId,
}

impl Builtins {
    pub(crate) fn is(self, id: CapabilityId) -> bool {
        id == self.timer || id == self.sys
    }
}

/// A command of these that is being carried out: what its outcome needs.
#[derive(Clone, Debug)]
pub(crate) struct BuiltinCall {
    pub(crate) asked: RequestRef,
    pub(crate) delivery: DeliveryId,
}

impl BuiltinCall {
    pub(crate) fn cause(&self) -> Cause {
        Cause { id: self.asked.id.clone(), correlation: self.asked.correlation.clone() }
    }
}

pub(crate) fn install(table: &mut CapabilityTable) -> Builtins {
    Builtins { timer: table.add_builtin(timer_manifest()), sys: table.add_builtin(sys_manifest()) }
}

impl Router {
    pub(crate) fn builtin_request(
        &mut self,
        now: Now,
        requester: OutcomeTo,
        by: &Requester,
        delivery: DeliveryId,
        message: &OsMessage,
    ) {
        let ask = BuiltinCall { asked: RequestRef::of(message), delivery };
        match message.ty.as_str() {
            TIMER_SET => self.set_timer(now, requester, by, ask, message),
            TIMER_CANCEL => self.cancel_timer(now, requester, by, ask, message),
            _ => self.request_timeout(now, requester, &ask, message),
        }
    }

    /// Answers one of these commands.
    pub(crate) fn finish_builtin(&mut self, now: Now, ask: &BuiltinCall, result: Result<&Value, OsFault>) {
        let Some(pending) = self.forget(&ask.asked.id, ask.delivery) else { return };
        let message = match result {
            Ok(data) => {
                self.counters.replies += 1;
                messages::outcome(&mut self.ids, now, &ask.asked, OsKind::Reply, messages::json(data))
            }
            Err(fault) => {
                self.counters.refusals += 1;
                messages::error(&mut self.ids, now, &ask.asked, &fault)
            }
        };
        let from = Party::Capability(self.table.name_of(pending.to));
        let step = TraceStep::Answered { to: self.party(pending.requester) };
        self.traced(now, from, step, pending.realm, &message);
        self.give(pending.requester, message);
    }

    /// A client, or a timer it set, may time out that client's requests only; an actor may time out any request.
    fn request_timeout(&mut self, now: Now, requester: OutcomeTo, ask: &BuiltinCall, message: &OsMessage) {
        let Some(id) = text_member(&message.data, "requestId").and_then(|id| OsId::new(&id).ok()) else {
            let fault = OsFault::new(422, "Schema validation failed: requestId is no id of a request");
            self.finish_builtin(now, ask, Err(fault));
            return;
        };
        let of_client = |conn| {
            let found = self.pending.get(&id, true).filter(|one| one.requester == OutcomeTo::Client(conn));
            found.map(|one| one.delivery)
        };
        let any =
            || self.pending.get(&id, true).or_else(|| self.pending.get(&id, false)).map(|one| one.delivery);
        let found = match requester {
            OutcomeTo::Client(conn) => of_client(conn),
            OutcomeTo::Gone => None,
            OutcomeTo::Actor { .. } => any(),
            OutcomeTo::Timer(timer) => match self.timers.owner(timer) {
                Owner::Client(conn) => of_client(conn),
                Owner::Actor => any(),
                Owner::Before => None,
            },
        };
        // The command cannot time out itself: it is about to be answered.
        let timed_out = found
            .filter(|delivery| *delivery != ask.delivery)
            .is_some_and(|delivery| self.time_out(now, &id, delivery));
        self.finish_builtin(now, ask, Ok(&json!({ "requestId": id.as_str(), "timedOut": timed_out })));
    }
}

/// Returns the member `name` of an object, if it is a string.
pub(crate) fn text_member(data: &JsonText, name: &str) -> Option<String> {
    let object: std::collections::BTreeMap<String, &serde_json::value::RawValue> =
        serde_json::from_str(data.as_str()).ok()?;
    serde_json::from_str(object.get(name)?.get()).ok()
}

fn timer_manifest() -> Manifest {
    let time = |what: &str| json!({ "type": "number", "minimum": 0, "description": what });
    let template = json!({
        "type": "object",
        "required": ["kind", "type", "data"],
        "description": "The message to send: its id, timestamp and causation are assigned when the timer fires",
        "properties": {
            "kind": { "enum": ["command", "query", "event"] },
            "type": { "type": "string" },
            "data": { "description": "Any JSON value" },
            "metadata": { "type": "object", "description": "May hold correlation and further trace fields" },
        },
    });
    let set = json!({
        "type": "object",
        "required": ["message"],
        "properties": {
            "delayMs": time("Milliseconds from now; or give dueAt"),
            "dueAt": time("Epoch milliseconds; or give delayMs"),
            "message": template,
            "durable": { "type": "boolean", "description": "Outlives the process (default true)" },
        },
    });
    let id = json!({ "type": "string", "description": "The reply of Timer.Set" });
    let cancel = json!({ "type": "object", "required": ["timerId"], "properties": { "timerId": id } });
    let object = |name: &str, kind: &str| json!({ "type": "object", "required": [name], "properties": { name: { "type": kind } } });
    // `template::parse` checks the data of `Timer.Set`, and checks more than a schema can say.
    let mut set = branch(TIMER_SET, "Sends a message later", &set, &object("timerId", "string"));
    set.iter_mut().for_each(|one| one.data.validator = None);
    let cancel =
        branch(TIMER_CANCEL, "Forgets a timer of one's own", &cancel, &object("cancelled", "boolean"));
    manifest("Timer", "setTimeout for messages", set.into_iter().chain(cancel).collect())
}

fn sys_manifest() -> Manifest {
    let id =
        json!({ "type": "string", "description": "metadata.id of a request of your own that still waits" });
    let data = json!({ "type": "object", "required": ["requestId"], "properties": { "requestId": id } });
    let output = json!({
        "type": "object",
        "properties": { "requestId": { "type": "string" }, "timedOut": { "type": "boolean" } },
    });
    let branches = branch(REQUEST_TIMEOUT, "Ends a request that still waits with 504", &data, &output);
    manifest("Sys", "The loop itself", branches.into_iter().collect())
}

fn branch(ty: &str, description: &str, data: &Value, output: &Value) -> Option<Branch> {
    // All arguments are constants: a test checks that no branch is missing.
    Some(Branch {
        kind: OsKind::Command,
        ty: OsType::new(ty).ok()?,
        description: description.to_owned(),
        data: Schema::new(data.clone()).ok()?,
        output: Schema::new(output.clone()).ok()?,
    })
}

fn manifest(name: &str, description: &str, inbound: Vec<Branch>) -> Manifest {
    Manifest {
        name: Arc::from(name),
        description: description.to_owned(),
        inbound,
        outbound: None,
        subscribes: Vec::new(),
        bus: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loops_own_manifests_are_whole() {
        assert_eq!(timer_manifest().inbound.len(), 2);
        assert_eq!(sys_manifest().inbound.len(), 1);
    }
}
