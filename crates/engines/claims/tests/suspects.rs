//! Processes that crash during runs: only runs that started cost attempts, and an event that ends its process costs its
//! neighbours next to nothing.

mod desk;

use desk::*;
use millrace_claims::*;
use millrace_model::*;

const POISON: &str = "poison";

fn wide(concurrency: usize) -> WorkerConfig {
    WorkerConfig { handler_concurrency: concurrency, event_claim_lease_ms: 4000, ..config() }
}

fn both() -> Vec<HandlerSpec> {
    vec![handler("m:h", "t"), handler("m:other", "u")]
}

fn payload(run: &Run) -> &str {
    run.event.body.payload.as_str().trim_matches('"')
}

/// Runs one process after the other: each runs the events it gets until it gets the poison, which ends the process.
/// Returns the number of crashes.
fn crash_loop(desk: &mut Desk, concurrency: usize) -> usize {
    for crashes in 0.. {
        desk.join("a", wide(concurrency), both(), Vec::new());
        for _ in 0..200 {
            if desk.runs["a"].iter().any(|run| payload(run) == POISON) {
                break;
            }
            match desk.waiting("a") {
                0 => desk.pass(100),
                _ => drop(desk.ok("a")),
            }
        }
        if !desk.runs["a"].iter().any(|run| payload(run) == POISON) {
            return crashes;
        }
        desk.crash("a");
        assert!(crashes < 100, "the crash loop does not end");
    }
    unreachable!()
}

#[test]
fn an_event_that_ends_its_process_becomes_the_only_dead_letter() {
    for concurrency in [1, 8] {
        let mut desk = Desk::new();
        for n in 0..99 {
            desk.publish(out("t", &n.to_string()));
            if n == 49 {
                desk.publish(out("t", POISON));
            }
        }
        for n in 0..50 {
            desk.publish(out("u", &n.to_string()));
        }
        let crashes = crash_loop(&mut desk, concurrency);
        assert!((10..=12).contains(&crashes), "{crashes} crashes at concurrency {concurrency}");
        let letters = desk.rows(Space::DeadLetters);
        assert!(letters.len() == 1 && letters[0].1.contains(POISON), "{letters:?}");
        assert!(letters[0].1.contains("its process ended"), "{letters:?}");
        let acked = desk.endings().iter().filter(|ending| **ending == Ending::Acked).count();
        assert_eq!((acked, desk.claims()), (149, vec![]));
        let most =
            desk.finished().iter().filter(|row| row.ending == Ending::Acked).map(|row| row.attempts).max();
        assert!(most <= Some(1), "a neighbour lost {most:?} attempts");
    }
}

#[test]
fn a_crash_costs_what_was_queued_no_attempt() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    for n in 0..10 {
        desk.publish(out("t", &n.to_string()));
    }
    desk.take("a");
    desk.crash("a");
    desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    desk.pass(30_000);
    assert_eq!(desk.pass_working(100), 10);
    let mut attempts: Vec<u32> = desk.finished().iter().map(|row| row.attempts).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [0; 10], "the first was to start with its claim, and nobody knows whether it did");
}

#[test]
fn a_run_that_lasts_is_marked_and_one_that_does_not_costs_no_commit() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    desk.publish(out("t", "2"));
    desk.ok("a");
    let second = desk.take("a");
    let mark = |desk: &Desk| desk.claims()[0].run;
    desk.pass(50);
    assert_eq!(mark(&desk), RunMark::Unknown, "it was queued, so its claim could not say");
    let before = desk.commits;
    desk.pass(900);
    assert_eq!((mark(&desk), desk.commits), (RunMark::Unknown, before));
    desk.pass(60);
    assert_eq!((mark(&desk), desk.commits), (RunMark::Started, before + 1));
    desk.pass(22_000);
    assert_eq!(mark(&desk), RunMark::Long);
    desk.finish("a", &second, Ok(Vec::new()));
    desk.pass(10);
    assert_eq!((desk.claims(), desk.endings()), (vec![], vec![Ending::Acked; 2]));
}

