//! Retention, which sessions run in the background: events that are old and finished by all handlers are removed, and
//! nothing else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace::{Config, Event, Handler, Session, Simulation};
use millrace_session::model::Space;
use millrace_store::KeyRange;
use serde::{Deserialize, Serialize};

use crate::{Ping, Place};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Event, Serialize, Deserialize)]
struct Order {
    n: u64,
}

/// Returns the events that a new handler still receives when it starts from the earliest retained event.
fn retained<E: Event>(
    sim: &Simulation,
    id: &str,
    number: impl Fn(&E) -> u64 + Send + Sync + 'static,
) -> Vec<u64> {
    let late = sim.beside();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let handler = Handler::from_fn::<E>(id, move |ctx| {
        notes.lock().unwrap().push(number(&ctx.event));
        Ok(())
    });
    late.start(vec![handler], vec![]).unwrap();
    late.run_until_idle().unwrap();
    late.stop().unwrap();
    std::mem::take(&mut *seen.lock().unwrap())
}

#[test]
fn what_is_old_and_finished_goes_and_what_is_open_stays() {
    let config = Config {
        event_retention_ms: DAY.as_millis() as u64,
        event_max_attempts: u32::MAX,
        event_backoff_max_ms: DAY.as_millis() as u64 / 24,
        ..Config::default()
    };
    let sim = Simulation::builder(3).config(config).open().unwrap();
    let pings = Handler::from_fn::<Ping>("pings", |_| Ok(()));
    // The handler never succeeds with the third order.
    let orders = Handler::from_fn::<Order>("orders", |ctx| match ctx.event.n {
        3 => Err("not today".into()),
        _ => Ok(()),
    });
    sim.start(vec![pings, orders], vec![]).unwrap();
    for n in 1..=4 {
        sim.publish(Ping { n }).unwrap();
        sim.publish(Order { n }).unwrap();
    }
    let crashed = sim.beside();
    crashed.start(vec![], vec![]).unwrap();
    crashed.run_until_idle().unwrap();
    crashed.crash();
    assert_eq!(sim.sessions().unwrap().len(), 2);

    sim.advance(DAY / 2).unwrap();
    assert_eq!(retained::<Ping>(&sim, "early", |ping| ping.n), [1, 2, 3, 4], "nothing is old yet");

    sim.advance(2 * DAY).unwrap();
    sim.publish(Ping { n: 5 }).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(retained::<Ping>(&sim, "late", |ping| ping.n), [5]);
    // Retention keeps everything from the first unfinished event on, because it trims only the beginning of a log.
    assert_eq!(retained::<Order>(&sim, "later", |order| order.n), [3, 4]);
    let alive: Vec<_> = sim.sessions().unwrap().into_iter().map(|(id, _)| id).collect();
    assert!(alive.contains(sim.id()), "it is alive");
    assert!(!alive.contains(crashed.id()), "the row of a session that died long ago goes, too");
}

#[test]
fn a_session_on_a_file_trims_beside_its_work() {
    let place = Place::empty();
    let config = Config {
        event_retention_ms: 1,
        retention_interval_ms: 10,
        clock_settle_ms: 0,
        // A small limit, so that trimming takes many slices.
        retention_rows_max: 7,
        ..Config::default()
    };
    let session = Session::builder(&place.url()).config(config).open().unwrap();
    let store = place.store();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let notes = handled.clone();
    let handler = Handler::from_fn::<Ping>("pings", move |ctx| {
        notes.lock().unwrap().push(ctx.event.n);
        Ok(())
    });
    let running = session.spawn(vec![handler], vec![]).unwrap();
    for round in 0..4 {
        session.publish_all((0..50).map(|n| Ping { n: round * 50 + n })).unwrap();
        // Each round is published while retention is still trimming the round before, or has just finished.
        while handled.lock().unwrap().len() < (round as usize + 1) * 50 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let open_offsets = || {
        let streams = store.streams().unwrap();
        let pings = streams.iter().find(|bounds| bounds.stream.topic.topic() == "ping").unwrap();
        pings.next.0 - pings.start.0
    };
    let finished = || store.scan(Space::Finished, &KeyRange::all(), 1).unwrap().len();
    while open_offsets() > 0 || finished() > 0 {
        assert!(running.is_running());
        std::thread::sleep(Duration::from_millis(2));
    }
    running.stop().unwrap();
    let mut all = handled.lock().unwrap().clone();
    all.sort_unstable();
    assert_eq!(
        all,
        (0..200).collect::<Vec<_>>(),
        "nothing went before it was handled, and nothing came twice"
    );
    assert_eq!(session.dead_letters().unwrap(), []);
}
