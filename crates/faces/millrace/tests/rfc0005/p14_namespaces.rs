//! 14. Namespaces do not see one another; sessions of one namespace share its work.

use std::time::Duration;

use crate::words::*;

#[test]
fn events_and_state_stay_in_their_namespace() {
    let orders = simulation().to_builder().namespace("orders").open().unwrap();
    let payments = orders.to_builder().namespace("payments").open().unwrap();
    let seen = Seen::default();
    orders.ensure(paid(1)).unwrap();
    orders.commit_with(Ping { n: 1 }).unwrap();
    payments.publish(Ping { n: 2 }).unwrap();
    assert_eq!(payments.get::<Payment>(1_u64).unwrap(), None);
    orders.start(vec![noting::<Ping>("in-orders", &seen)], vec![]).unwrap();
    payments.start(vec![noting::<Ping>("in-payments", &seen)], vec![]).unwrap();
    orders.advance(Duration::from_secs(60)).unwrap();
    let mut lines = seen.take();
    lines.sort();
    assert_eq!(lines, [r#"in-orders {"n":1}"#, r#"in-payments {"n":2}"#]);
    assert_eq!(orders.sessions().unwrap().len(), 1);
    assert_eq!(payments.sessions().unwrap().len(), 1);
}

#[test]
fn several_sessions_share_the_work_of_a_namespace() {
    let sim = simulation()
        .to_builder()
        .config(millrace::Config { event_claim_limit: 5, ..Default::default() })
        .open()
        .unwrap();
    let seen = Seen::default();
    sim.publish_all((0..100).map(|n| Ping { n })).unwrap();
    let sessions = [sim.beside(), sim.beside(), sim.beside()];
    for (number, session) in sessions.iter().enumerate() {
        let notes = seen.clone();
        let handler = on::<Ping>("shared", move |ctx| {
            notes.add(format!("{number} {}", ctx.event.n));
            Ok(())
        });
        session.start(vec![handler], vec![]).unwrap();
    }
    sim.advance(Duration::from_secs(5)).unwrap();
    let lines = seen.take();
    assert_eq!(lines.len(), 100, "each once");
    for number in 0..3 {
        let share = lines.iter().filter(|line| line.starts_with(&format!("{number} "))).count();
        assert!(share > 0, "session {number} did nothing");
    }
}
