//! 12. After too many failures the event becomes a dead letter of that handler, and an event announces this.

use std::time::Duration;

use millrace::{Config, DeadLettered};

use crate::words::*;

#[test]
fn an_event_is_given_up_announced_and_left_to_the_others() {
    let sim = simulation()
        .to_builder()
        .config(Config { event_max_attempts: 3, ..Config::default() })
        .open()
        .unwrap();
    let seen = Seen::default();
    let notes = seen.clone();
    let failing = on::<Ping>("failing", move |ctx| {
        notes.add(format!("failing {}", ctx.meta().attempt));
        Err(format!("reason {}", ctx.meta().attempt).into())
    });
    let notes = seen.clone();
    let told = on::<DeadLettered>("told", move |ctx| {
        let meta = ctx.meta();
        notes.add(format!("{}: {:?} depth {}", meta.event_type, ctx.event, meta.depth));
        Ok(())
    });
    let published = sim.publish(Ping { n: 1 }).unwrap();
    sim.start(vec![failing, told], vec![]).unwrap();
    sim.advance(Duration::from_secs(3600)).unwrap();
    let lines = seen.take();
    assert_eq!(lines[..3], ["failing 1", "failing 2", "failing 3"]);
    assert_eq!(lines.len(), 4, "not claimed again: {lines:?}");
    assert!(lines[3].starts_with("event.dead_letter: ") && lines[3].ends_with("depth 1"), "{lines:?}");
    assert!(lines[3].contains(&published.id.to_string()) && lines[3].contains("reason 3"), "{lines:?}");

    let dead = sim.dead_letters().unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].event_id, published.id);
    assert_eq!(
        (dead[0].attempts, dead[0].error.as_str(), dead[0].payload.as_deref()),
        (3, "reason 3", Some(r#"{"n":1}"#))
    );

    let other = sim.beside();
    other.start(vec![noting::<Ping>("other", &seen)], vec![]).unwrap();
    other.run_until_idle().unwrap();
    assert_eq!(seen.take(), [r#"other {"n":1}"#], "dead for one handler is not dead for another");
}

#[test]
fn a_failing_handler_of_dead_letters_makes_no_more_of_them() {
    let sim = simulation()
        .to_builder()
        .config(Config { event_max_attempts: 2, ..Config::default() })
        .open()
        .unwrap();
    let seen = Seen::default();
    let notes = seen.clone();
    let told = on::<DeadLettered>("told", move |_| {
        notes.add("told");
        Err("this fails too".into())
    });
    sim.publish(Ping { n: 1 }).unwrap();
    sim.start(vec![on::<Ping>("failing", |_| Err("no".into())), told], vec![]).unwrap();
    sim.advance(Duration::from_secs(3600)).unwrap();
    assert_eq!(seen.len(), 2, "its two tries");
    assert_eq!(sim.dead_letters().unwrap().len(), 2);
}

#[test]
fn an_event_that_cannot_be_decoded_is_given_up_at_once_and_the_loop_goes_on() {
    #[derive(millrace::Event, serde::Serialize, serde::Deserialize)]
    #[event(name = "ping")]
    struct Odd {
        text: String,
    }
    let sim = simulation();
    let seen = Seen::default();
    sim.publish(Odd { text: "not a number".to_owned() }).unwrap();
    sim.publish(Ping { n: 2 }).unwrap();
    sim.start(vec![noting::<Ping>("pings", &seen)], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.all(), [r#"pings {"n":2}"#]);
    let dead = sim.dead_letters().unwrap();
    assert_eq!(dead.len(), 1);
    assert!(dead[0].error.contains("not a `ping`"), "{}", dead[0].error);
}
