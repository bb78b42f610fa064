//! Processes that crash during runs: only runs that started cost attempts, and an event that ends its process costs its
//! neighbours next to nothing.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

const POISON: &str = "poison";

fn wide(concurrency: usize) -> WorkerConfig {
    WorkerConfig { handler_concurrency: concurrency, event_claim_lease_ms: 4000, ..config() }
}

fn both() -> Vec<HandlerSpec> {
    vec![handler("m:h", "t"), handler("m:other", "u")]
}

fn payload(run: &HandlerRun) -> &str {
    run.event.body.payload.as_str().trim_matches('"')
}

/// Runs one process after the other: each runs the events it gets until it gets the poison, which ends the process.
/// Returns the number of crashes.
fn crash_loop(harness: &mut Harness, concurrency: usize) -> usize {
    for crashes in 0.. {
        harness.join("a", wide(concurrency), both(), Vec::new());
        for _ in 0..200 {
            if harness.runs["a"].iter().any(|run| payload(run) == POISON) {
                break;
            }
            match harness.waiting_runs("a") {
                0 => harness.pass(100),
                _ => drop(harness.ok("a")),
            }
        }
        if !harness.runs["a"].iter().any(|run| payload(run) == POISON) {
            return crashes;
        }
        harness.crash("a");
        assert!(crashes < 100, "the crash loop does not end");
    }
    unreachable!()
}

#[test]
fn an_event_that_ends_its_process_becomes_the_only_dead_letter() {
    for concurrency in [1, 8] {
        let mut harness = Harness::new();
        for n in 0..99 {
            harness.publish(out("t", &n.to_string()));
            if n == 49 {
                harness.publish(out("t", POISON));
            }
        }
        for n in 0..50 {
            harness.publish(out("u", &n.to_string()));
        }
        let crashes = crash_loop(&mut harness, concurrency);
        assert!((10..=12).contains(&crashes), "{crashes} crashes at concurrency {concurrency}");
        let letters = harness.rows(Space::DeadLetters);
        assert!(letters.len() == 1 && letters[0].1.contains(POISON), "{letters:?}");
        assert!(letters[0].1.contains("its process ended"), "{letters:?}");
        let acked = harness.endings().iter().filter(|ending| **ending == Ending::Acked).count();
        assert_eq!((acked, harness.claims()), (149, vec![]));
        let most =
            harness.finished().iter().filter(|row| row.ending == Ending::Acked).map(|row| row.attempts).max();
        assert!(most <= Some(1), "a neighbour lost {most:?} attempts");
    }
}

#[test]
fn a_crash_costs_what_was_queued_no_attempt() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    for n in 0..10 {
        harness.publish(out("t", &n.to_string()));
    }
    harness.next_run("a");
    harness.crash("a");
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(30_000);
    assert_eq!(harness.pass_working(100), 10);
    let mut attempts: Vec<u32> = harness.finished().iter().map(|row| row.attempts).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [0; 10], "the first was to start with its claim, and nobody knows whether it did");
}

#[test]
fn a_run_that_lasts_is_marked_and_one_that_does_not_costs_no_commit() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    harness.ok("a");
    let second = harness.next_run("a");
    let mark = |harness: &Harness| harness.claims()[0].run;
    harness.pass(50);
    assert_eq!(mark(&harness), RunMark::Unknown, "it was queued, so its claim could not say");
    let before = harness.commits;
    harness.pass(900);
    assert_eq!((mark(&harness), harness.commits), (RunMark::Unknown, before));
    harness.pass(60);
    assert_eq!((mark(&harness), harness.commits), (RunMark::Started, before + 1));
    harness.pass(22_000);
    assert_eq!(mark(&harness), RunMark::Long);
    harness.finish("a", &second, Ok(Vec::new()));
    harness.pass(10);
    assert_eq!((harness.claims(), harness.endings()), (vec![], vec![Ending::Acked; 2]));
}

