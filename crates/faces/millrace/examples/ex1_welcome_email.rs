//! Example 1: one event, one handler, one explicit commit.
//!
//! `cargo run -p millrace --example ex1_welcome_email [sqlite:///app.db]`; every URL of `docs/engines.md` will do.

use millrace::{Entity, Event, HandlerContext, Result, Session, handlers, on_event};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct UserSignup {
    user_id: String,
    email: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct EmailLog {
    #[key]
    user_id: String,
    kind: String,
    sent_at: u64,
}

#[on_event(UserSignup)]
fn send_welcome_email(ctx: &mut HandlerContext<UserSignup>) -> Result<()> {
    // A real handler would call a mail service here, with `ctx.meta().id` as the idempotency key.
    println!("to {}: welcome!", ctx.event.email);
    let sent_at = ctx.now().0;
    ctx.ensure(EmailLog { user_id: ctx.event.user_id.clone(), kind: "welcome".into(), sent_at })?;
    ctx.commit()?;
    Ok(())
}

/// Returns how many mails were sent.
pub(crate) fn run(store: &str) -> Result<u64> {
    let session = Session::open(store)?;
    session.publish(UserSignup { user_id: "u1".into(), email: "u1@example.com".into() })?;
    // A service calls `session.run(..)` instead, which runs until Ctrl+C.
    session.run_until_idle(handlers![send_welcome_email], vec![])?;
    Ok(session.query::<EmailLog>().count()?)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    println!("{} mails sent", run(&store)?);
    Ok(())
}
