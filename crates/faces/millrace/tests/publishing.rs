//! Options of published events, and the data that a program gives to its handlers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace::{
    Entity, Event, EventError, Handler, HandlerContext, IntoOutgoing, Result, Schedule, Session,
    SessionError, Simulation, Timestamp, handlers, on_event,
};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

#[derive(Event, Serialize, Deserialize)]
struct MailWanted {
    to: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct Order {
    #[key]
    order: u64,
    paid: bool,
}

/// Returns a handler that counts the events of a type, and its counter.
fn counting<E: Event>(id: &str) -> (Handler, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let handler = Handler::from_fn::<E>(id, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    (handler, count)
}

#[test]
fn an_event_with_an_id_of_its_own_is_stored_once() {
    let sim = Session::open_simulated(1);
    let (handler, count) = counting::<OrderPlaced>("orders");
    sim.start(vec![handler], vec![]).unwrap();
    let first = sim.publish(OrderPlaced { order: 1 }.with_id("order-1")).unwrap();
    assert_eq!((first.id.to_string().as_str(), first.duplicate), ("order-1", false));
    let again = sim.publish(OrderPlaced { order: 1 }.with_id("order-1").with_priority(7)).unwrap();
    assert_eq!((again.offset, again.duplicate), (first.offset, true));
    assert!(!sim.publish(OrderPlaced { order: 2 }.with_id("order-2")).unwrap().duplicate);
    assert!(
        !sim.publish(MailWanted { to: "a".into() }.with_id("order-1")).unwrap().duplicate,
        "another type"
    );
    sim.run_until_idle().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2);
    sim.advance(Duration::from_secs(25 * 3600)).unwrap();
    assert!(!sim.publish(OrderPlaced { order: 1 }.with_id("order-1")).unwrap().duplicate, "a day later");
    let refused = sim.publish(OrderPlaced { order: 1 }.with_id("ü")).unwrap_err();
    assert!(matches!(refused, SessionError::Event(EventError::BadId { .. })), "{refused}");
}

#[test]
fn a_handler_or_a_schedule_brings_no_ids() {
    let sim = Session::open_simulated(2);
    let refusals = Arc::new(Mutex::new(Vec::new()));
    let seen = refusals.clone();
    let handler = Handler::from_fn::<OrderPlaced>("orders", move |ctx| {
        let mut seen = seen.lock().unwrap();
        seen.push(ctx.emit(MailWanted { to: "a".into() }.with_id("m")).unwrap_err().to_string());
        seen.push(ctx.commit_with(MailWanted { to: "a".into() }.with_id("m")).unwrap_err().to_string());
        Ok(())
    });
    sim.start(vec![handler], vec![]).unwrap();
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.run_until_idle().unwrap();
    let refusals = refusals.lock().unwrap().clone();
    assert!(refusals.len() == 2 && refusals.iter().all(|text| text.contains("brings an id")), "{refusals:?}");
    let refused = Schedule::cron("@daily", OrderPlaced { order: 1 }.with_id("x")).unwrap_err();
    assert!(refused.to_string().contains("brings an id"), "{refused}");
}

#[test]
fn a_commit_carries_any_number_of_events() {
    let sim = Session::open_simulated(3);
    let (orders, placed) = counting::<OrderPlaced>("orders");
    let (mails, wanted) = counting::<MailWanted>("mails");
    sim.start(vec![orders, mails], vec![]).unwrap();
    sim.ensure(Order { order: 1, paid: false }).unwrap();
    let events = || {
        let mail = MailWanted { to: "a".into() }.with_key("a");
        Ok::<_, EventError>([OrderPlaced { order: 1 }.with_id("o1").into_outgoing()?, mail.into_outgoing()?])
    };
    assert_eq!(sim.commit_with_all(events().unwrap()).unwrap(), Some(1));
    sim.run_until_idle().unwrap();
    assert_eq!((placed.load(Ordering::SeqCst), wanted.load(Ordering::SeqCst)), (1, 1));
    assert!(!sim.get::<Order>(1u64).unwrap().unwrap().value.paid);

    // Too many events: neither the state nor any event is written, and the state stays queued.
    let small = sim
        .to_builder()
        .config(millrace::Config { max_batch_size: 2, ..sim.settings().clone() })
        .open()
        .unwrap();
    small.ensure(Order { order: 2, paid: false }).unwrap();
    let refused = small.commit_with_all((0..3).map(|order| OrderPlaced { order })).unwrap_err();
    assert!(matches!(refused, SessionError::BatchSizeExceeded { count: 3, limit: 2 }), "{refused}");
    assert!(small.get::<Order>(2u64).unwrap().is_none());
    assert_eq!(small.commit_with_all((0..2).map(|order| OrderPlaced { order })).unwrap(), Some(2));
    sim.run_until_idle().unwrap();
    assert_eq!(placed.load(Ordering::SeqCst), 3);
}

/// Stands for a shared resource such as a connection pool.
struct Mailer {
    sent: AtomicU64,
}

#[on_event(MailWanted, id = "send")]
fn send(ctx: &mut HandlerContext<MailWanted>) -> Result<()> {
    let mailer = ctx.data::<Mailer>()?;
    mailer.sent.fetch_add(1, Ordering::SeqCst);
    ctx.commit()?;
    Ok(())
}

#[test]
fn handlers_get_what_the_program_gave_the_session() {
    let sim =
        Simulation::builder(4).with(Mailer { sent: AtomicU64::new(0) }).namespace("mail").open().unwrap();
    sim.start(handlers![send], vec![]).unwrap();
    sim.publish(MailWanted { to: "a".into() }).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(sim.data::<Mailer>().unwrap().sent.load(Ordering::SeqCst), 1);

    // This session has no `Mailer`: the error says how to provide one.
    let bare = Simulation::builder(5)
        .config(millrace::Config { event_max_attempts: 1, ..Default::default() })
        .open()
        .unwrap();
    bare.start(handlers![send], vec![]).unwrap();
    bare.publish(MailWanted { to: "a".into() }).unwrap();
    bare.run_until_idle().unwrap();
    let letters = bare.dead_letters().unwrap();
    assert!(letters[0].error.contains("Mailer") && letters[0].error.contains(".with(value)"), "{letters:?}");
}

#[test]
fn a_handler_learns_when_its_fire_was_planned() {
    let sim = Session::open_simulated(6);
    let planned = Arc::new(Mutex::new(Vec::new()));
    let seen = planned.clone();
    let handler = Handler::from_fn::<OrderPlaced>("orders", move |ctx| {
        let meta = ctx.meta();
        seen.lock().unwrap().push((meta.planned_at.map(|at| at.0), meta.created_at.0));
        Ok(())
    });
    let start = sim.now().0;
    let every = Schedule::cron("@every 90s", OrderPlaced { order: 1 }).unwrap().jitter_ms(30_000);
    sim.start(vec![handler], vec![every]).unwrap();
    sim.advance(Duration::from_secs(3 * 90 + 40)).unwrap();
    sim.publish(OrderPlaced { order: 2 }).unwrap();
    sim.run_until_idle().unwrap();
    let planned = planned.lock().unwrap().clone();
    let (by_schedule, by_hand) = planned.split_at(3);
    for (n, (at, created)) in by_schedule.iter().enumerate() {
        let expected = (start / 90_000 + n as u64 + 1) * 90_000;
        assert_eq!(*at, Some(expected), "{planned:?}");
        assert!((expected..=expected + 30_000).contains(created), "{planned:?}");
    }
    assert_eq!(by_hand.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [None]);
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_delayed_event_comes_when_it_is_due() {
    let sim = Session::open_simulated(7);
    let (handler, count) = counting::<OrderPlaced>("orders");
    sim.start(vec![handler], vec![]).unwrap();
    let seen = || count.load(Ordering::SeqCst);
    let start = sim.now();
    let waits = sim.publish(OrderPlaced { order: 1 }.with_delay(HOUR).with_key("k")).unwrap();
    let due = waits.due.unwrap();
    assert!((3_600_000..3_600_010).contains(&(due.0 - start.0)) && waits.offset.0 == 0, "{waits:?}");
    let moment = Timestamp(start.0 + 2 * 3_600_000);
    assert_eq!(sim.publish(OrderPlaced { order: 2 }.deliver_at(moment)).unwrap().due, Some(moment));
    let past = sim.publish(OrderPlaced { order: 3 }.deliver_at(Timestamp(5))).unwrap();
    assert_eq!((past.due, past.offset.0), (None, 1), "a moment that is over does not wait");
    sim.run_until_idle().unwrap();
    assert_eq!(seen(), 1);
    sim.advance(HOUR - Duration::from_millis(1)).unwrap();
    assert_eq!(seen(), 1);
    sim.advance(Duration::from_millis(20)).unwrap();
    assert_eq!(seen(), 2);
    sim.advance(HOUR).unwrap();
    assert_eq!(seen(), 3);
    // Three months in which nothing else happens.
    sim.publish(OrderPlaced { order: 4 }.with_delay(90 * 24 * HOUR)).unwrap();
    sim.advance(91 * 24 * HOUR).unwrap();
    assert_eq!(seen(), 4);
}

#[test]
fn commits_and_handlers_delay_events_as_well() {
    let sim = Session::open_simulated(8);
    let (mails, count) = counting::<MailWanted>("mails");
    let mail = || MailWanted { to: "a".into() }.with_delay(HOUR);
    let orders = Handler::from_fn::<OrderPlaced>("orders", move |ctx| {
        if ctx.event.order == 1 {
            ctx.emit(mail())?;
            ctx.commit_with(mail())?;
            // After a failure, emitted events are dropped; committed events stay and are not committed again.
            if ctx.meta().attempt == 1 {
                return Err("once more".into());
            }
        } else {
            ctx.emit(mail())?;
            ctx.ensure(Order { order: 2, paid: true })?;
            ctx.commit_and_ack()?;
        }
        Ok(())
    });
    sim.start(vec![orders, mails], vec![]).unwrap();
    sim.ensure(Order { order: 1, paid: false }).unwrap();
    let events = [OrderPlaced { order: 1 }.into_outgoing().unwrap(), mail().into_outgoing().unwrap()];
    assert_eq!(sim.commit_with_all(events).unwrap(), Some(1));
    sim.publish(OrderPlaced { order: 2 }).unwrap();
    sim.advance(HOUR / 2).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    sim.advance(HOUR).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 4, "of the commit, of a handler two, of a last commit one");
}

#[test]
fn an_own_id_and_a_delay_are_stored_once() {
    let sim = Session::open_simulated(9);
    let (handler, count) = counting::<OrderPlaced>("orders");
    sim.start(vec![handler], vec![]).unwrap();
    let first = sim.publish(OrderPlaced { order: 1 }.with_id("o").with_delay(HOUR)).unwrap();
    assert!(!first.duplicate);
    let at_once = sim.publish(OrderPlaced { order: 1 }.with_id("o")).unwrap();
    let later = sim.publish(OrderPlaced { order: 1 }.with_delay(2 * HOUR).with_id("o")).unwrap();
    for again in [at_once, later] {
        assert_eq!((again.duplicate, again.due), (true, first.due));
    }
    sim.advance(3 * HOUR).unwrap();
    let again = sim.publish(OrderPlaced { order: 1 }.with_id("o").with_delay(HOUR)).unwrap();
    assert_eq!((again.duplicate, again.due, again.offset.0), (true, None, 1));
    sim.advance(3 * HOUR).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn a_delay_has_its_bounds() {
    let sim = Session::open_simulated(10);
    let refused = sim.publish(OrderPlaced { order: 1 }.with_delay(366 * 24 * HOUR)).unwrap_err();
    assert!(matches!(refused, SessionError::DelayTooLong { .. }), "{refused}");
    let refused = Schedule::cron("@daily", OrderPlaced { order: 1 }.with_delay(HOUR)).unwrap_err();
    assert!(refused.to_string().contains("is delayed"), "{refused}");
    assert!(sim.publish(OrderPlaced { order: 1 }.with_delay(Duration::ZERO)).unwrap().due.is_none());
}

/// On a file and in real time: the program that delayed the event has ended, and other programs run the handlers.
#[test]
fn a_program_that_only_publishes_leaves_its_events_to_those_that_run() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:///{}", folder.path().join("app.db").display());
    let delay = Duration::from_millis(300);
    let due = {
        let publisher = Session::open(&url).unwrap();
        publisher.publish(OrderPlaced { order: 1 }.with_delay(delay)).unwrap().due.unwrap()
    };
    let (handler, count) = counting::<OrderPlaced>("orders");
    let session = Session::open(&url).unwrap();
    let (beside, other) = counting::<OrderPlaced>("orders");
    let second = Session::open(&url).unwrap();
    let running =
        [session.spawn(vec![handler], vec![]).unwrap(), second.spawn(vec![beside], vec![]).unwrap()];
    // This event is delayed by another session while the two run; they must notice it.
    let later = Session::open(&url).unwrap().publish(OrderPlaced { order: 2 }.with_delay(2 * delay)).unwrap();
    let handled = || count.load(Ordering::SeqCst) + other.load(Ordering::SeqCst);
    for (n, due) in [(1, due), (2, later.due.unwrap())] {
        while handled() < n {
            assert!(session.now().0 < due.0 + 20_000, "event {n} did not come");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(session.now() >= due, "event {n} came early");
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(handled(), 2, "each was stored once");
    running.into_iter().for_each(|running| running.stop().unwrap());
}
