//! A shared store has one process that leads it: a second one is refused, and one that has lost the lead writes nothing.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use millrace::{Handler, Session, SessionError, SharedSettings, StoreError};
use millrace_stores::{JournalStore, StoreOptions, open_followed};

use crate::sessions::{OrderPlaced, Payment};
use crate::stores::LibraryStore;

pub(crate) fn refused(store: &LibraryStore) {
    let first = store.session_at("one").open().unwrap();
    match store.session_at("two").open() {
        Err(SessionError::Store(StoreError::InUse(cause))) => {
            assert!(cause.text().contains("http://one:7070 leads "), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    // The first one did not notice, and more sessions can be made from it.
    first.publish(OrderPlaced { order_id: 1 }).unwrap();
    let beside = first.to_builder().namespace("beside").open().unwrap();
    drop(first);
    beside.publish(OrderPlaced { order_id: 2 }).unwrap();
    drop(beside);
    store.session_at("two").open().unwrap().publish(OrderPlaced { order_id: 3 }).unwrap();
}

/// Takes the lead from a leader that lives, as a server does for which the leader was silent for too long.
fn take_the_lead(store: &LibraryStore) -> Arc<JournalStore> {
    let impatient = SharedSettings { lead_timeout_ms: Some(1), ..store.machine("thief") };
    let options = StoreOptions { shared: impatient, ..StoreOptions::default() };
    let thief = open_followed(&store.shared_url(), &options, &mut |_: &str| true).unwrap().store;
    while !thief.try_lead().unwrap() {}
    thief
}

#[track_caller]
fn assert_deposed<T: std::fmt::Debug>(result: Result<T, SessionError>) {
    match result {
        Err(SessionError::Store(StoreError::Deposed(cause))) => {
            assert!(cause.text().contains("http://thief:7070"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

fn paid(store: &LibraryStore) -> Vec<u64> {
    let session = store.session_at("three").open().unwrap();
    let payments = session.query::<Payment>().collect().unwrap();
    payments.iter().map(|payment| payment.order_id).collect()
}

fn pay(session: &Session, order_id: u64) -> Result<(), SessionError> {
    session.ensure(Payment { order_id, status: "paid".into() })?;
    session.commit().map(drop)
}

pub(crate) fn deposed(store: &LibraryStore) {
    let session = store.session_at("one").open().unwrap();
    pay(&session, 1).unwrap();
    let thief = take_the_lead(store);
    assert_deposed(pay(&session, 2));
    assert_deposed(session.publish(OrderPlaced { order_id: 2 }));
    // The lead is free again; a session that has lost it stays refused all the same, because it is behind.
    drop(thief);
    assert_deposed(pay(&session, 3));
    assert_deposed(session.run_until_idle(vec![], vec![]));
    drop(session);
    assert_eq!(paid(store), [1]);
}

pub(crate) fn deposed_handler(store: &LibraryStore) {
    let session = store.session_at("one").open().unwrap();
    session.publish(OrderPlaced { order_id: 1 }).unwrap();
    let (started, is_started) = channel();
    let (go_on, may_go_on) = channel();
    let may_go_on = Mutex::new(may_go_on);
    let told: Arc<Mutex<Option<SessionError>>> = Arc::default();
    let error = told.clone();
    let handler = Handler::from_fn::<OrderPlaced>("pay", move |ctx| {
        tell(&started);
        may_go_on.lock().unwrap().recv()?;
        ctx.ensure(Payment { order_id: ctx.event.order_id, status: "paid".into() })?;
        *error.lock().unwrap() = ctx.commit().err();
        Ok(())
    });
    let running = session.spawn(vec![handler], vec![]).unwrap();
    is_started.recv().unwrap();
    let thief = take_the_lead(store);
    tell(&go_on);
    assert_deposed(running.join());
    assert_deposed(told.lock().unwrap().take().map_or(Ok(()), Err));
    drop((thief, session));
    assert_eq!(paid(store), [0u64; 0]);
}

fn tell(sender: &Sender<()>) {
    // A retry of the handler finds nobody who waits.
    let _ = sender.send(());
}
