//! Two event types of one program that get the same name by accident are refused, wherever they are used.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use millrace::{
    Event, EventError, HandlerContext, Result, Schedule, Session, SessionError, handlers, on_event, schedules,
};
use serde::{Deserialize, Serialize};

mod orders {
    use super::*;

    #[derive(Event, Serialize, Deserialize)]
    pub(crate) struct Created {
        pub(crate) order: u64,
    }

    #[on_event(Created)]
    pub(crate) fn take(_: &mut HandlerContext<Created>) -> Result<()> {
        Ok(())
    }
}

mod users {
    use super::*;

    #[derive(Event, Serialize, Deserialize)]
    pub(crate) struct Created {
        pub(crate) user: String,
    }

    #[on_event(Created)]
    pub(crate) fn take(_: &mut HandlerContext<Created>) -> Result<()> {
        Ok(())
    }
}

/// A second type for the same events. Its name is given explicitly, which means that the sharing is intended.
#[derive(Event, Serialize, Deserialize)]
#[event(name = "created")]
struct AnyCreated {}

#[derive(Event, Serialize, Deserialize)]
struct Start {}

fn user() -> users::Created {
    users::Created { user: "u1".into() }
}

/// Checks that the error names both types and their common name, and says what to do.
fn refused(answer: std::result::Result<impl std::fmt::Debug, SessionError>) {
    let error = answer.unwrap_err();
    assert!(
        matches!(error, SessionError::Event(EventError::NameShared { event_type: "created", .. })),
        "{error}"
    );
    let said = error.to_string();
    for part in ["orders::Created", "users::Created", "`created`", "#[event(name"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn handlers_of_both_are_refused_when_the_session_runs() {
    let session = Session::open("memory:").unwrap();
    refused(session.run_until_idle(handlers![orders::take, users::take], schedules![]));
    refused(session.spawn(handlers![orders::take, users::take], schedules![]));
    let sim = Session::open_simulated(1);
    refused(sim.start(handlers![orders::take, users::take], schedules![]));
}

#[test]
fn a_schedule_of_one_and_a_handler_of_the_other_are_refused() {
    let session = Session::open("memory:").unwrap();
    let schedule = Schedule::cron("0 * * * *", user()).unwrap();
    refused(session.run_until_idle(handlers![orders::take], schedules![schedule]));
}

#[test]
fn what_is_published_is_compared_with_what_is_handled_and_nothing_is_written() {
    let session = Session::open("memory:").unwrap();
    session.publish(orders::Created { order: 1 }).unwrap();
    session.publish(orders::Created { order: 2 }).unwrap();
    refused(session.publish(user()));
    refused(session.publish_all([user(), user()]));
    refused(session.commit_with(user()));
    // Sessions of other namespaces refuse too, because they belong to the same store.
    refused(session.to_builder().namespace("other").open().unwrap().publish(user()));
    let first_free = session.publish(orders::Created { order: 3 }).unwrap().offset;
    assert_eq!(first_free.0, 3, "the refused ones took no place");
    // Another program, with another store, may use the same name.
    Session::open("memory:").unwrap().publish(user()).unwrap();
}

#[test]
fn a_handler_may_not_send_the_other_one_either() {
    let sim = Session::open_simulated(1);
    sim.publish(Start {}).unwrap();
    let sending = millrace::Handler::from_fn::<Start>("sending", |ctx| {
        ctx.emit(orders::Created { order: 1 })?;
        refused(ctx.emit(user()));
        refused(ctx.commit_with(user()));
        Ok(())
    });
    sim.start(vec![sending], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(sim.dead_letters().unwrap().len(), 0, "the try went on after the refusals");
}

#[test]
fn a_name_that_was_said_by_hand_is_meant() {
    let session = Session::open("memory:").unwrap();
    session.publish(AnyCreated {}).unwrap();
    session.publish(orders::Created { order: 1 }).unwrap();
    session.publish(AnyCreated {}).unwrap();
    refused(session.publish(user()));
}
