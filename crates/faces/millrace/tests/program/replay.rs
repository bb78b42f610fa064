//! A dead letter is replayed while its session runs: the handler that gave up is called again, with the same event id.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace::{Config, Handler, Session};
use millrace_admin::Admin;
use millrace_session::model::{HandlerId, Namespace};

use crate::{Ping, Place};

type Calls = Arc<Mutex<Vec<String>>>;

/// Returns a handler that records the event id of each call. Its first call fails if `fails_once` is set.
fn noting(name: &str, calls: &Calls, fails_once: bool) -> Handler {
    let calls = calls.clone();
    Handler::from_fn::<Ping>(name, move |ctx| {
        let mut calls = calls.lock().unwrap();
        calls.push(ctx.meta().id.to_string());
        if fails_once && calls.len() == 1 { Err("no card".into()) } else { Ok(()) }
    })
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_replay_calls_the_handler_that_gave_up_and_no_other() {
    let place = Place::empty();
    let config = Config { event_max_attempts: 1, ..Config::default() };
    let session = Session::builder(&place.url()).config(config).open().unwrap();
    let (charges, mails) = (Calls::default(), Calls::default());
    let handlers = vec![noting("charge_card", &charges, true), noting("mail", &mails, false)];
    let running = session.spawn(handlers, vec![]).unwrap();
    session.publish(Ping { n: 1 }).unwrap();
    wait_until(|| session.dead_letters().unwrap().len() == 1 && mails.lock().unwrap().len() == 1);

    let admin = Admin::new(place.store());
    let resent = admin.replay_dead_letters(&Namespace::default(), None, session.now()).unwrap();
    assert_eq!((resent.done.len(), resent.refused.len()), (1, 0));
    wait_until(|| charges.lock().unwrap().len() == 2);
    running.stop().unwrap();
    let charges = charges.lock().unwrap();
    assert_eq!(charges[0], charges[1], "the same idempotency key");
    assert_eq!(mails.lock().unwrap().len(), 1);
    assert!(session.dead_letters().unwrap().is_empty());
}

/// While no session runs the handler, a replayed letter is not listed, and cannot be replayed or deleted again.
#[test]
fn a_letter_that_is_being_replayed_is_hidden_and_comes_back_if_its_handler_is_forgotten() {
    let place = Place::empty();
    let config = Config { event_max_attempts: 1, ..Config::default() };
    let session = Session::builder(&place.url()).config(config).open().unwrap();
    session.publish(Ping { n: 1 }).unwrap();
    session.run_until_idle(vec![noting("charge_card", &Calls::default(), true)], vec![]).unwrap();
    let (admin, namespace) = (Admin::new(place.store()), Namespace::default());
    let counts = |session: &Session| {
        let listed = session.dead_letters().unwrap().len();
        let by_handler: u64 = admin.letters_by_handler(&namespace).unwrap().iter().map(|of| of.count).sum();
        (listed, by_handler, admin.totals(session.now(), 60_000).unwrap().handler_dead_letters)
    };
    assert_eq!(counts(&session), (1, 1, 1));
    assert_eq!(admin.replay_dead_letters(&namespace, None, session.now()).unwrap().done.len(), 1);
    assert_eq!(counts(&session), (0, 0, 0));
    let again = admin.replay_dead_letters(&namespace, None, session.now()).unwrap();
    assert_eq!((again.done.len(), again.refused.len()), (0, 0), "nothing is left to be replayed");
    assert_eq!(admin.delete_dead_letters(&namespace, None, session.now()).unwrap(), 0);
    let handler = &admin.handlers(&namespace, session.now()).unwrap()[0].handler_id;
    admin.forget_handler(&namespace, &HandlerId::new(handler).unwrap(), session.now()).unwrap();
    assert_eq!(counts(&session), (1, 1, 1));
}
