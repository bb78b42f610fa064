//! 15. Sessions coordinate by leases and show that they are alive by heartbeats.

use std::time::Duration;

use crate::words::*;

#[test]
fn sessions_are_registered_beat_and_end() {
    let sim = simulation().to_builder().metadata("version", "1.2").open().unwrap();
    let silent = sim.beside();
    sim.start(vec![], vec![]).unwrap();
    silent.start(vec![], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    silent.crash();
    sim.advance(Duration::from_secs(100)).unwrap();
    let rows = sim.sessions().unwrap();
    assert_eq!(rows.len(), 2);
    let row = |id: &millrace::SessionId| rows.iter().find(|(found, _)| found == id).unwrap().1.clone();
    let (alive, dead) = (row(sim.id()), row(silent.id()));
    assert_eq!(alive.metadata.get("version").map(String::as_str), Some("1.2"));
    assert_eq!(alive.metadata.get("namespace").map(String::as_str), Some("default"));
    assert_eq!(alive.metadata.get("pid"), Some(&std::process::id().to_string()));
    assert!(alive.metadata.contains_key("hostname"));
    let ttl = sim.settings().session_ttl_ms;
    assert!(sim.now().0 - alive.heartbeat.0 <= sim.settings().session_heartbeat_interval_ms);
    assert!(sim.now().0 - dead.heartbeat.0 > ttl && dead.stopped.is_none(), "dead by its silence");
    sim.stop().unwrap();
    let stopped = sim.sessions().unwrap().into_iter().find(|(id, _)| id == sim.id()).unwrap().1;
    assert!(stopped.stopped.is_some());
}

#[test]
fn what_was_not_started_is_given_back_without_counting_a_try() {
    let sim = simulation();
    let seen = Seen::default();
    sim.publish_all((0..10).map(|n| Ping { n })).unwrap();
    let (stopping, notes) = (sim.clone(), seen.clone());
    let handler = on::<Ping>("worker", move |ctx| {
        notes.add(format!("first {} try {}", ctx.event.n, ctx.meta().attempt));
        // The request to stop arrives as a signal would: during this run, with nine events claimed and not started.
        stopping.ask_to_stop();
        Ok(())
    });
    sim.start(vec![handler], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.take(), ["first 0 try 1"]);
    let next = sim.beside();
    let notes = seen.clone();
    let handler = on::<Ping>("worker", move |ctx| {
        notes.add(format!("{} try {}", ctx.event.n, ctx.meta().attempt));
        Ok(())
    });
    next.start(vec![handler], vec![]).unwrap();
    next.run_until_idle().unwrap();
    let expected: Vec<_> = (1..10).map(|n| format!("{n} try 1")).collect();
    assert_eq!(seen.take(), expected);
}
