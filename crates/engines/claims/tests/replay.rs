//! Replaying a dead letter: the handler that gave up gets the same event again, and no other handler notices.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;
use millrace_store::Store;

fn giving_up() -> WorkerConfig {
    WorkerConfig { event_max_attempts: 1, ..config() }
}

/// An event that `m:good` has acknowledged and `m:charge` has given up.
fn given_up() -> (Harness, EventId) {
    let mut harness = Harness::new();
    harness.join("a", giving_up(), vec![handler("m:charge", "t"), handler("m:good", "t")], Vec::new());
    let id = harness.publish(out("t", "1"));
    for _ in 0..2 {
        let run = harness.next_run("a");
        let result = if run.handler == 0 { failed("no card") } else { Ok(Vec::new()) };
        harness.finish("a", &run, result);
    }
    harness.pass(10);
    assert_eq!(harness.endings(), [Ending::DeadLettered, Ending::Acked]);
    (harness, id)
}

fn replay(letter: &DeadLetter, nonce: u64) -> Result<Batch, ReplayError> {
    letter.replay(&Namespace::default(), START, nonce)
}

#[test]
fn its_handler_gets_the_same_event_again_and_no_other_handler_does() {
    let (mut harness, id) = given_up();
    let events = harness.payloads("t").len();
    let batch = replay(&harness.letter(), 77).unwrap();
    harness.store.commit(&[batch]).unwrap();
    assert_eq!(harness.endings(), [Ending::Acked], "it is open for the other one");
    // The session is not told of the replay: it polls.
    harness.pass(giving_up().event_poll_interval_ms);
    let run = harness.ok("a");
    assert_eq!((run.handler, &run.event.id, run.attempt), (0, &id, 1));
    harness.pass(60_000);
    assert_eq!((harness.waiting_runs("a"), harness.payloads("t").len()), (0, events));
    assert_eq!(harness.endings(), [Ending::Acked; 2]);
    assert!(harness.rows(Space::DeadLetters).is_empty() && harness.claims().is_empty());
}

#[test]
fn of_two_replays_at_once_one_is_refused() {
    let (mut harness, _) = given_up();
    let letter = harness.letter();
    let both = [replay(&letter, 77).unwrap(), replay(&letter, 78).unwrap()];
    let outcomes = harness.store.commit(&both).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Done(_), Outcome::Refused(_)]), "{outcomes:?}");
    harness.news();
    harness.ok("a");
    harness.pass(60_000);
    assert_eq!(harness.waiting_runs("a"), 0);
}

#[test]
fn a_second_failure_makes_a_second_letter_that_is_told_of() {
    let (mut harness, _) = given_up();
    harness.store.commit(&[replay(&harness.letter(), 77).unwrap()]).unwrap();
    harness.news();
    harness.fail("a");
    harness.pass(10);
    assert_eq!(harness.rows(Space::DeadLetters).len(), 1);
    assert_eq!(harness.events("event.dead_letter").len(), 2);
    harness.store.commit(&[replay(&harness.letter(), 78).unwrap()]).unwrap();
    harness.news();
    harness.ok("a");
    harness.pass(10);
    assert_eq!(harness.endings(), [Ending::Acked; 2]);
}

