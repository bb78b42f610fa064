//! A type changes between two versions of a program: the new version is refused, makes a migration plan, migrates, and
//! goes on; from then on the old version is refused. The test uses a file, sessions and handlers.

use millrace::{Entity, Handler, MigrationError, Session, SessionError, StateError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Ping, Place};

mod v1 {
    use super::*;

    #[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Account {
        #[key]
        pub id: String,
        pub cents: u32,
    }
}

mod v2 {
    use super::*;

    #[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Account {
        #[key]
        pub id: String,
        pub cents: u64,
        pub currency: String,
    }
}

fn old(id: &str, cents: u32) -> v1::Account {
    v1::Account { id: id.into(), cents }
}

fn new(id: &str, cents: u64) -> v2::Account {
    v2::Account { id: id.into(), cents, currency: "EUR".into() }
}

fn migration(session: &Session) -> millrace::Migration {
    session.migration().upgrade::<v2::Account>(1, |mut fields| {
        fields["currency"] = json!("EUR");
        Ok(fields)
    })
}

fn is_outdated(error: &SessionError) -> bool {
    matches!(error, SessionError::State(StateError::SchemaOutdated(_)))
}

#[test]
fn a_new_version_of_a_program_migrates_what_the_old_one_wrote() {
    let place = Place::empty();
    let before = Session::open(&place.url()).unwrap();
    before.ensure((0..1200).map(|n| old(&format!("{n:04}"), n))).unwrap();
    let first = before.commit().unwrap().unwrap();

    let session = Session::open(&place.url()).unwrap();
    session.ensure(new("new", 7)).unwrap();
    let error = session.commit().unwrap_err();
    assert!(is_outdated(&error), "{error}");
    assert!(error.to_string().contains("added `currency`"), "{error}");

    // A plan is a dry run and changes nothing: the old program can still write.
    let plan = migration(&session).plan().unwrap();
    assert_eq!((plan.types[0].from_version, plan.types[0].to_version, plan.types[0].rows), (1, 2, 1200));
    assert!(plan.types[0].failures.is_empty() && plan.types[0].missing_upgraders.is_empty());
    let unready = session.migration().adopt::<v2::Account>().plan().unwrap();
    assert_eq!(unready.types[0].missing_upgraders, [1]);
    assert_eq!(session.state().head().unwrap().0, first);
    before.ensure(old("0000", 50)).unwrap();
    let second = before.commit().unwrap().unwrap();

    // The old program's write made the plan stale, so its token is refused.
    let error = session.migrate(&migration(&session), &plan.token).unwrap_err();
    assert!(
        matches!(error, SessionError::State(StateError::Migration(MigrationError::StaleToken))),
        "{error}"
    );
    assert_eq!(session.state().head().unwrap().0, second);

    let plan = migration(&session).plan().unwrap();
    let migrated = session.migrate(&migration(&session), &plan.token).unwrap();
    assert_eq!(migrated.rows, 1200);
    assert!(!migration(&session).plan().unwrap().has_changes());
    // The state queued when the commit was refused is still queued.
    assert!(session.commit().unwrap().is_some());
    assert_eq!(session.query::<v2::Account>().count().unwrap(), 1201);
    assert_eq!(*session.get::<v2::Account>("0000").unwrap().unwrap(), new("0000", 50));
    // Queries of the past return what they returned before.
    let past = session.query::<v1::Account>().as_of(millrace::StateCommit(first));
    assert_eq!(past.sum(|f| f.cents).unwrap(), (0..1200).sum());

    before.ensure(old("0001", 1)).unwrap();
    let error = before.commit().unwrap_err();
    assert!(is_outdated(&error), "the old program has not looked since: {error}");
}

#[test]
fn handlers_fail_visibly_until_their_types_are_migrated() {
    let place = Place::empty();
    let before = Session::open(&place.url()).unwrap();
    before.ensure(old("a", 1)).unwrap();
    before.commit().unwrap();
    drop(before);

    let session = Session::open(&place.url()).unwrap();
    let session = session
        .to_builder()
        .config(millrace::Config { event_max_attempts: 1, ..millrace::Config::default() })
        .open()
        .unwrap();
    let adds = || {
        Handler::from_fn::<Ping>("adds", |ctx| {
            let account = ctx.get::<v2::Account>("a")?.map_or(0, |account| account.cents);
            ctx.ensure(new("a", account + ctx.event.n))?;
            ctx.commit()?;
            Ok(())
        })
    };
    session.publish(Ping { n: 10 }).unwrap();
    session.run_until_idle(vec![adds()], vec![]).unwrap();
    let dead = session.dead_letters().unwrap();
    assert_eq!(dead.len(), 1);
    assert!(dead[0].error.contains("does not fit the program's type"), "{}", dead[0].error);

    let plan = migration(&session).plan().unwrap();
    session.migrate(&migration(&session), &plan.token).unwrap();
    session.publish(Ping { n: 100 }).unwrap();
    session.run_until_idle(vec![adds()], vec![]).unwrap();
    assert_eq!(session.get::<v2::Account>("a").unwrap().unwrap().cents, 101);
}
