//! A program with a handler that never returns: other handlers go on, its event ends as a dead letter, and the session
//! can stop.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millrace::{Config, Handler, HandlerSettings, Running, Session};
use millrace_admin::Admin;
use millrace_session::model::{Namespace, Timestamp};

use crate::{Ping, Place};

#[derive(millrace::Event, Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Fine {
    pub n: u64,
}

fn config() -> Config {
    Config { stop_grace_ms: 50, event_backoff_base_ms: 1, event_poll_interval_ms: 20, ..Config::default() }
}

fn limited(handler: Handler, timeout_ms: u64) -> Handler {
    let settings =
        HandlerSettings { timeout_ms: Some(timeout_ms), max_attempts: Some(3), ..HandlerSettings::default() };
    handler.with_settings(settings)
}

/// Returns a handler that blocks until the other end of the channel is dropped, which is practically for ever.
fn sleeps_for_ever(until: Receiver<()>, calls: Sender<u32>) -> Handler {
    let (until, calls) = (Arc::new(Mutex::new(until)), Mutex::new(calls));
    Handler::from_fn::<Ping>("sleeps", move |ctx| {
        let _ = calls.lock().unwrap().send(ctx.meta().attempt);
        let _ = until.lock().map(|until| until.recv());
        // By now the run has been cut off, so its events and its commit are refused.
        ctx.emit(Fine { n: 666 })?;
        assert!(ctx.commit_with(Fine { n: 666 }).is_err());
        Ok(())
    })
}

fn fine(handled: &Sender<u64>) -> Handler {
    let handled = Mutex::new(handled.clone());
    Handler::from_fn::<Fine>("fine", move |ctx| {
        let _ = handled.lock().unwrap().send(ctx.event.n);
        Ok(())
    })
}

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn stop_in_time(running: Running) {
    let began = Instant::now();
    running.stop().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_handler_that_sleeps_for_ever_ends_in_a_dead_letter_and_the_session_stops() {
    let place = Place::empty();
    let session = Session::builder(&place.url()).config(config()).open().unwrap();
    let (wake, asleep) = channel();
    let (called, calls) = channel();
    let (told, handled) = channel();
    session.publish(Ping { n: 1 }).unwrap();
    let handlers = vec![limited(sleeps_for_ever(asleep, called), 60), fine(&told)];
    let running = session.spawn(handlers, vec![]).unwrap();
    // There is one place for runs, and each timeout replaces the hanging run: three calls that never return.
    assert_eq!([1, 2, 3].map(|_| calls.recv().unwrap()), [1, 2, 3]);
    let dead = until(|| session.dead_letters().unwrap().pop());
    assert_eq!((dead.attempts, dead.error.as_str()), (3, "no answer within 60 ms"));
    session.publish(Fine { n: 7 }).unwrap();
    assert_eq!(handled.recv().unwrap(), 7, "the others go on");
    // Other processes can see which handler hangs.
    let admin = Admin::new(place.store());
    let hanging = until(|| {
        let sessions = admin.sessions(&Namespace::default(), Timestamp(0), 60_000).unwrap();
        sessions.into_iter().map(|session| session.hanging).find(|hanging| hanging.len() == 3)
    });
    assert!(hanging.iter().all(|run| run.handler.as_str() == "sleeps" && run.cut_off), "{hanging:?}");
    stop_in_time(running);
    // When the cut-off runs return at last, nothing they did is stored.
    drop(wake);
    let (told, handled) = channel();
    let last = session.beside();
    last.publish(Fine { n: 8 }).unwrap();
    last.run_until_idle(vec![fine(&told)], vec![]).unwrap();
    drop(told);
    assert_eq!(handled.iter().collect::<Vec<_>>(), [8]);
}

/// A handler without a timeout hangs: the session stops after its grace time, and another session gets the event at
/// once and as a first attempt.
#[test]
fn a_stop_leaves_a_hanging_handler_behind() {
    let place = Place::empty();
    let session = Session::builder(&place.url()).config(config()).open().unwrap();
    let (_wake, asleep) = channel::<()>();
    let (called, calls) = channel();
    session.publish(Ping { n: 1 }).unwrap();
    let running = session.spawn(vec![sleeps_for_ever(asleep, called)], vec![]).unwrap();
    calls.recv().unwrap();
    stop_in_time(running);
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = attempts.clone();
    let well = Handler::from_fn::<Ping>("sleeps", move |ctx| {
        seen.lock().unwrap().push(ctx.meta().attempt);
        Ok(())
    });
    session.beside().run_until_idle(vec![well], vec![]).unwrap();
    assert_eq!(*attempts.lock().unwrap(), [1]);
}

#[test]
fn an_async_handler_is_cut_off_and_its_thread_goes_on() {
    struct Dropped(Sender<&'static str>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }
    let place = Place::empty();
    let session =
        Session::builder(&place.url()).config(Config { hanging_handlers_max: 0, ..config() }).open().unwrap();
    let (said, heard) = channel();
    let said = Arc::new(Mutex::new(said));
    let waits = Handler::from_async_fn::<Ping>("waits", move |_| {
        let said = said.clone();
        Box::pin(async move {
            let _dropped = Dropped(said.lock().unwrap().clone());
            std::future::pending::<()>().await;
            Ok(())
        })
    });
    let (told, handled) = channel();
    session.publish(Ping { n: 1 }).unwrap();
    let running = session.spawn(vec![limited(waits, 30), fine(&told)], vec![]).unwrap();
    for _ in 0..3 {
        assert_eq!(heard.recv().unwrap(), "dropped");
    }
    let dead = until(|| session.dead_letters().unwrap().pop());
    assert_eq!(dead.error, "no answer within 30 ms");
    session.publish(Fine { n: 1 }).unwrap();
    assert_eq!(handled.recv().unwrap(), 1, "no place was lost");
    stop_in_time(running);
}