/// Events that the handler committed before it gave up are not stored again, however late the replay comes.
#[test]
fn events_of_earlier_commits_are_not_stored_again() {
    let mut harness = Harness::new();
    let unhurried = WorkerConfig { alone: true, ..giving_up() };
    harness.join("a", unhurried, vec![handler("m:charge", "t")], Vec::new());
    harness.publish(out("t", "1"));
    let steps = || StateChanges { event: Some(out("u", "paid")), ..ensure("x", r#"{"a":1}"#) };
    let run = harness.next_run("a");
    harness.commit_run("a", &run, steps()).unwrap();
    harness.finish("a", &run, failed("after the commit"));
    harness.pass(48 * 3_600_000);
    harness.store.commit(&[letter_at(&harness, 77)]).unwrap();
    harness.news();
    let run = harness.next_run("a");
    harness.commit_run("a", &run, steps()).unwrap();
    harness.finish("a", &run, Ok(Vec::new()));
    harness.pass(10);
    assert_eq!((harness.payloads("u").len(), harness.endings()), (1, vec![Ending::Acked]));
}

fn letter_at(harness: &Harness, nonce: u64) -> Batch {
    harness
        .letter()
        .replay(&Namespace::default(), harness.now.wall, nonce)
        .expect("a letter that can be replayed")
}

/// A session that held the event before the dead letter cannot end the reopened claim.
#[test]
fn tickets_from_before_are_worth_nothing() {
    let mut harness = Harness::new();
    harness.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    let late = harness.next_run("a");
    harness.join("b", giving_up(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(30_500);
    harness.pass(10);
    assert_eq!(harness.endings(), [Ending::DeadLettered], "one attempt is allowed there, and it was lost");
    harness.store.commit(&[letter_at(&harness, 77)]).unwrap();
    harness.news();
    harness.now.wall = harness.now.wall.saturating_sub(20_000);
    harness.finish("a", &late, Ok(vec![out("u", "late")]));
    harness.pass(10);
    assert!(harness.payloads("u").is_empty());
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let (harness, _) = given_up();
    let sound = harness.letter();
    let refused = |change: &dyn Fn(&mut DeadLetter)| {
        let mut letter = sound.clone();
        change(&mut letter);
        replay(&letter, 77).unwrap_err().to_string()
    };
    let gone = refused(&|letter| letter.event = None);
    assert!(gone.contains("not in the log any more") && gone.contains("--publish-again"), "{gone}");
    let no_copy = refused(&|letter| (letter.event, letter.row.payload) = (None, None));
    assert!(no_copy.contains("too large") && no_copy.contains("delete the letter"), "{no_copy}");
    let unknown = refused(&|letter| letter.handler = None);
    assert!(unknown.contains("m:charge is not known"), "{unknown}");
    let other = HandlerRow { topic: "elsewhere".into(), registered: START, paused: false }.encode();
    let moved = refused(&|letter| letter.handler = Some(other.clone()));
    assert!(moved.contains("takes elsewhere now"), "{moved}");
    let open = refused(&|letter| letter.is_open = true);
    assert!(open.contains("already"), "{open}");
    let mut ended = harness.finished().remove(0);
    ended.ending = Ending::Acked;
    let finished = refused(&|letter| letter.finished = Some(ended.encode()));
    assert!(finished.contains("has finished event"), "{finished}");
}

/// The handler was forgotten between reading and the commit.
#[test]
fn a_replay_beside_a_forgotten_handler_is_refused() {
    let (harness, _) = given_up();
    let batch = replay(&harness.letter(), 77).unwrap();
    let charge = HandlerId::new("m:charge").unwrap();
    let key = keys::handler(&Namespace::default(), &charge);
    let ops = vec![Op::Delete { space: Space::Handlers, key }];
    harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    let outcome = harness.store.commit(&[batch]).unwrap().remove(0);
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    assert_eq!(harness.rows(Space::DeadLetters).len(), 1);
}

/// A sweep of retention that read the claims before the replay must not remove the event.
#[test]
fn retention_under_way_looks_again() {
    let (mut harness, _) = given_up();
    harness.pass(60_000);
    let mut sweep = Sweep::new(SweepRule {
        namespace: Namespace::default(),
        now: harness.now.wall,
        events_before: harness.now.wall,
        unfinished_too: false,
        own_retention: false,
        dead_letters_before: None,
        sessions_before: Timestamp(0),
        rows_max: 100,
    });
    let mut refusals = 0;
    loop {
        match sweep.step() {
            SweepStep::Read(query) => sweep.on_read(harness.read(&query)),
            SweepStep::Commit(batch) => {
                if refusals == 0 {
                    harness.store.commit(&[letter_at(&harness, 77)]).unwrap();
                }
                if matches!(harness.store.commit(&[batch]).unwrap().remove(0), Outcome::Refused(_)) {
                    refusals += 1;
                    sweep.refused();
                }
            }
            SweepStep::Done(_) => break,
        }
    }
    assert_eq!((refusals, harness.payloads("t").len()), (1, 1));
}

/// A topic's own retention does not wait for handlers. The dead letter's copy must outlive the event while the replay
/// is open.
#[test]
fn a_replayed_event_that_the_log_loses_leaves_its_letter() {
    let (mut harness, id) = given_up();
    let letter = harness.letter();
    harness.store.commit(&[replay(&letter, 77).unwrap()]).unwrap();
    let trim = Op::Trim { stream: letter.stream.clone(), start: Offset(2) };
    harness.store.commit(&[Batch { ops: vec![trim], ..Batch::default() }]).unwrap();
    harness.pass(giving_up().event_poll_interval_ms);
    assert_eq!((harness.waiting_runs("a"), harness.claims()), (0, vec![]));
    assert!(harness.endings().contains(&Ending::Lost), "{:?}", harness.endings());
    let kept = harness.letter();
    assert_eq!((&kept.key, &kept.row.event_id), (&letter.key, &id));
    assert!(matches!(replay(&kept, 78), Err(ReplayError::EventGone { .. })));
    let (copy, batch) = kept.publish_again(&Namespace::default(), &Topics::default(), START, 79).unwrap();
    harness.store.commit(&[batch]).unwrap();
    harness.news();
    assert_eq!(harness.ok("a").event.id, copy);
    assert!(harness.rows(Space::DeadLetters).is_empty());
}

#[test]
fn a_letter_goes_with_the_end_of_its_replay_however_it_ends() {
    for result in [Ok(Vec::new()), Err(RunError::Discard { reason: "enough".into() }), failed("again")] {
        let (mut harness, _) = given_up();
        let first = harness.letter().key;
        harness.store.commit(&[replay(&harness.letter(), 77).unwrap()]).unwrap();
        let letters = |harness: &Harness| {
            harness.rows(Space::DeadLetters).into_iter().map(|row| row.0).collect::<Vec<_>>()
        };
        assert_eq!(letters(&harness), std::slice::from_ref(&first), "it stays while the claim is open");
        harness.news();
        harness.pass(5);
        let run = harness.next_run("a");
        let fails = matches!(result, Err(RunError::Failed(_)));
        harness.finish("a", &run, result);
        harness.pass(10);
        let left = letters(&harness);
        assert_eq!(left.len(), usize::from(fails));
        assert!(!left.contains(&first));
    }
}
