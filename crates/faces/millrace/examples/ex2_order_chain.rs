//! Example 2: events that cause events. Each step commits its state together with the event for the next step.
//!
//! `cargo run -p millrace --example ex2_order_chain [sqlite:///app.db]`; every URL of `docs/engines.md` will do.

use millrace::{Entity, Event, HandlerContext, Result, Session, handlers, on_event};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(priority = 10)]
struct OrderPlaced {
    order_id: String,
    user_id: String,
    total: f64,
}

#[derive(Event, Serialize, Deserialize)]
#[event(priority = 20)]
struct PaymentCompleted {
    order_id: String,
}

#[derive(Event, Serialize, Deserialize)]
struct OrderFulfilled {
    order_id: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct Payment {
    #[key]
    order_id: String,
    status: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct Shipment {
    #[key]
    order_id: String,
    /// How many handlers ran between the order and the shipment.
    hops: u32,
}

#[on_event(OrderPlaced, priority = 10)]
fn process_payment(ctx: &mut HandlerContext<OrderPlaced>) -> Result<()> {
    let order_id = ctx.event.order_id.clone();
    println!("{} pays {:.2} for {order_id}", ctx.event.user_id, ctx.event.total);
    ctx.ensure(Payment { order_id: order_id.clone(), status: "completed".into() })?;
    // The payment and its event are stored together, or not at all.
    ctx.commit_with(PaymentCompleted { order_id })?;
    Ok(())
}

#[on_event(PaymentCompleted, priority = 20)]
fn fulfill_order(ctx: &mut HandlerContext<PaymentCompleted>) -> Result<()> {
    // Alternative to `commit_with`: emitted events are stored when the handler has succeeded, together with its
    // acknowledgement.
    ctx.emit(OrderFulfilled { order_id: ctx.event.order_id.clone() })
}

#[on_event(OrderFulfilled)]
fn ship(ctx: &mut HandlerContext<OrderFulfilled>) -> Result<()> {
    let (order_id, hops) = (ctx.event.order_id.clone(), ctx.meta().depth);
    println!("{order_id} is on its way");
    ctx.ensure(Shipment { order_id, hops })?;
    ctx.commit()?;
    Ok(())
}

/// Returns the status of the payment and the hops of the shipment.
pub(crate) fn run(store: &str) -> Result<(Option<String>, Option<u32>)> {
    let session = Session::builder(store).namespace("orders").open()?;
    session.publish(OrderPlaced { order_id: "o1".into(), user_id: "u1".into(), total: 99.99 })?;
    session.run_until_idle(handlers![process_payment, fulfill_order, ship], vec![])?;
    let payment = session.get::<Payment>("o1")?.map(|payment| payment.value.status);
    let shipment = session.get::<Shipment>("o1")?.map(|shipment| shipment.value.hops);
    Ok((payment, shipment))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    println!("{:?}", run(&store)?);
    Ok(())
}
