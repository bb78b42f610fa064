//! Programs inside durable handlers: their state and events become part of the handler's one commit. Also programs that
//! use a session's store outside of handlers.

use std::sync::Arc;

use millrace::sandbox::{
    ContextPort, Grants, GuestValue, Host, HostOptions, Instance, InstanceLimits, SessionPort,
};
use millrace::{Event, HandlerContext, HandlerResult, Session, handlers, on_event};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::program::{Ask, ask, program};

const BUS: &str = "millrace.bus";
const STORE: &str = "millrace.store";

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    /// Whether the handler fails after the program has run.
    fail: bool,
}

#[derive(Event, Serialize, Deserialize)]
#[event(name = "order.priced")]
struct OrderPriced {
    cents: u32,
}

struct Pricing {
    port: ContextPort,
    instance: Instance,
}

fn instance(asks: &[Ask], grants: &Grants) -> Instance {
    let host = Host::new(HostOptions::default()).unwrap();
    let module = host.load(program(asks).as_bytes()).unwrap();
    let mut handlers = module.handlers();
    grants.offer_to(&mut handlers);
    host.instantiate(&module, handlers, &InstanceLimits::default()).unwrap()
}

fn pricing(asks: &[Ask]) -> Pricing {
    let port = ContextPort::new();
    let grants = Grants::none().bus(Arc::new(port.clone())).store(Arc::new(port.clone()));
    Pricing { instance: instance(asks, &grants), port }
}

#[on_event(OrderPlaced, max_attempts = 1)]
fn price_order(ctx: &mut HandlerContext<OrderPlaced>) -> HandlerResult {
    let pricing = ctx.data::<Pricing>()?;
    let outcome = pricing.port.run(ctx, || pricing.instance.start("main", vec![]))?;
    outcome.into_result()?;
    if ctx.event.fail {
        return Err("after the program".into());
    }
    ctx.commit_and_ack()?;
    Ok(())
}

#[on_event(OrderPriced)]
fn count_priced(ctx: &mut HandlerContext<OrderPriced>) -> HandlerResult {
    ctx.ensure(GuestValue { key: "priced".into(), value: json!(ctx.event.cents) })?;
    ctx.commit_and_ack()?;
    Ok(())
}

fn stored(session: &Session, key: &str) -> Option<serde_json::Value> {
    session.get::<GuestValue>(key).unwrap().map(|found| found.value.value.clone())
}

fn ensure_and_emit() -> Vec<Ask> {
    vec![
        ask(STORE, "ensure", vec![json!({ "key": "price", "value": "{\"cents\":5}" })]),
        ask(BUS, "emit", vec![json!({ "topic": "order.priced", "payload": "{\"cents\":5}" })]),
    ]
}

#[test]
fn state_and_events_of_a_program_are_part_of_the_handlers_commit() {
    let session = Session::builder("memory:").with(pricing(&ensure_and_emit())).open().unwrap();
    session.publish(OrderPlaced { fail: false }).unwrap();
    session.run_until_idle(handlers![price_order, count_priced], vec![]).unwrap();
    assert_eq!(stored(&session, "price"), Some(json!({ "cents": 5 })));
    assert_eq!(stored(&session, "priced"), Some(json!(5)), "the emitted event was handled");
}

#[test]
fn nothing_of_a_program_is_left_when_its_handler_fails() {
    let session = Session::builder("memory:").with(pricing(&ensure_and_emit())).open().unwrap();
    session.publish(OrderPlaced { fail: true }).unwrap();
    session.run_until_idle(handlers![price_order, count_priced], vec![]).unwrap();
    assert_eq!((stored(&session, "price"), stored(&session, "priced")), (None, None));
    assert_eq!(session.dead_letters().unwrap().len(), 1);
}

#[test]
fn publish_inside_a_handler_and_a_run_without_one_are_refused() {
    let publish =
        || ask(BUS, "publish", vec![json!({ "topic": "order.priced", "payload": "{\"cents\":1}" })]);
    let pricing = pricing(&[publish()]);
    let outside = pricing.instance.start("main", vec![]).unwrap().wait().into_result().unwrap().to_json();
    assert_eq!((&outside["ok"], &outside["code"]), (&json!(false), &json!(5)));
    assert!(outside["message"].as_str().unwrap().contains("ContextPort::run"), "{outside}");
    let session = Session::builder("memory:").with(pricing).open().unwrap();
    session.publish(OrderPlaced { fail: false }).unwrap();
    session.run_until_idle(handlers![price_order, count_priced], vec![]).unwrap();
    assert_eq!(stored(&session, "priced"), None);
}

#[test]
fn a_program_with_a_session_reads_commits_and_publishes() {
    let session = Session::open("memory:").unwrap();
    let port = Arc::new(SessionPort::new(session.clone()).unwrap());
    let asks = [
        ask(STORE, "get", vec![json!("price")]),
        ask(STORE, "ensure", vec![json!({ "key": "price", "value": "7" })]),
        ask(STORE, "commit", vec![]),
        ask(BUS, "publish", vec![json!({ "topic": "order.priced", "payload": "{\"cents\":9}" })]),
    ];
    let grants = Grants::none().bus(port.clone()).store(port);
    let published =
        instance(&asks, &grants).start("main", vec![]).unwrap().wait().into_result().unwrap().to_json();
    assert_eq!((&published["ok"], &published["offset"]), (&json!(true), &json!(1)), "{published}");
    assert_eq!(stored(&session, "price"), Some(json!(7)));
    session.run_until_idle(handlers![count_priced], vec![]).unwrap();
    assert_eq!(stored(&session, "priced"), Some(json!(9)));
}

#[test]
fn a_commit_fails_with_a_conflict_when_what_was_read_has_changed() {
    let session = Session::open("memory:").unwrap();
    let port = Arc::new(SessionPort::new(session.clone()).unwrap());
    let asks = [
        ask(STORE, "get", vec![json!("price")]),
        ask("test.elsewhere", "change", vec![]),
        ask(STORE, "ensure", vec![json!({ "key": "price", "value": "1" })]),
        ask(STORE, "commit", vec![]),
    ];
    let host = Host::new(HostOptions::default()).unwrap();
    let module = host.load(program(&asks).as_bytes()).unwrap();
    let mut handlers = module.handlers();
    Grants::none().store(port).offer_to(&mut handlers);
    let elsewhere = session.clone();
    let change = millrace::sandbox::handler_fn(move |call| {
        elsewhere.ensure(GuestValue { key: "price".into(), value: json!(2) }).unwrap();
        elsewhere.commit().unwrap();
        Ok(call.answer(()))
    });
    handlers.on(&millrace::sandbox::OpKey::named("test.elsewhere", "change"), change).unwrap();
    let instance = host.instantiate(&module, handlers, &InstanceLimits::default()).unwrap();
    let committed = instance.start("main", vec![]).unwrap().wait().into_result().unwrap().to_json();
    assert_eq!((&committed["ok"], &committed["code"]), (&json!(false), &json!(4)), "{committed}");
    assert_eq!(stored(&session, "price"), Some(json!(2)));
}
