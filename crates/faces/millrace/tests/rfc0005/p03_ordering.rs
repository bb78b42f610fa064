//! 3. Events of higher priority come first, then older events; handlers of one event type run by their own priority.

use millrace::Event as _;

use crate::words::*;

#[test]
fn higher_priority_first_and_first_in_first_out_within_one() {
    let sim = simulation();
    let seen = Seen::default();
    for n in 1..=3 {
        sim.publish(Ping { n }).unwrap();
    }
    sim.publish(Ping { n: 4 }.with_priority(200)).unwrap();
    sim.publish(Ping { n: 5 }.with_priority(50)).unwrap();
    sim.publish(Ping { n: 6 }.with_priority(200)).unwrap();
    sim.publish(Ping { n: 7 }).unwrap();
    let notes = seen.clone();
    let handler = on::<Ping>("order", move |ctx| {
        notes.add(ctx.event.n.to_string());
        Ok(())
    });
    sim.start(vec![handler], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.all(), ["4", "6", "1", "2", "3", "7", "5"]);
}

#[test]
fn handlers_of_one_type_run_by_priority_then_id() {
    let sim = simulation();
    let seen = Seen::default();
    sim.publish(Ping { n: 1 }).unwrap();
    let handlers = vec![
        noting::<Ping>("b", &seen),
        noting::<Ping>("late", &seen).with_priority(1),
        noting::<Ping>("first", &seen).with_priority(500),
        noting::<Ping>("a", &seen),
    ];
    sim.start(handlers, vec![]).unwrap();
    sim.run_until_idle().unwrap();
    let order: Vec<_> = seen.all().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(order, ["first", "a", "b", "late"]);
}
