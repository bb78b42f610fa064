//! Large events and settings: the sender of too much gets an error, and nothing else is affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace::{CatchUp, Config, Event, Namespace, Offset, Partition, Schedule, Session, SessionError};
use millrace_admin::Admin;
use millrace_session::model::{
    Append, BATCH_BYTES_MAX, Batch, EventBody, JsonText, NewEvent, Op, Timestamp, TopicKey,
};
use millrace_stores::{StoreOptions, open_shared};
use serde::{Deserialize, Serialize};

use crate::words::*;

#[derive(Event, Clone, Serialize, Deserialize)]
struct Text {
    text: String,
}

fn giving_up() -> Config {
    Config { event_max_attempts: 1, ..Config::default() }
}

/// The dead letter must not hold the payload as a string in JSON: with its quotes escaped it would be twice as large,
/// more than any store accepts.
#[test]
fn a_large_event_full_of_quotes_ends_as_a_dead_letter() {
    let session = Session::builder("memory:").config(giving_up()).open().unwrap();
    let large = Text { text: "\"".repeat(4_900_000) };
    let sent = session.publish(large.clone()).unwrap();
    session.publish(Ping { n: 1 }).unwrap();
    let seen = Seen::default();
    let handlers = || vec![on::<Text>("fails", |_| Err("no".into())), noting::<Ping>("pings", &seen)];
    session.run_until_idle(handlers(), vec![]).unwrap();
    session.publish(Ping { n: 2 }).unwrap();
    session.run_until_idle(handlers(), vec![]).unwrap();
    assert_eq!(seen.all(), [r#"pings {"n":1}"#, r#"pings {"n":2}"#]);
    let dead = session.dead_letters().unwrap();
    assert_eq!((dead.len(), &dead[0].event_id), (1, &sent.id));
    let copy = dead[0].payload.as_deref().map(serde_json::from_str::<Text>);
    assert!(copy.is_some_and(|copy| copy.unwrap().text == large.text), "all of it");
}

#[test]
fn large_fires_that_were_missed_all_come() {
    let sim = simulation();
    let schedule = || {
        let event = Text { text: "x".repeat(130_000) };
        vec![Schedule::cron("* * * * *", event).unwrap().catch_up(CatchUp::All)]
    };
    sim.start(vec![], schedule()).unwrap();
    sim.run_until_idle().unwrap();
    sim.stop().unwrap();
    sim.advance(Duration::from_secs(100 * 60)).unwrap();
    let seen = Seen::default();
    let notes = seen.clone();
    let counts = on::<Text>("counts", move |_| {
        notes.add("fired");
        Ok(())
    });
    sim.start(vec![counts], schedule()).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.len(), 100);
}

#[test]
fn as_many_events_in_hand_as_one_likes() {
    let config = Config { event_claim_limit: 1_000_000, ..Config::default() };
    let session = Session::builder("memory:").config(config).open().unwrap();
    session.publish_all((0..10).map(|n| Ping { n })).unwrap();
    let seen = Seen::default();
    session.run_until_idle(vec![noting::<Ping>("pings", &seen)], vec![]).unwrap();
    assert_eq!(seen.len(), 10);
}

#[test]
fn an_event_that_is_too_large_is_refused_where_it_is_sent() {
    let session = Session::builder("memory:").config(giving_up()).open().unwrap();
    let large = || Text { text: "x".repeat(12 << 20) };
    let refused = session.publish(large());
    assert!(matches!(refused, Err(SessionError::TooLarge { .. })), "{refused:?}");
    let refused = Schedule::cron("* * * * *", large())
        .and_then(|schedule| session.run_until_idle(vec![], vec![schedule]));
    assert!(matches!(refused, Err(SessionError::Spec(_))), "{refused:?}");
    session.publish(Ping { n: 1 }).unwrap();
    let emits = on::<Ping>("emits", move |ctx| Ok(ctx.emit(large())?));
    session.run_until_idle(vec![emits], vec![]).unwrap();
    let dead = session.dead_letters().unwrap();
    assert!(dead.len() == 1 && dead[0].error.contains("bytes"), "{dead:?}");
}

/// Older versions accepted events so large that a dead letter cannot hold a copy of the payload.
#[test]
fn an_event_too_large_for_a_letter_is_replayed_from_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:///{}", folder.path().join("app.db").display());
    let session = Session::builder(&url).config(giving_up()).open().unwrap();
    let store = open_shared(&url.parse().unwrap(), &StoreOptions::default()).unwrap().store;
    let payload = format!(r#"{{"text":"{}"}}"#, "x".repeat(BATCH_BYTES_MAX - 800));
    let body = EventBody::of(JsonText::parse(&payload).unwrap());
    let append = Append {
        stream: TopicKey::parse("default/text").unwrap().stream(Partition(0)),
        event: NewEvent { id: None, body: body.into() },
        dedupe_window_ms: 0,
    };
    let now = Timestamp(1_800_000_000_000);
    store.commit(&[Batch { now, ops: vec![Op::Append(append)], ..Batch::default() }]).unwrap();
    let id = "h".repeat(200);
    let (seen, handled) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
    let (notes, tries) = (seen.clone(), handled.clone());
    let second_time = on::<Text>(&id, move |ctx| {
        if tries.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err("not yet".into());
        }
        notes.add(ctx.event.text.len().to_string());
        Ok(())
    });
    session.run_until_idle(vec![second_time.clone()], vec![]).unwrap();
    let dead = session.dead_letters().unwrap();
    assert_eq!((dead.len(), dead[0].offset, dead[0].error.as_str()), (1, Offset(1), "not yet"));
    assert!(dead[0].payload.is_none());
    let admin = Admin::new(store);
    let replayed = admin.replay_dead_letters(&Namespace::default(), None, now).unwrap();
    assert_eq!((replayed.done[0].event_id.clone(), replayed.refused.len()), (dead[0].event_id.clone(), 0));
    assert_eq!(session.dead_letters().unwrap(), []);
    session.run_until_idle(vec![second_time], vec![]).unwrap();
    assert_eq!(seen.all(), [(BATCH_BYTES_MAX - 800).to_string()]);
}
