//! Example 6: one process, one store, two namespaces, run from async tasks.
//!
//! `cargo run -p millrace --example ex6_two_namespaces [sqlite:///app.db]`; every URL of `docs/engines.md` will do.

use millrace::{Entity, Event, Handler, HandlerContext, HandlerError, Result, Session, handlers, on_event};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order_id: u64,
}

#[derive(Event, Serialize, Deserialize)]
struct PaymentReceived {
    amount: u64,
}

#[derive(Entity, Serialize, Deserialize)]
struct Done {
    #[key]
    id: u64,
    by: String,
}

#[on_event(OrderPlaced)]
fn process_order(ctx: &mut HandlerContext<OrderPlaced>) -> Result<()> {
    ctx.ensure(Done { id: ctx.event.order_id, by: "orders".into() })?;
    ctx.commit()?;
    Ok(())
}

#[on_event(PaymentReceived)]
async fn process_payment(ctx: &mut HandlerContext<PaymentReceived>) -> Result<()> {
    // An async handler may wait for other services here.
    tokio::task::yield_now().await;
    ctx.ensure(Done { id: ctx.event.amount, by: "payments".into() })?;
    ctx.commit()?;
    Ok(())
}

/// Runs a session on a blocking thread, because it would block the async runtime. A service calls `session.run` there.
async fn in_background(session: Session, handlers: Vec<Handler>) -> std::result::Result<(), HandlerError> {
    Ok(tokio::task::spawn_blocking(move || session.run_until_idle(handlers, vec![])).await??)
}

/// Returns how many events were handled in each namespace.
pub(crate) async fn run(store: &str) -> std::result::Result<(u64, u64), HandlerError> {
    let orders = Session::builder(store).namespace("orders").open()?;
    // A second session on the open store, which shares its commits. A file may also be opened twice; a shared store has
    // one process that leads it, and is opened once.
    let payments = orders.to_builder().namespace("payments").open()?;
    orders.publish_all((0..20).map(|order_id| OrderPlaced { order_id }))?;
    payments.publish_all((0..30).map(|amount| PaymentReceived { amount }))?;

    let both = tokio::join!(
        in_background(orders.clone(), handlers![process_order]),
        in_background(payments.clone(), handlers![process_payment]),
    );
    both.0?;
    both.1?;
    Ok((orders.query::<Done>().count()?, payments.query::<Done>().count()?))
}

#[allow(dead_code)]
#[tokio::main]
async fn main() -> std::result::Result<(), HandlerError> {
    let folder = tempfile::tempdir()?;
    let temporary = || format!("sqlite:///{}", folder.path().join("app.db").display());
    let store = std::env::args().nth(1).unwrap_or_else(temporary);
    println!("{:?}", run(&store).await?);
    Ok(())
}
