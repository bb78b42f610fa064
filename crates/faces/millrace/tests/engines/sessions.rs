//! A session on a shared store: handlers with state, emitted events, and everything again on another machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use millrace::{Entity, Event, HandlerContext, Result, Session, handlers, on_event};
use serde::{Deserialize, Serialize};

use crate::stores::LibraryStore;

#[derive(Event, Serialize, Deserialize)]
pub(crate) struct OrderPlaced {
    pub(crate) order_id: u64,
}

#[derive(Event, Serialize, Deserialize)]
struct OrderPaid {
    order_id: u64,
}

#[derive(Entity, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Payment {
    #[key]
    pub(crate) order_id: u64,
    pub(crate) status: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct Shipment {
    #[key]
    order_id: u64,
}

#[on_event(OrderPlaced)]
fn pay(ctx: &mut HandlerContext<OrderPlaced>) -> Result<()> {
    ctx.data::<Arc<AtomicUsize>>()?.fetch_add(1, SeqCst);
    let order_id = ctx.event.order_id;
    ctx.ensure(Payment { order_id, status: "paid".into() })?;
    ctx.commit()?;
    ctx.emit(OrderPaid { order_id })
}

#[on_event(OrderPaid)]
fn ship(ctx: &mut HandlerContext<OrderPaid>) -> Result<()> {
    ctx.ensure(Shipment { order_id: ctx.event.order_id })?;
    ctx.commit()?;
    Ok(())
}

fn run(session: &Session) {
    session.run_until_idle(handlers![pay, ship], vec![]).unwrap();
}

pub(crate) fn reopened(store: &LibraryStore) {
    let calls = Arc::new(AtomicUsize::new(0));
    let open = |machine: &str| store.session_at(machine).with(calls.clone()).open().unwrap();
    let calls = || calls.load(SeqCst);

    let session = open("one");
    session.publish_all((0..5).map(|order_id| OrderPlaced { order_id })).unwrap();
    run(&session);
    assert_eq!(calls(), 5);
    session.publish(OrderPlaced { order_id: 5 }).unwrap();
    // The end of the last session of a process gives the lead back, so that the next one need not wait.
    drop(session);

    // Another machine has nothing but the engine.
    let session = open("two");
    assert_eq!(session.query::<Payment>().count().unwrap(), 5);
    run(&session);
    assert_eq!(calls(), 6, "five events were acknowledged before, one was not");
    assert_eq!(session.query::<Shipment>().count().unwrap(), 6);
    drop(session);

    // The first machine has a copy that lacks what the second one did.
    let session = open("one");
    run(&session);
    assert_eq!(calls(), 6);
    let payment = session.get::<Payment>(5).unwrap().unwrap().value;
    assert_eq!(payment, Payment { order_id: 5, status: "paid".into() });
    assert_eq!(session.query::<Shipment>().count().unwrap(), 6);
    assert_eq!(session.dead_letters().unwrap().len(), 0);
    assert_eq!(session.sessions().unwrap().len(), 3, "each run has left its row");
}
