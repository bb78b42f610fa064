//! 9. The depth of a chain of events is limited.

use std::time::Duration;

use millrace::{Config, SessionError};

use crate::words::*;

#[test]
fn a_circle_ends_at_the_limit_and_is_seen() {
    for with_commit in [false, true] {
        let config = Config { max_event_chain_depth: 3, event_max_attempts: 2, ..Config::default() };
        let sim = simulation().to_builder().config(config).open().unwrap();
        let seen = Seen::default();
        let notes = seen.clone();
        let circle = on::<Ping>("circle", move |ctx| {
            let meta = ctx.meta();
            notes.add(format!("depth {} root {}", meta.depth, meta.root == meta.id));
            let next = Ping { n: ctx.event.n + 1 };
            let sent = if with_commit { ctx.commit_with(next).map(|_| ()) } else { ctx.emit(next) };
            if ctx.meta().depth == 3 {
                assert!(matches!(sent, Err(SessionError::EventLoopLimit { depth: 4, limit: 3 })), "{sent:?}");
            }
            sent?;
            Ok(())
        });
        let published = sim.publish(Ping { n: 0 }).unwrap();
        sim.start(vec![circle], vec![]).unwrap();
        sim.advance(Duration::from_secs(600)).unwrap();
        let seen = seen.all();
        assert_eq!(
            seen,
            [
                "depth 0 root true",
                "depth 1 root false",
                "depth 2 root false",
                "depth 3 root false",
                "depth 3 root false"
            ]
        );
        let dead = sim.dead_letters().unwrap();
        assert_eq!(dead.len(), 1, "the loop went on, the event was given up");
        assert_eq!(dead[0].depth, 3);
        assert_eq!(dead[0].root, Some(published.id));
        assert!(dead[0].error.contains("max_event_chain_depth"), "{}", dead[0].error);
    }
}
