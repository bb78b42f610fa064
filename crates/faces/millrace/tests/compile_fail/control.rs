//! A file that compiles: it does right what the other files do wrong. So the others fail for the reason they name and
//! for no other.

use millrace::{
    Entity, Event, HandlerContext, HandlerOutcome, Relation, State, StateError, handlers, on_event,
};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order_id: String,
}

#[derive(Event, Serialize, Deserialize)]
struct PaymentDone {
    order_id: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct Payment {
    #[key]
    order_id: String,
    cents: u64,
    note: Option<String>,
}

#[derive(Relation, Serialize, Deserialize)]
#[relation(left = Payment, right = Payment)]
struct Refund {
    #[left_key]
    of: String,
    #[right_key]
    by: String,
}

#[on_event(OrderPlaced, priority = 10, id = "pay", from = "now")]
fn pay(ctx: &mut HandlerContext<OrderPlaced>) -> millrace::Result<()> {
    let order_id = ctx.event.order_id.clone();
    ctx.ensure(Payment { order_id: order_id.clone(), cents: 5, note: None })?;
    ctx.ensure([Refund { of: order_id.clone(), by: "b".into() }])?;
    ctx.emit(PaymentDone { order_id }.with_priority(7))
}

#[on_event(
    PaymentDone,
    timeout_ms = 2_000,
    max_attempts = 3,
    backoff_base_ms = 0,
    backoff_max_ms = 100,
    concurrency = 2,
    rate_per_s = 0.5,
    lease_ms = 4000,
    paused = false,
    order = "key"
)]
async fn ship(_ctx: &mut HandlerContext<PaymentDone>) -> Result<(), String> {
    Ok(())
}

fn queries(state: &State) -> Result<(), StateError> {
    let cheap = state.query::<Payment>().filter(|f| f.cents.lt(5) & f.note.eq("x") & f.note.is_null());
    cheap.order_by(|f| f.cents.desc()).collect()?;
    state.query::<Payment>().sum(|f| f.cents)?;
    state.query::<Refund>().left("a").filter(|f| f.by.starts_with("b")).with_endpoints().collect()?;
    Ok(())
}

#[on_event(PaymentDone, rate_per_s = 5)]
fn tell(_ctx: &mut HandlerContext<PaymentDone>) -> HandlerOutcome {
    HandlerOutcome::discard("nobody listens")
}

fn main() {
    let _ = (handlers![pay, ship, tell], queries as fn(&State) -> _);
}
