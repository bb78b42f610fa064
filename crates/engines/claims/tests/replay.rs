//! Replaying a dead letter: the handler that gave up gets the same event again, and no other handler notices.

mod desk;

use desk::*;
use millrace_claims::*;
use millrace_model::*;
use millrace_store::Store;

fn giving_up() -> WorkerConfig {
    WorkerConfig { event_max_attempts: 1, ..config() }
}

/// An event that `m:good` has acknowledged and `m:charge` has given up.
fn given_up() -> (Desk, EventId) {
    let mut desk = Desk::new();
    desk.join("a", giving_up(), vec![handler("m:charge", "t"), handler("m:good", "t")], Vec::new());
    let id = desk.publish(out("t", "1"));
    for _ in 0..2 {
        let run = desk.take("a");
        let result = if run.handler == 0 { failed("no card") } else { Ok(Vec::new()) };
        desk.finish("a", &run, result);
    }
    desk.pass(10);
    assert_eq!(desk.endings(), [Ending::DeadLettered, Ending::Acked]);
    (desk, id)
}

fn replay(letter: &Letter, nonce: u64) -> Result<Batch, ReplayError> {
    letter.replay(&Namespace::default(), START, nonce)
}

#[test]
fn its_handler_gets_the_same_event_again_and_no_other_handler_does() {
    let (mut desk, id) = given_up();
    let events = desk.payloads("t").len();
    let batch = replay(&desk.letter(), 77).unwrap();
    desk.store.commit(&[batch]).unwrap();
    assert_eq!(desk.endings(), [Ending::Acked], "it is open for the other one");
    // The session is not told of the replay: it polls.
    desk.pass(giving_up().event_poll_interval_ms);
    let run = desk.ok("a");
    assert_eq!((run.handler, &run.event.id, run.attempt), (0, &id, 1));
    desk.pass(60_000);
    assert_eq!((desk.waiting("a"), desk.payloads("t").len()), (0, events));
    assert_eq!(desk.endings(), [Ending::Acked; 2]);
    assert!(desk.rows(Space::DeadLetters).is_empty() && desk.claims().is_empty());
}

#[test]
fn of_two_replays_at_once_one_is_refused() {
    let (mut desk, _) = given_up();
    let letter = desk.letter();
    let both = [replay(&letter, 77).unwrap(), replay(&letter, 78).unwrap()];
    let outcomes = desk.store.commit(&both).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Done(_), Outcome::Refused(_)]), "{outcomes:?}");
    desk.news();
    desk.ok("a");
    desk.pass(60_000);
    assert_eq!(desk.waiting("a"), 0);
}

#[test]
fn a_second_failure_makes_a_second_letter_that_is_told_of() {
    let (mut desk, _) = given_up();
    desk.store.commit(&[replay(&desk.letter(), 77).unwrap()]).unwrap();
    desk.news();
    desk.fail("a");
    desk.pass(10);
    assert_eq!(desk.rows(Space::DeadLetters).len(), 1);
    assert_eq!(desk.events("event.dead_letter").len(), 2);
    desk.store.commit(&[replay(&desk.letter(), 78).unwrap()]).unwrap();
    desk.news();
    desk.ok("a");
    desk.pass(10);
    assert_eq!(desk.endings(), [Ending::Acked; 2]);
}

