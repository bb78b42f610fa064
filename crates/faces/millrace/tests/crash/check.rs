//! Checks of what must hold when every event has ended.

use std::collections::{BTreeMap, BTreeSet};

use millrace::{DeadLettered, Event, Session, StateCommit};
use millrace_admin::{Admin, EventView, Status};
use millrace_stores::open_doctor;

use crate::chain::{ATTEMPTS_MAX, Invoice, Paid, Payment, Placed, Shipment, Shipped, cents, is_hopeless};

/// Returns how many events some handler still has to finish. No handler takes dead letters, so those do not count.
pub fn unfinished(admin: &Admin, session: &Session) -> u64 {
    let views = admin.namespaces(session.now(), session.settings().session_ttl_ms).unwrap();
    views.iter().map(|view| view.pending_events - view.without_handler).sum()
}

/// Checks the whole store and returns a summary of one line.
pub fn all(admin: &Admin, session: &Session, orders: u64) -> String {
    assert_eq!(unfinished(admin, session), 0);
    let events = admin.events(session.namespace_name(), usize::MAX, session.now()).unwrap();
    let ids: BTreeSet<_> = events.iter().map(|view| &view.event.id).collect();
    assert_eq!(ids.len(), events.len(), "two events have the same id");

    let everyone: BTreeSet<u64> = (0..orders).collect();
    let placed = ended(&events, Placed::TYPE, "pay", orders);
    let paid = ended(&events, Paid::TYPE, "ship", orders);
    let shipped = ended(&events, Shipped::TYPE, "bill", orders);
    let billable: BTreeSet<u64> = everyone.iter().copied().filter(|order| !is_hopeless(*order)).collect();
    assert_eq!((&placed.acked, &paid.acked, &shipped.acked), (&everyone, &everyone, &billable));
    lineage(&events);

    // The state must equal the fold of the acknowledged events.
    let payments: Vec<_> = placed.acked.iter().map(|order| (*order, Some(cents(*order)))).collect();
    let stored = session.query::<Payment>().collect().unwrap().into_iter();
    assert_eq!(sorted(stored.map(|found| (found.order, Some(found.cents)))), payments);
    let shipments: Vec<_> = paid.acked.iter().map(|order| (*order, Some(cents(*order)))).collect();
    let stored = session.query::<Shipment>().collect().unwrap().into_iter();
    assert_eq!(sorted(stored.map(|found| (found.order, found.cents))), shipments);
    let invoices: Vec<_> = shipped.acked.iter().map(|order| (*order, Some(cents(*order)))).collect();
    let stored = session.query::<Invoice>().collect().unwrap().into_iter();
    assert_eq!(sorted(stored.map(|found| (found.order, found.cents))), invoices);

    // Every acknowledged event made exactly one commit of state, however many attempts it took.
    let StateCommit(commits) = session.state().head().unwrap();
    let acked = placed.acked.len() + paid.acked.len() + shipped.acked.len();
    assert_eq!(commits, acked as u64);

    let dead = dead_letters(admin, session, &events, orders);
    let [again_paid, again_shipped] = [placed.attempts, paid.attempts];
    format!(
        "{} events, {acked} acked, {dead} dead letters, {commits} commits of state; \
         tries lost by kills: {again_paid} of pay, {again_shipped} of ship; {} by kills and failures of bill",
        events.len(),
        shipped.attempts,
    )
}

#[derive(Default)]
struct Ended {
    acked: BTreeSet<u64>,
    /// The failed attempts of all acknowledged events together.
    attempts: u64,
}

/// Checks that each order has one event of the topic, and that the event has ended once.
fn ended(events: &[EventView], topic: &str, handler: &str, orders: u64) -> Ended {
    let (mut ended, mut seen) = (Ended::default(), BTreeSet::new());
    for view in events.iter().filter(|view| view.event.stream.topic.topic() == topic) {
        let order = order_of(view);
        assert!(seen.insert(order), "{topic} of order {order} is there twice");
        let [claim] = &view.claims[..] else { panic!("{topic} of order {order}: {:?}", view.claims) };
        assert_eq!(claim.handler_id, handler);
        match claim.status {
            Status::Acked => {
                ended.acked.insert(order);
                ended.attempts += u64::from(claim.attempts);
            }
            Status::DeadLettered => assert!(claim.attempts >= ATTEMPTS_MAX, "{claim:?}"),
            Status::Pending | Status::Claimed | Status::Lost | Status::Discarded => {
                panic!("order {order}: {claim:?}")
            }
        }
    }
    assert_eq!(seen, (0..orders).collect(), "{topic}");
    ended
}

/// Checks that each event was caused by the previous event of the same order.
fn lineage(events: &[EventView]) {
    let topic_and_order = |view: &EventView| (view.event.stream.topic.topic().to_owned(), order_of(view));
    let chain = |topic: &str| [Placed::TYPE, Paid::TYPE, Shipped::TYPE].iter().position(|one| *one == topic);
    let links = events.iter().filter(|view| chain(view.event.stream.topic.topic()).is_some());
    let by_id: BTreeMap<_, _> = links.clone().map(|view| (&view.event.id, topic_and_order(view))).collect();
    for view in links {
        let (topic, order) = topic_and_order(view);
        let depth = chain(&topic).unwrap();
        let lineage = &view.event.body.lineage;
        assert_eq!(lineage.depth as usize, depth);
        let cause = lineage.causation.as_ref().map(|id| &by_id[id]);
        assert_eq!(
            cause.map(|(topic, order)| (chain(topic).unwrap() + 1, *order)),
            (depth > 0).then_some((depth, order))
        );
    }
}

fn dead_letters(admin: &Admin, session: &Session, events: &[EventView], orders: u64) -> usize {
    let hopeless: Vec<u64> = (0..orders).filter(|order| is_hopeless(*order)).collect();
    let shipped: BTreeMap<String, u64> = events
        .iter()
        .filter(|view| view.event.stream.topic.topic() == Shipped::TYPE)
        .map(|view| (view.event.id.to_string(), order_of(view)))
        .collect();
    let letters = admin.dead_letters(session.namespace_name(), usize::MAX).unwrap();
    let of = letters.iter().map(|(_, letter)| shipped[&letter.event_id.to_string()]);
    assert_eq!(sorted(of), hopeless);
    let told = events.iter().filter(|view| view.event.stream.topic.topic() == DeadLettered::TYPE);
    let told =
        told.map(|view| serde_json::from_str::<DeadLettered>(view.event.body.payload.as_str()).unwrap());
    assert_eq!(sorted(told.map(|letter| shipped[&letter.event_id])), hopeless);
    letters.len()
}

fn order_of(view: &EventView) -> u64 {
    let payload: serde_json::Value = serde_json::from_str(view.event.body.payload.as_str()).unwrap();
    payload["order"].as_u64().unwrap_or(u64::MAX)
}

fn sorted<T: Ord>(found: impl Iterator<Item = T>) -> Vec<T> {
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

/// Checks the store itself, from end to end.
pub fn doctor(url: &str) {
    let examined = open_doctor(&url.parse().unwrap()).unwrap().examine();
    assert_eq!(examined.findings.problems(), 0, "{:?}", examined.findings);
}
