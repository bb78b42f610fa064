//! Wrong types, which the compiler itself refuses.

use millrace::{Entity, Event, HandlerContext, State, StateError, Stateful, handlers, on_event};
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
    tags: Vec<String>,
}

#[derive(Entity, Serialize, Deserialize)]
struct Other {
    #[key]
    id: String,
}

// The context must be of the event type that the attribute names.
#[on_event(OrderPlaced)]
fn takes_another_event(ctx: &mut HandlerContext<PaymentDone>) { //~ E0308
    let _ = &ctx.event.order_id;
}

#[on_event(OrderPlaced)]
async fn takes_another_event_later(ctx: &mut HandlerContext<PaymentDone>) { //~ E0308
    let _ = &ctx.event.order_id;
}

#[on_event(OrderPlaced)]
fn returns_a_number(_ctx: &mut HandlerContext<OrderPlaced>) -> u32 { //~ E0277
    7
}

#[on_event(Payment)] //~ E0277
fn takes_no_event(ctx: &mut HandlerContext<OrderPlaced>) { //~ E0308
    let _ = &ctx.event.order_id;
}

#[on_event(OrderPlaced)]
fn works_with_it(ctx: &mut HandlerContext<OrderPlaced>) -> millrace::Result<()> {
    let _ = ctx.event.user_id; //~ E0609
    let _: u64 = ctx.event.order_id; //~ E0308
    ctx.emit(Payment { order_id: "a".into(), cents: 1, note: None, tags: vec![] })?; //~ E0277
    ctx.emit("payment.done")?; //~ E0277
    ctx.emit(PaymentDone { order_id: 7 })?; //~ E0308
    ctx.emit(PaymentDone { order_id: "a".into(), cents: 1 })?; //~ E0560
    ctx.ensure(OrderPlaced { order_id: "a".into() })?; //~ E0277
    Ok(())
}

fn no_handler(_ctx: &mut HandlerContext<OrderPlaced>) {}

fn lists_it() {
    let _ = handlers![no_handler]; //~ E0573
}

fn queries(state: &State) -> Result<(), StateError> {
    state.query::<OrderPlaced>().count()?; //~ E0277 E0599
    state.get::<Payment>("a")?.unwrap().missing; //~ E0609
    state.query::<Payment>().filter(|f| f.missing.eq(1)).count()?; //~ E0609
    state.query::<Payment>().filter(|f| f.cents.eq("one")).count()?; //~ E0277
    state.query::<Payment>().filter(|f| f.order_id.eq(1)).count()?; //~ E0277
    state.query::<Payment>().filter(|f| f.cents.is_null()).count()?; //~ E0599
    state.query::<Payment>().filter(|f| f.cents.starts_with("1")).count()?; //~ E0599
    state.query::<Payment>().filter(|f| f.tags.lt(vec![])).count()?; //~ E0599
    state.query::<Payment>().order_by(|f| f.tags.asc()).count()?; //~ E0599
    state.query::<Payment>().sum(|f| f.note)?; //~ E0277
    state.query::<Payment>().filter(|_| Other::fields().id.eq("a")).count()?; //~ E0308
    state.query::<Payment>().left("a").count()?; //~ E0599
    Ok(())
}

fn main() {}
