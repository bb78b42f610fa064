//! The code that the derives and `#[on_event]` generate.

use millrace::{
    Entity, Event, HandlerContext, Identity, IntoOutgoing, Relation, Start, Stateful, handlers, on_event,
};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(priority = 10)]
struct OrderPlaced {
    order_id: String,
    total: f64,
}

#[derive(Event, Serialize, Deserialize)]
#[event(name = "event.dead_letter")]
struct Renamed {
    note: Option<String>,
}

#[derive(Entity, Serialize, Deserialize)]
struct Payment {
    #[key]
    order_id: u64,
    status: String,
}

#[derive(Entity, Serialize, Deserialize)]
#[entity(name = "organisation")]
#[serde(rename_all = "camelCase")]
struct Org {
    #[key]
    org_id: String,
}

#[derive(Relation, Serialize, Deserialize)]
#[relation(left = Payment, right = Org)]
struct PaidBy {
    #[left_key]
    payment: u64,
    #[right_key]
    org: String,
    #[instance_key]
    part: String,
}

mod far {
    use super::*;

    #[on_event(OrderPlaced, priority = 7, from = "now")]
    pub(super) fn pay(ctx: &mut HandlerContext<OrderPlaced>) -> millrace::Result<()> {
        let order_id = ctx.event.order_id.parse().unwrap_or(0);
        ctx.ensure(Payment { order_id, status: "done".into() })?;
        ctx.ensure([Org { org_id: "a".into() }, Org { org_id: "b".into() }])?;
        ctx.emit(Renamed { note: None }.with_priority(50))
    }
}

#[on_event(OrderPlaced, id = "notify")]
async fn notify(ctx: &mut HandlerContext<OrderPlaced>) -> Result<(), String> {
    if ctx.event.total > 0.0 { Ok(()) } else { Err("nothing to pay".to_owned()) }
}

#[on_event(Renamed)]
fn quiet(_: &mut HandlerContext<Renamed>) {}

#[test]
fn events_have_names_priorities_and_payloads() {
    assert_eq!((OrderPlaced::TYPE, OrderPlaced::PRIORITY), ("order.placed", 10));
    assert_eq!((Renamed::TYPE, Renamed::PRIORITY), ("event.dead_letter", 100));
    let placed = OrderPlaced { order_id: "o1".into(), total: 2.5 }.into_outgoing().unwrap();
    assert_eq!(placed.payload.as_str(), r#"{"order_id":"o1","total":2.5}"#);
    assert_eq!((placed.topic.as_str(), placed.priority.0), ("order.placed", 10));
    let urgent = OrderPlaced { order_id: "o1".into(), total: 2.5 }.with_priority(500).with_key("k");
    let urgent = urgent.into_outgoing().unwrap();
    assert_eq!((urgent.priority.0, urgent.key.as_deref()), (500, Some("k")));
}

#[test]
fn an_event_that_no_handler_could_read_is_refused() {
    let error = OrderPlaced { order_id: "o1".into(), total: f64::NAN }.into_outgoing().unwrap_err();
    assert!(error.to_string().contains("cannot be read back"), "{error}");
}

#[test]
fn entities_and_relations_have_identities_and_schemas() {
    let payment = Payment { order_id: 7, status: "done".into() };
    assert_eq!(payment.identity(), Identity::Entity { type_name: "Payment".into(), key: "7".into() });
    assert_eq!(<Org as Stateful>::TYPE, "organisation");
    assert_eq!(Org::fields().org_id.name(), "orgId");
    let edge = PaidBy { payment: 7, org: "a".into(), part: "x".into() };
    assert_eq!(
        edge.identity(),
        Identity::Relation {
            type_name: "PaidBy".into(),
            left_key: "7".into(),
            right_key: "a".into(),
            instance_key: "x".into()
        }
    );
    let schema = PaidBy::schema();
    assert_eq!(schema.fields["payment"], "u64 as left key of Payment");
    assert_eq!(schema.fields["part"], "String as instance key");
    assert_eq!(Payment::schema().fields["status"], "String");
}

#[test]
fn handlers_are_described_and_stay_functions() {
    let found = handlers![far::pay, notify, quiet];
    let ids: Vec<&str> = found.iter().map(|handler| handler.id.as_str()).collect();
    assert_eq!(ids, ["derives::far:pay", "notify", "derives:quiet"]);
    assert_eq!((found[0].priority, found[0].start, found[0].is_async()), (7, Start::Now, false));
    assert_eq!((found[1].priority, found[1].start, found[1].is_async()), (100, Start::Earliest, true));
    assert_eq!(found[2].event_type, "event.dead_letter");
    let _: fn(&mut HandlerContext<OrderPlaced>) -> millrace::Result<()> = far::pay;
}
