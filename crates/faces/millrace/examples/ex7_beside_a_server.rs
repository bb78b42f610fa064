//! Example 7: a session beside `millrace serve`, on the same file. The handler claims the events that clients publish;
//! subscribers receive the events that the handler commits and emits. No bridge is needed: both use the same table of
//! events.
//!
//! A shared store (`docs/engines.md`) has one process that leads it, so that there the session runs without a server.
//!
//! ```sh
//! millrace serve --store sqlite:///shop.db &
//! cargo run -p millrace --example ex7_beside_a_server sqlite:///shop.db &
//! millrace sub order.shipped --group mail &
//! millrace pub order.placed '{"order_id":"o1","total":9.5}'
//! ```

use millrace::{Entity, Event, HandlerContext, Result, Running, Session, handlers, on_event};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order_id: String,
    total: f64,
}

#[derive(Event, Serialize, Deserialize)]
struct OrderShipped {
    order_id: String,
}

#[derive(Entity, Serialize, Deserialize)]
pub(crate) struct Order {
    #[key]
    pub(crate) order_id: String,
    pub(crate) total: f64,
    pub(crate) shipped: bool,
}

#[on_event(OrderPlaced)]
fn ship(ctx: &mut HandlerContext<OrderPlaced>) -> Result<()> {
    let order_id = ctx.event.order_id.clone();
    ctx.ensure(Order { order_id: order_id.clone(), total: ctx.event.total, shipped: true })?;
    // The state and the event that announces it are one commit.
    ctx.commit_with(OrderShipped { order_id })?;
    Ok(())
}

/// Returns an order as a client would place it.
#[allow(dead_code)]
pub(crate) fn placed(order_id: &str) -> impl millrace::IntoOutgoing + use<> {
    OrderPlaced { order_id: order_id.to_owned(), total: 1.0 }
}

/// Runs the handler in the background until the returned `Running` is stopped.
#[allow(dead_code)]
pub(crate) fn start(store: &str) -> Result<(Session, Running)> {
    let session = Session::open(store)?;
    let running = session.spawn(handlers![ship], vec![])?;
    Ok((session, running))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "sqlite:///millrace.db".to_owned());
    Session::open(&store)?.run(handlers![ship], vec![])
}
