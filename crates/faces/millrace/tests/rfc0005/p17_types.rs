//! 17. Handlers receive their own event type. `tests/compile_fail.rs` shows that wrong types do not compile.

use millrace::{Event, HandlerContext, Result, handlers, on_event};
use serde::{Deserialize, Serialize};

use crate::words::*;

#[derive(Event, Debug, Serialize, Deserialize)]
struct UserSignup {
    user_id: String,
    #[serde(default)]
    referrer: Option<String>,
}

#[on_event(UserSignup, priority = 10)]
fn greet(ctx: &mut HandlerContext<UserSignup>) -> Result<()> {
    let user: &str = &ctx.event.user_id;
    ctx.emit(Ping { n: user.len() as u64 })?;
    Ok(())
}

#[on_event(UserSignup, id = "later")]
async fn greet_later(ctx: &mut HandlerContext<UserSignup>) -> Result<()> {
    tokio::task::yield_now().await;
    let referrer: Option<&str> = ctx.event.referrer.as_deref();
    ctx.emit(Ping { n: 100 + referrer.map_or(0, str::len) as u64 })
}

#[test]
fn plain_and_async_handlers_get_typed_events() {
    let sim = simulation();
    let seen = Seen::default();
    let mut handlers = handlers![greet, greet_later];
    assert_eq!(handlers[0].id, "rfc0005::p17_types:greet");
    handlers.push(noting::<Ping>("pings", &seen));
    sim.publish(UserSignup { user_id: "anna".to_owned(), referrer: Some("b".to_owned()) }).unwrap();
    sim.start(handlers, vec![]).unwrap();
    sim.run_until_idle().unwrap();
    let mut lines = seen.take();
    lines.sort();
    assert_eq!(lines, [r#"pings {"n":101}"#, r#"pings {"n":4}"#]);
}