#[test]
fn marks_ride_with_commits_that_are_made_anyway() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    harness.ok("a");
    let run = harness.next_run("a");
    harness.pass(200);
    let before = harness.commits;
    harness.publish(out("t", "3"));
    let marks: Vec<RunMark> = harness.claims().iter().map(|claim| claim.run).collect();
    assert_eq!((marks, harness.commits), (vec![RunMark::Started, RunMark::Unknown], before + 1));
    harness.finish("a", &run, Ok(Vec::new()));
    assert_eq!(harness.waiting_runs("a"), 1);
}

#[test]
fn a_handlers_commit_marks_its_run() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    harness.ok("a");
    let run = harness.next_run("a");
    // The acknowledgement of the first event may still wait to share a commit.
    let marks = |harness: &Harness| harness.claims().iter().map(|claim| claim.run).collect::<Vec<_>>();
    assert_eq!(marks(&harness).last(), Some(&RunMark::Unknown));
    harness.commit_run("a", &run, ensure("x", r#"{"a":1}"#)).unwrap();
    assert_eq!(marks(&harness).last(), Some(&RunMark::Started));
    harness.commit_run("a", &run, ensure("x", r#"{"a":2}"#)).unwrap();
    harness.finish("a", &run, Ok(Vec::new()));
    harness.pass(10);
    assert_eq!(harness.endings(), [Ending::Acked; 2]);
}

/// While the mark of a run is being written, what the handler does waits.
#[test]
fn a_run_that_ends_while_its_mark_is_written_is_acked_after_it() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    harness.ok("a");
    let run = harness.next_run("a");
    harness.hold = true;
    harness.pass(1_100);
    assert_eq!(harness.held.len(), 1);
    harness.finish("a", &run, Ok(vec![out("u", "1")]));
    harness.release_commits();
    harness.pass(10);
    assert_eq!((harness.endings(), harness.payloads("u")), (vec![Ending::Acked; 2], vec!["1".to_owned()]));
}

/// The lease of a slow handler expires while its session lives: that costs an attempt, but is no reason to run the
/// event alone.
#[test]
fn a_slow_handler_is_not_suspected() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "slow"));
    harness.next_run("a");
    let wide = WorkerConfig { handler_concurrency: 2, ..config() };
    harness.join("b", wide, vec![handler("m:h", "t")], Vec::new());
    harness.pass(30_500);
    assert_eq!(harness.next_run("b").attempt, 2);
    assert!(
        harness.claims().iter().all(|claim| claim.suspicion == Suspicion::None),
        "{:?}",
        harness.claims()
    );
    harness.publish(out("t", "next"));
    assert_eq!(payload(&harness.next_run("b")), "next", "beside it");
}

/// A harness whose worker `b` has taken over the events that `a` ran when it died.
fn taken_over(started: usize) -> Harness {
    let mut harness = Harness::new();
    for n in 0..started {
        harness.publish(out("t", &n.to_string()));
    }
    harness.join(
        "a",
        WorkerConfig { handler_concurrency: 4, ..config() },
        vec![handler("m:h", "t")],
        Vec::new(),
    );
    assert_eq!(harness.waiting_runs("a"), started);
    harness.crash("a");
    harness.pass(30_000);
    harness.join("b", WorkerConfig { handler_concurrency: 4, ..config() }, both(), Vec::new());
    harness
}

