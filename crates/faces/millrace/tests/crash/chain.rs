//! Three handlers in a chain, each with state. Everything they do follows from the order's number and the attempt, so
//! that the checks in `check.rs` can predict the result.

use std::time::Duration;

use millrace::{Config, Entity, Event, Handler};
use serde::{Deserialize, Serialize};

#[derive(Event, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    pub order: u64,
}

#[derive(Event, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paid {
    pub order: u64,
}

#[derive(Event, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shipped {
    pub order: u64,
}

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payment {
    #[key]
    pub order: u64,
    pub cents: u64,
}

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shipment {
    #[key]
    pub order: u64,
    /// The amount of the payment when this row was written. `None` if there was no payment yet, which must never
    /// happen.
    pub cents: Option<u64>,
}

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invoice {
    #[key]
    pub order: u64,
    pub cents: Option<u64>,
}

/// More attempts than kills and failures can use up: only an event that can never succeed becomes a dead letter.
pub const ATTEMPTS_MAX: u32 = 60;

pub fn config() -> Config {
    Config {
        handler_concurrency: 4,
        // A small prefetch: a process that dies holds few claims, and the other processes always have work.
        event_claim_limit: 8,
        event_claim_lease_ms: 1000,
        event_max_attempts: ATTEMPTS_MAX,
        event_backoff_base_ms: 1,
        event_backoff_max_ms: 10,
        ..Config::default()
    }
}

pub fn cents(order: u64) -> u64 {
    100 + order * 7
}

/// Returns whether the invoice of this order can never be written.
pub fn is_hopeless(order: u64) -> bool {
    order % 23 == 5
}

pub fn handlers() -> Vec<Handler> {
    let pay = Handler::from_fn::<Placed>("pay", |ctx| {
        let order = ctx.event.order;
        ctx.ensure(Payment { order, cents: cents(order) })?;
        ctx.commit_with(Paid { order })?;
        // The state is committed but the event is not acknowledged yet. The pause makes many kills hit this moment.
        std::thread::sleep(Duration::from_millis(order % 4));
        Ok(())
    });
    let ship = Handler::from_fn::<Paid>("ship", |ctx| {
        let order = ctx.event.order;
        let payment = ctx.get::<Payment>(order)?;
        ctx.ensure(Shipment { order, cents: payment.map(|payment| payment.cents) })?;
        ctx.emit(Shipped { order })?;
        ctx.commit()?;
        std::thread::sleep(Duration::from_millis(order % 3));
        Ok(())
    });
    let bill = Handler::from_fn::<Shipped>("bill", |ctx| {
        let (order, attempt) = (ctx.event.order, u64::from(ctx.meta().attempt));
        if is_hopeless(order) {
            return Err("nobody can bill this".into());
        }
        if (order + attempt * 3) % 7 == 0 {
            return Err("not now".into());
        }
        let shipment = ctx.get::<Shipment>(order)?;
        ctx.ensure(Invoice { order, cents: shipment.and_then(|shipment| shipment.cents) })?;
        ctx.commit()?;
        if (order + attempt * 5) % 11 == 0 {
            return Err("billed, but could not say so".into());
        }
        Ok(())
    });
    vec![pay, ship, bill]
}