#[test]
fn marks_ride_with_commits_that_are_made_anyway() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    desk.publish(out("t", "2"));
    desk.ok("a");
    let run = desk.take("a");
    desk.pass(200);
    let before = desk.commits;
    desk.publish(out("t", "3"));
    let marks: Vec<RunMark> = desk.claims().iter().map(|claim| claim.run).collect();
    assert_eq!((marks, desk.commits), (vec![RunMark::Started, RunMark::Unknown], before + 1));
    desk.finish("a", &run, Ok(Vec::new()));
    assert_eq!(desk.waiting("a"), 1);
}

#[test]
fn a_handlers_commit_marks_its_run() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    desk.publish(out("t", "2"));
    desk.ok("a");
    let run = desk.take("a");
    // The acknowledgement of the first event may still wait to share a commit.
    let marks = |desk: &Desk| desk.claims().iter().map(|claim| claim.run).collect::<Vec<_>>();
    assert_eq!(marks(&desk).last(), Some(&RunMark::Unknown));
    desk.commit_run("a", &run, ensure("x", r#"{"a":1}"#)).unwrap();
    assert_eq!(marks(&desk).last(), Some(&RunMark::Started));
    desk.commit_run("a", &run, ensure("x", r#"{"a":2}"#)).unwrap();
    desk.finish("a", &run, Ok(Vec::new()));
    desk.pass(10);
    assert_eq!(desk.endings(), [Ending::Acked; 2]);
}

/// While the mark of a run is being written, what the handler does waits.
#[test]
fn a_run_that_ends_while_its_mark_is_written_is_acked_after_it() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    desk.publish(out("t", "2"));
    desk.ok("a");
    let run = desk.take("a");
    desk.hold = true;
    desk.pass(1_100);
    assert_eq!(desk.held.len(), 1);
    desk.finish("a", &run, Ok(vec![out("u", "1")]));
    desk.let_go();
    desk.pass(10);
    assert_eq!((desk.endings(), desk.payloads("u")), (vec![Ending::Acked; 2], vec!["1".to_owned()]));
}

/// The lease of a slow handler expires while its session lives: that costs an attempt, but is no reason to run the
/// event alone.
#[test]
fn a_slow_handler_is_not_suspected() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "slow"));
    desk.take("a");
    let wide = WorkerConfig { handler_concurrency: 2, ..config() };
    desk.join("b", wide, vec![handler("m:h", "t")], Vec::new());
    desk.pass(30_500);
    assert_eq!(desk.take("b").attempt, 2);
    assert!(desk.claims().iter().all(|claim| claim.suspicion == Suspicion::None), "{:?}", desk.claims());
    desk.publish(out("t", "next"));
    assert_eq!(payload(&desk.take("b")), "next", "beside it");
}

/// A harness whose worker `b` has taken over the events that `a` ran when it died.
fn taken_over(started: usize) -> Desk {
    let mut desk = Desk::new();
    for n in 0..started {
        desk.publish(out("t", &n.to_string()));
    }
    desk.join(
        "a",
        WorkerConfig { handler_concurrency: 4, ..config() },
        vec![handler("m:h", "t")],
        Vec::new(),
    );
    assert_eq!(desk.waiting("a"), started);
    desk.crash("a");
    desk.pass(30_000);
    desk.join("b", WorkerConfig { handler_concurrency: 4, ..config() }, both(), Vec::new());
    desk
}

