//! Deliberate bugs of the loop, to prove that the checkers find them. The engine itself stays correct: a bug is made by
//! changing its limits, its inputs on their way in, and its effects on their way out. The checkers see the true inputs
//! and the changed effects.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_model::{JsonText, OsId, OsMessage};
use millrace_router::{CapabilityId, ConnId, DeliveryId, Effect, Input, RouterLimits, TIMER_PREFIX};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// A late outcome answers a later request of the same id.
    IgnoreGeneration,
    /// The system lane admits messages without limit.
    StarveUsers,
    /// A timer fires after half its delay.
    FireEarly,
    /// The row of a timer is deleted when it fires, not when its work is done.
    ForgetRow,
    /// Requests of a client that has disconnected stay in the table of pending requests.
    KeepPending,
    /// A full mailbox takes one more.
    OverfillMailbox,
    /// Any cause that an actor names is accepted.
    BelieveCauses,
}

/// Stands between the engine and its world. Without a sabotage nothing is changed.
#[derive(Debug, Default)]
pub(super) struct Saboteur {
    sabotage: Option<Sabotage>,
    /// The newest delivery of each request id to each actor of this process.
    newest: BTreeMap<(CapabilityId, OsId), DeliveryId>,
    /// Connections that the engine believes to be open.
    closed: BTreeSet<ConnId>,
    /// The names of timers, by the requests that set them. The message of a timer names that request.
    timers: BTreeMap<String, String>,
}

impl Saboteur {
    pub(super) fn new(sabotage: Option<Sabotage>) -> Saboteur {
        Saboteur { sabotage, ..Saboteur::default() }
    }

    /// Returns the limits that the engine gets instead of those of the world, which the checkers use.
    pub(super) fn limits(sabotage: Option<Sabotage>, mut limits: RouterLimits) -> RouterLimits {
        match sabotage {
            Some(Sabotage::StarveUsers) => limits.system_lane_max = usize::MAX,
            Some(Sabotage::OverfillMailbox) => limits.mailbox_max += 1,
            _ => {}
        }
        limits
    }

    /// Returns the input that the engine gets instead of this one, if it gets one.
    pub(super) fn input(&mut self, mut input: Input) -> Option<Input> {
        match (self.sabotage, &mut input) {
            (Some(Sabotage::IgnoreGeneration), Input::Emit { from, during, message, .. }) => {
                if let Some(cause) = message.metadata.causation.clone().filter(|_| message.kind.is_outcome())
                    && let Some(newest) = self.newest.get(&(*from, cause))
                {
                    *during = Some(*newest);
                }
            }
            (Some(Sabotage::FireEarly), Input::Client { message, .. }) => halve_delay(message),
            (Some(Sabotage::KeepPending), Input::Close { conn }) => {
                self.closed.insert(*conn);
                return None;
            }
            (Some(Sabotage::BelieveCauses), Input::Emit { trusted, .. }) => *trusted = true,
            _ => {}
        }
        Some(input)
    }

    /// Returns whether the world gets this effect. Deletes from the stored `rows` if the sabotage says so.
    pub(super) fn passes(&mut self, effect: &Effect, rows: &mut BTreeMap<String, Bytes>) -> bool {
        match (self.sabotage, effect) {
            (Some(Sabotage::IgnoreGeneration), Effect::Post { to, delivery, message, .. }) => {
                self.newest.insert((*to, message.metadata.id.clone()), *delivery);
            }
            (Some(Sabotage::ForgetRow), Effect::Answer { message, .. }) => {
                let set = message.metadata.causation.as_ref().map(ToString::to_string);
                let name = data(message)["timerId"].as_str().map(str::to_owned);
                self.timers.extend(set.zip(name));
            }
            (Some(Sabotage::ForgetRow), Effect::Post { message, .. }) => {
                if let Some(name) = data(message)["timer"].as_str().and_then(|set| self.timers.get(set)) {
                    rows.remove(&format!("{TIMER_PREFIX}{name}"));
                }
            }
            (Some(Sabotage::KeepPending), Effect::Answer { conn, .. }) => return !self.closed.contains(conn),
            _ => {}
        }
        true
    }

    /// The process was killed: the next one numbers its actors and deliveries anew.
    pub(super) fn killed(&mut self) {
        self.newest.clear();
    }
}

fn data(message: &OsMessage) -> Value {
    serde_json::from_str(message.data.as_str()).unwrap_or_default()
}

fn halve_delay(message: &mut OsMessage) {
    let mut data = data(message);
    if let Some(delay_ms) = data["delayMs"].as_u64() {
        data["delayMs"] = (delay_ms / 2).into();
        message.data = JsonText::from_stored(data.to_string().into());
    }
}
