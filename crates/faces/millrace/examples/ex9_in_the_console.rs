//! Example 9: handlers in every state, to look at in the console (`#/handlers`, `#/sessions`, `#/schedules`,
//! `#/waiting`): one that gives up, one whose events wait for their next attempt, and one that never returns.
//!
//! ```sh
//! millrace serve --store sqlite:///shop.db &
//! cargo run -p millrace --example ex9_in_the_console sqlite:///shop.db
//! ```

use std::time::Duration;

use millrace::{
    Config, Event, HandlerContext, HandlerOutcome, Result, Running, Schedule, Session, handlers, on_event,
};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

#[derive(Event, Serialize, Deserialize)]
struct CleanupDue {}

#[on_event(OrderPlaced, id = "shop:bill", max_attempts = 1)]
fn bill(ctx: &mut HandlerContext<OrderPlaced>) -> std::result::Result<(), String> {
    Err(format!("order {} has no price", ctx.event.order))
}

#[on_event(OrderPlaced, id = "shop:mail")]
fn mail(_ctx: &mut HandlerContext<OrderPlaced>) -> std::result::Result<(), HandlerOutcome> {
    Err(HandlerOutcome::retry_after(Duration::from_secs(3600), "the mail server is away"))
}

#[on_event(OrderPlaced, id = "shop:pack", timeout_ms = 86_400_000)]
fn pack(_ctx: &mut HandlerContext<OrderPlaced>) -> Result<()> {
    loop {
        std::thread::park();
    }
}

/// Publishes two orders and one for later, and works until the returned `Running` is stopped.
pub(crate) fn start(store: &str) -> Result<(Session, Running)> {
    let config =
        Config { handler_concurrency: 3, stop_grace_ms: 0, refresh_interval_ms: 200, ..Config::default() };
    let session = Session::builder(store).config(config).metadata("version", "1.4.2").open()?;
    for order in 1..=2 {
        session.publish(OrderPlaced { order })?;
    }
    session.publish(OrderPlaced { order: 3 }.with_id("order-3").with_delay(Duration::from_secs(3600)))?;
    let nightly =
        Schedule::cron("30 2 * * 1-5", CleanupDue {})?.named("nightly cleanup").zone("Europe/Berlin")?;
    let running = session.spawn(handlers![bill, mail, pack], vec![nightly])?;
    Ok((session, running))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "sqlite:///millrace.db".to_owned());
    let (_session, _running) = start(&store)?;
    loop {
        std::thread::park();
    }
}
