//! Events and entities that the tests share, and notes (`Seen`) that handlers write.

use std::sync::{Arc, Mutex};

use millrace::{Entity, Event, Handler, HandlerContext, HandlerResult, Session, Simulation};
use serde::{Deserialize, Serialize};

#[derive(Event, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderPlaced {
    pub order: u64,
}

#[derive(Event, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaymentDone {
    pub order: u64,
}

#[derive(Event, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ping {
    pub n: u64,
}

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payment {
    #[key]
    pub order: u64,
    pub status: String,
}

pub fn paid(order: u64) -> Payment {
    Payment { order, status: "completed".to_owned() }
}

/// Notes of what handlers saw, in order.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

pub fn on<E: Event>(
    id: &str,
    function: impl Fn(&mut HandlerContext<E>) -> HandlerResult + Send + Sync + 'static,
) -> Handler {
    Handler::from_fn(id, function)
}

/// Returns a handler that only notes the event it was given.
pub fn noting<E: Event + Serialize>(id: &'static str, seen: &Seen) -> Handler {
    let seen = seen.clone();
    on::<E>(id, move |ctx| {
        seen.add(format!("{id} {}", serde_json::to_string(&ctx.event)?));
        Ok(())
    })
}

pub fn simulation() -> Simulation {
    Session::open_simulated(7)
}