#[test]
fn suspects_run_one_at_a_time_and_nothing_starts_beside_them() {
    let mut harness = taken_over(3);
    assert_eq!(harness.waiting_runs("b"), 1);
    let first = harness.next_run("b");
    assert_eq!(first.attempt, 1, "what was only claimed to start costs no attempt");
    harness.publish(out("u", "fresh"));
    assert_eq!(harness.waiting_runs("b"), 0, "it has the session to itself");
    harness.hold = true;
    harness.finish("b", &first, Ok(Vec::new()));
    assert_eq!(harness.waiting_runs("b"), 0, "not before its ending is durable");
    harness.release_commits();
    assert_eq!(payload(&harness.next_run("b")), "1", "the next suspect");
    // After a while, others run beside a suspect that takes long, but no other suspect does.
    harness.pass(999);
    assert_eq!(harness.waiting_runs("b"), 0);
    harness.pass(10);
    assert_eq!((harness.waiting_runs("b"), payload(&harness.next_run("b"))), (1, "fresh"));
    harness.pass(5_000);
    assert_eq!(harness.waiting_runs("b"), 0);
}

#[test]
fn a_suspect_waits_for_young_runs_but_not_for_one_that_hangs() {
    let mut harness = taken_over(1);
    harness.next_run("b");
    harness.crash("b");
    harness.publish(out("u", "hangs"));
    harness.pass(29_000);
    harness.join("c", WorkerConfig { handler_concurrency: 4, ..config() }, both(), Vec::new());
    let hangs = harness.next_run("c");
    assert_eq!(payload(&hangs), "hangs");
    harness.pass(950);
    harness.publish(out("u", "young"));
    let young = harness.next_run("c");
    harness.pass(100);
    assert_eq!(harness.waiting_runs("c"), 0, "the suspect is claimed and waits");
    harness.pass(1_000);
    let suspect = harness.next_run("c");
    assert_eq!((payload(&suspect), suspect.attempt), ("0", 2));
    for run in [suspect, young, hangs] {
        harness.finish("c", &run, Ok(Vec::new()));
        harness.pass(10);
    }
    assert_eq!(harness.endings(), [Ending::Acked; 3]);
}

#[test]
fn a_suspect_that_fails_is_one_no_longer() {
    let mut harness = taken_over(1);
    harness.fail("b");
    let claims = harness.claims();
    assert_eq!((claims[0].suspicion, claims[0].attempts), (Suspicion::None, 1));
}

#[test]
fn a_suspect_whose_mark_is_on_its_way_is_given_back_when_the_session_stops() {
    let mut harness = taken_over(1);
    harness.next_run("b");
    harness.crash("b");
    harness.pass(30_000);
    harness.hold = true;
    harness.join("c", config(), both(), Vec::new());
    for _ in 0..100 {
        if harness.claims()[0].attempts == 1 {
            break;
        }
        harness.step();
    }
    assert_eq!((harness.held.len(), harness.waiting_runs("c")), (1, 0), "the mark");
    harness.input("c", Input::Stop);
    harness.release_commits();
    assert_eq!((harness.waiting_runs("c"), harness.stopped.as_slice()), (0, ["c"].as_slice()));
    let claims = harness.claims();
    assert_eq!((claims[0].state, claims[0].attempts), (ClaimState::Waiting, 1));
    assert_eq!((claims[0].run, claims[0].suspicion), (RunMark::Unknown, Suspicion::Likely));
}

/// Rows from before there were marks: leases that ended under them cost no attempt, and no event loops for ever.
#[test]
fn rows_without_marks_cost_no_attempt() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.next_run("a");
    harness.crash("a");
    let (key, value) = harness.rows(Space::Claims).remove(0);
    let old = value.replace(r#""run":"claimed","#, "");
    assert_ne!(old, value);
    let ops = vec![Op::Put { space: Space::Claims, key, value: old.into_bytes().into() }];
    millrace_store::Store::commit(&harness.store, &[Batch { ops, ..Batch::default() }]).unwrap();
    harness.pass(30_000);
    // After a lease without a mark the suspicion is `Possible`; after one marked by its claim, `Likely`. From then on
    // the start of the run is durable before it runs.
    for attempt in [1, 1, 2] {
        harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
        assert_eq!(harness.next_run("b").attempt, attempt);
        harness.crash("b");
        harness.pass(30_000);
    }
}
