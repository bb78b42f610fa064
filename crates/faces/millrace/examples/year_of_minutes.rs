//! A year of an every-minute schedule on virtual time: 525,600 events, each sent, claimed, handled and acknowledged.
//!
//! `cargo run --release -p millrace --example year_of_minutes`; a number after `--` simulates that many days instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace::{Event, Handler, Result, Schedule, Session};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct Minute {}

/// Returns how many events were handled in so many days.
pub(crate) fn run(days: u64) -> Result<u64> {
    let sim = Session::open_simulated(1);
    let handled = Arc::new(AtomicU64::new(0));
    let count = handled.clone();
    let handler = Handler::from_fn::<Minute>("count", move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    sim.start(vec![handler], vec![Schedule::cron("* * * * *", Minute {})?])?;
    sim.advance(Duration::from_secs(days * 24 * 3600))?;
    Ok(handled.load(Ordering::Relaxed))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let days = std::env::args().nth(1).and_then(|days| days.parse().ok()).unwrap_or(365);
    let started = Instant::now();
    let handled = run(days)?;
    println!("{handled} fires handled in {:.2} s", started.elapsed().as_secs_f64());
    Ok(())
}