/// Events that the handler committed before it gave up are not stored again, however late the replay comes.
#[test]
fn events_of_earlier_commits_are_not_stored_again() {
    let mut desk = Desk::new();
    let unhurried = WorkerConfig { alone: true, ..giving_up() };
    desk.join("a", unhurried, vec![handler("m:charge", "t")], Vec::new());
    desk.publish(out("t", "1"));
    let steps = || StateChanges { event: Some(out("u", "paid")), ..ensure("x", r#"{"a":1}"#) };
    let run = desk.take("a");
    desk.commit_run("a", &run, steps()).unwrap();
    desk.finish("a", &run, failed("after the commit"));
    desk.pass(48 * 3_600_000);
    desk.store.commit(&[letter_at(&desk, 77)]).unwrap();
    desk.news();
    let run = desk.take("a");
    desk.commit_run("a", &run, steps()).unwrap();
    desk.finish("a", &run, Ok(Vec::new()));
    desk.pass(10);
    assert_eq!((desk.payloads("u").len(), desk.endings()), (1, vec![Ending::Acked]));
}

fn letter_at(desk: &Desk, nonce: u64) -> Batch {
    desk.letter().replay(&Namespace::default(), desk.now.wall, nonce).expect("a letter that can be replayed")
}

/// A session that held the event before the dead letter cannot end the reopened claim.
#[test]
fn tickets_from_before_are_worth_nothing() {
    let mut desk = Desk::new();
    desk.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    desk.publish(out("t", "1"));
    let late = desk.take("a");
    desk.join("b", giving_up(), vec![handler("m:h", "t")], Vec::new());
    desk.pass(30_500);
    desk.pass(10);
    assert_eq!(desk.endings(), [Ending::DeadLettered], "one attempt is allowed there, and it was lost");
    desk.store.commit(&[letter_at(&desk, 77)]).unwrap();
    desk.news();
    desk.now.wall = desk.now.wall.saturating_sub(20_000);
    desk.finish("a", &late, Ok(vec![out("u", "late")]));
    desk.pass(10);
    assert!(desk.payloads("u").is_empty());
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let (desk, _) = given_up();
    let sound = desk.letter();
    let refused = |change: &dyn Fn(&mut Letter)| {
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
    let mut ended = desk.finished().remove(0);
    ended.ending = Ending::Acked;
    let finished = refused(&|letter| letter.finished = Some(ended.encode()));
    assert!(finished.contains("has finished event"), "{finished}");
}

/// The handler was forgotten between reading and the commit.
#[test]
fn a_replay_beside_a_forgotten_handler_is_refused() {
    let (desk, _) = given_up();
    let batch = replay(&desk.letter(), 77).unwrap();
    let charge = HandlerId::new("m:charge").unwrap();
    let key = keys::handler(&Namespace::default(), &charge);
    let ops = vec![Op::Delete { space: Space::Handlers, key }];
    desk.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    let outcome = desk.store.commit(&[batch]).unwrap().remove(0);
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    assert_eq!(desk.rows(Space::DeadLetters).len(), 1);
}

/// A sweep of retention that read the claims before the replay must not remove the event.
#[test]
fn retention_under_way_looks_again() {
    let (mut desk, _) = given_up();
    desk.pass(60_000);
    let mut sweep = Sweep::new(SweepRule {
        namespace: Namespace::default(),
        now: desk.now.wall,
        events_before: desk.now.wall,
        unfinished_too: false,
        own_retention: false,
        dead_letters_before: None,
        sessions_before: Timestamp(0),
        rows_max: 100,
    });
    let mut refusals = 0;
    loop {
        match sweep.step() {
            SweepStep::Look(look) => sweep.seen(desk.look(&look)),
            SweepStep::Commit(batch) => {
                if refusals == 0 {
                    desk.store.commit(&[letter_at(&desk, 77)]).unwrap();
                }
                if matches!(desk.store.commit(&[batch]).unwrap().remove(0), Outcome::Refused(_)) {
                    refusals += 1;
                    sweep.refused();
                }
            }
            SweepStep::Done(_) => break,
        }
    }
    assert_eq!((refusals, desk.payloads("t").len()), (1, 1));
}

/// A topic's own retention does not wait for handlers. The dead letter's copy must outlive the event while the replay
/// is open.
#[test]
fn a_replayed_event_that_the_log_loses_leaves_its_letter() {
    let (mut desk, id) = given_up();
    let letter = desk.letter();
    desk.store.commit(&[replay(&letter, 77).unwrap()]).unwrap();
    let trim = Op::Trim { stream: letter.stream.clone(), start: Offset(2) };
    desk.store.commit(&[Batch { ops: vec![trim], ..Batch::default() }]).unwrap();
    desk.pass(giving_up().event_poll_interval_ms);
    assert_eq!((desk.waiting("a"), desk.claims()), (0, vec![]));
    assert!(desk.endings().contains(&Ending::Lost), "{:?}", desk.endings());
    let kept = desk.letter();
    assert_eq!((&kept.key, &kept.row.event_id), (&letter.key, &id));
    assert!(matches!(replay(&kept, 78), Err(ReplayError::EventGone { .. })));
    let (copy, batch) = kept.publish_again(&Namespace::default(), &Topics::default(), START, 79).unwrap();
    desk.store.commit(&[batch]).unwrap();
    desk.news();
    assert_eq!(desk.ok("a").event.id, copy);
    assert!(desk.rows(Space::DeadLetters).is_empty());
}

#[test]
fn a_letter_goes_with_the_end_of_its_replay_however_it_ends() {
    for result in [Ok(Vec::new()), Err(RunError::Discard { reason: "enough".into() }), failed("again")] {
        let (mut desk, _) = given_up();
        let first = desk.letter().key;
        desk.store.commit(&[replay(&desk.letter(), 77).unwrap()]).unwrap();
        let letters =
            |desk: &Desk| desk.rows(Space::DeadLetters).into_iter().map(|row| row.0).collect::<Vec<_>>();
        assert_eq!(letters(&desk), std::slice::from_ref(&first), "it stays while the claim is open");
        desk.news();
        desk.pass(5);
        let run = desk.take("a");
        let fails = matches!(result, Err(RunError::Failed(_)));
        desk.finish("a", &run, result);
        desk.pass(10);
        let left = letters(&desk);
        assert_eq!(left.len(), usize::from(fails));
        assert!(!left.contains(&first));
    }
}
