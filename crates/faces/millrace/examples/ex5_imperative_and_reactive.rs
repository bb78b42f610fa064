//! Example 5: a program commits state and an event; a handler, perhaps in another process, reacts to the event.
//!
//! `cargo run -p millrace --example ex5_imperative_and_reactive [sqlite:///app.db]`; every URL of `docs/engines.md` will do.

use millrace::{Entity, Event, HandlerContext, Result, Session, handlers, on_event};
use serde::{Deserialize, Serialize};

#[derive(Entity, Serialize, Deserialize)]
struct User {
    #[key]
    id: String,
    email: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct Workspace {
    #[key]
    user_id: String,
    title: String,
}

#[derive(Event, Serialize, Deserialize)]
struct UserCreated {
    user_id: String,
}

#[on_event(UserCreated)]
fn setup_user_workspace(ctx: &mut HandlerContext<UserCreated>) -> Result<()> {
    let user_id = ctx.event.user_id.clone();
    let title = match ctx.get::<User>(&user_id)? {
        Some(user) => format!("workspace of {}", user.email),
        None => "workspace".to_owned(),
    };
    ctx.add_commit_meta("reason", "new user");
    ctx.ensure(Workspace { user_id, title })?;
    ctx.commit()?;
    Ok(())
}

/// Returns the title of the workspace.
pub(crate) fn run(store: &str) -> Result<Option<String>> {
    let session = Session::builder(store).namespace("users").open()?;
    session.ensure(User { id: "u1".into(), email: "user@example.com".into() })?;
    let commit = session.commit_with(UserCreated { user_id: "u1".into() })?;
    println!("committed as number {commit:?}");

    session.run_until_idle(handlers![setup_user_workspace], vec![])?;
    Ok(session.get::<Workspace>("u1")?.map(|workspace| workspace.value.title))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    println!("{:?}", run(&store)?);
    Ok(())
}