#[test]
fn suspects_run_one_at_a_time_and_nothing_starts_beside_them() {
    let mut desk = taken_over(3);
    assert_eq!(desk.waiting("b"), 1);
    let first = desk.take("b");
    assert_eq!(first.attempt, 1, "what was only claimed to start costs no attempt");
    desk.publish(out("u", "fresh"));
    assert_eq!(desk.waiting("b"), 0, "it has the session to itself");
    desk.hold = true;
    desk.finish("b", &first, Ok(Vec::new()));
    assert_eq!(desk.waiting("b"), 0, "not before its ending is durable");
    desk.let_go();
    assert_eq!(payload(&desk.take("b")), "1", "the next suspect");
    // After a while, others run beside a suspect that takes long, but no other suspect does.
    desk.pass(999);
    assert_eq!(desk.waiting("b"), 0);
    desk.pass(10);
    assert_eq!((desk.waiting("b"), payload(&desk.take("b"))), (1, "fresh"));
    desk.pass(5_000);
    assert_eq!(desk.waiting("b"), 0);
}

#[test]
fn a_suspect_waits_for_young_runs_but_not_for_one_that_hangs() {
    let mut desk = taken_over(1);
    desk.take("b");
    desk.crash("b");
    desk.publish(out("u", "hangs"));
    desk.pass(29_000);
    desk.join("c", WorkerConfig { handler_concurrency: 4, ..config() }, both(), Vec::new());
    let hangs = desk.take("c");
    assert_eq!(payload(&hangs), "hangs");
    desk.pass(950);
    desk.publish(out("u", "young"));
    let young = desk.take("c");
    desk.pass(100);
    assert_eq!(desk.waiting("c"), 0, "the suspect is claimed and waits");
    desk.pass(1_000);
    let suspect = desk.take("c");
    assert_eq!((payload(&suspect), suspect.attempt), ("0", 2));
    for run in [suspect, young, hangs] {
        desk.finish("c", &run, Ok(Vec::new()));
        desk.pass(10);
    }
    assert_eq!(desk.endings(), [Ending::Acked; 3]);
}

#[test]
fn a_suspect_that_fails_is_one_no_longer() {
    let mut desk = taken_over(1);
    desk.fail("b");
    let claims = desk.claims();
    assert_eq!((claims[0].suspicion, claims[0].attempts), (Suspicion::None, 1));
}

#[test]
fn a_suspect_whose_mark_is_on_its_way_is_given_back_when_the_session_stops() {
    let mut desk = taken_over(1);
    desk.take("b");
    desk.crash("b");
    desk.pass(30_000);
    desk.hold = true;
    desk.join("c", config(), both(), Vec::new());
    for _ in 0..100 {
        if desk.claims()[0].attempts == 1 {
            break;
        }
        desk.step();
    }
    assert_eq!((desk.held.len(), desk.waiting("c")), (1, 0), "the mark");
    desk.input("c", Input::Stop);
    desk.let_go();
    assert_eq!((desk.waiting("c"), desk.stopped.as_slice()), (0, ["c"].as_slice()));
    let claims = desk.claims();
    assert_eq!((claims[0].state, claims[0].attempts), (ClaimState::Waiting, 1));
    assert_eq!((claims[0].run, claims[0].suspicion), (RunMark::Unknown, Suspicion::Likely));
}

/// Rows from before there were marks: leases that ended under them cost no attempt, and no event loops for ever.
#[test]
fn rows_without_marks_cost_no_attempt() {
    let mut desk = Desk::with(vec![handler("m:h", "t")]);
    desk.publish(out("t", "1"));
    desk.take("a");
    desk.crash("a");
    let (key, value) = desk.rows(Space::Claims).remove(0);
    let old = value.replace(r#""run":"claimed","#, "");
    assert_ne!(old, value);
    let ops = vec![Op::Put { space: Space::Claims, key, value: old.into_bytes().into() }];
    millrace_store::Store::commit(&desk.store, &[Batch { ops, ..Batch::default() }]).unwrap();
    desk.pass(30_000);
    // After a lease without a mark the suspicion is `Possible`; after one marked by its claim, `Likely`. From then on
    // the start of the run is durable before it runs.
    for attempt in [1, 1, 2] {
        desk.join("b", config(), vec![handler("m:h", "t")], Vec::new());
        assert_eq!(desk.take("b").attempt, attempt);
        desk.crash("b");
        desk.pass(30_000);
    }
}
