//! 11. Failed events wait longer after each failure, up to a bound, with jitter.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace::Config;

use crate::words::*;

#[test]
fn delays_double_up_to_the_maximum_and_are_jittered() {
    let config = Config { event_backoff_max_ms: 4000, ..Config::default() };
    let sim = simulation().to_builder().config(config).open().unwrap();
    let times: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let notes = times.clone();
    let handler = on::<Ping>("fails", move |ctx| {
        notes.lock().unwrap().push((ctx.event.n, ctx.now().0));
        Err("always".into())
    });
    sim.publish_all((0..20).map(|n| Ping { n })).unwrap();
    sim.start(vec![handler], vec![]).unwrap();
    sim.advance(Duration::from_secs(120)).unwrap();
    let times = times.lock().unwrap();
    let mut first_delays = BTreeSet::new();
    for n in 0..20 {
        let at: Vec<u64> = times.iter().filter(|(of, _)| *of == n).map(|(_, at)| *at).collect();
        let delays: Vec<u64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (delay, base) in delays.iter().zip([500, 1000, 2000, 4000, 4000, 4000, 4000, 4000, 4000]) {
            assert!((base..=base + 101).contains(delay), "{n}: {delays:?}");
        }
        assert_eq!(delays.len(), 9, "ten tries");
        first_delays.insert(delays[0]);
    }
    assert!(first_delays.len() > 5, "jitter: {first_delays:?}");
}
