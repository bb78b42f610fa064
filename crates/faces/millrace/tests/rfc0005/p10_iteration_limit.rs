//! 10. An iteration handles a limited number of events, then the poll interval passes, and so on for ever.

use std::time::Duration;

use millrace::Config;

use crate::words::*;

#[test]
fn the_budget_of_an_iteration_is_kept_and_comes_back() {
    let config = Config { max_events_per_iteration: 5, event_poll_interval_ms: 1000, ..Config::default() };
    let sim = simulation().to_builder().config(config).open().unwrap();
    let seen = Seen::default();
    sim.publish_all((0..12).map(|n| Ping { n })).unwrap();
    sim.start(vec![noting::<Ping>("counts", &seen)], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.len(), 5);
    sim.advance(Duration::from_millis(999)).unwrap();
    assert_eq!(seen.len(), 5);
    sim.advance(Duration::from_millis(1)).unwrap();
    assert_eq!(seen.len(), 10);
    sim.advance(Duration::from_secs(2)).unwrap();
    assert_eq!(seen.len(), 12);
    // The loop still runs.
    sim.publish(Ping { n: 12 }).unwrap();
    sim.advance(Duration::from_secs(2)).unwrap();
    assert_eq!(seen.len(), 13);
}

#[test]
fn a_busy_handler_does_not_starve_another() {
    let config = Config { max_events_per_iteration: 10, ..Config::default() };
    let sim = simulation().to_builder().config(config).open().unwrap();
    let seen = Seen::default();
    sim.publish_all((0..100).map(|n| Ping { n })).unwrap();
    sim.publish_all((0..3).map(|order| OrderPlaced { order })).unwrap();
    let handlers =
        vec![noting::<Ping>("busy", &seen).with_priority(900), noting::<OrderPlaced>("quiet", &seen)];
    sim.start(handlers, vec![]).unwrap();
    sim.run_until_idle().unwrap();
    let quiet = seen.all().iter().filter(|line| line.starts_with("quiet")).count();
    assert!(quiet > 0, "{:?}", seen.all());
}
