//! 1. State is committed only by an explicit commit.

use crate::words::*;

#[test]
fn a_handler_that_does_not_commit_leaves_nothing() {
    let sim = simulation();
    let seen = Seen::default();
    let handler = {
        let seen = seen.clone();
        on::<OrderPlaced>("forgetful", move |ctx| {
            ctx.ensure(paid(ctx.event.order))?;
            seen.add("ran");
            Ok(())
        })
    };
    sim.publish(OrderPlaced { order: 1 }).unwrap();
    sim.start(vec![handler], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(seen.all(), ["ran"]);
    assert_eq!(sim.get::<Payment>(1_u64).unwrap(), None);
    assert_eq!(sim.state().list_commits(10, millrace::StateCommit(0)).unwrap().len(), 0);
    // The handler's uncommitted state does not leak into the session's next commit either.
    assert_eq!(sim.commit().unwrap(), None);
}

#[test]
fn each_commit_of_a_handler_is_a_commit() {
    let sim = simulation();
    let handler = on::<OrderPlaced>("twice", |ctx| {
        ctx.ensure(Payment { order: ctx.event.order, status: "begun".to_owned() })?;
        assert_eq!(ctx.commit()?, Some(1));
        // Without new changes there is no commit.
        assert_eq!(ctx.commit()?, None);
        ctx.ensure(paid(ctx.event.order))?;
        ctx.add_commit_meta("why", "charged");
        assert_eq!(ctx.commit()?, Some(2));
        ctx.ensure(paid(ctx.event.order))?;
        assert_eq!(ctx.commit()?, None);
        Ok(())
    });
    sim.publish(OrderPlaced { order: 5 }).unwrap();
    sim.start(vec![handler], vec![]).unwrap();
    sim.run_until_idle().unwrap();
    assert_eq!(sim.get::<Payment>(5_u64).unwrap().unwrap().status, "completed");
    let commits = sim.state().list_commits(10, millrace::StateCommit(0)).unwrap();
    assert_eq!(commits.len(), 2);
    assert_eq!(commits[0].meta.get("why").map(String::as_str), Some("charged"));
    assert_eq!(commits[0].meta.get("namespace").map(String::as_str), Some("default"));
    assert_eq!(sim.dead_letters().unwrap(), []);
}
