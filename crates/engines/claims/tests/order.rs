//! Order of keys: events of one key run one at a time and in the order of the log, across workers, crashes and
//! failures.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;
use millrace_store::Store;

fn ordered() -> HandlerSpec {
    let settings = HandlerSettings { order: Some(HandlerOrder::Key), ..HandlerSettings::default() };
    HandlerSpec { settings, ..handler("m:h", "t") }
}

fn wide() -> WorkerConfig {
    WorkerConfig { handler_concurrency: 8, event_claim_lease_ms: 4000, ..config() }
}

fn keyed(key: &str, payload: &str) -> OutEvent {
    OutEvent { key: Some(key.to_owned()), ..out("t", payload) }
}

fn payload(run: &HandlerRun) -> String {
    run.event.body.payload.as_str().trim_matches('"').to_owned()
}

/// A worker with room for eight runs, and these events: the key of each is its first letter.
fn harness(texts: &[&str]) -> Harness {
    let mut harness = Harness::new();
    harness.join("a", wide(), vec![ordered()], Vec::new());
    texts.iter().for_each(|text| drop(harness.publish(keyed(&text[..1], text))));
    harness
}

fn running(harness: &Harness, who: &'static str) -> Vec<String> {
    harness.runs[who].iter().map(payload).collect()
}

fn next_run_of(harness: &mut Harness, who: &'static str, text: &str) -> HandlerRun {
    let at = harness.runs[who].iter().position(|run| payload(run) == text);
    let at = at.unwrap_or_else(|| panic!("{text} is not among {:?}", running(harness, who)));
    harness.runs.get_mut(who).and_then(|runs| runs.remove(at)).expect("a run")
}

fn finish_run(harness: &mut Harness, who: &'static str, text: &str, result: Result<Vec<OutEvent>, RunError>) {
    let run = next_run_of(harness, who, text);
    harness.finish(who, &run, result);
}

#[test]
fn the_next_of_a_key_starts_with_the_commit_that_ends_the_one_before() {
    let mut harness = harness(&["a1", "a2", "b1", "a3"]);
    assert_eq!(running(&harness, "a"), ["a1", "b1"]);
    let before = harness.commits;
    finish_run(&mut harness, "a", "a1", Ok(Vec::new()));
    assert_eq!((running(&harness, "a"), harness.commits), (vec!["b1".into(), "a2".into()], before + 1));
    assert_eq!(harness.now.mono, Mono(1), "nobody had to wait");
    finish_run(&mut harness, "a", "a2", Ok(Vec::new()));
    assert_eq!(running(&harness, "a"), ["b1", "a3"]);
}

#[test]
fn the_next_of_a_key_does_not_wait_for_what_a_handler_does_after_its_last_commit() {
    let mut harness = harness(&["a1", "a2"]);
    let run = harness.next_run("a");
    harness.input("a", Input::CommitAndAck { run: run.run, commit: ensure("a", "{}"), emitted: Vec::new() });
    assert_eq!(running(&harness, "a"), ["a2"]);
}

#[test]
fn what_ends_an_event_lets_the_next_go_on_and_what_does_not_holds_it_back() {
    let mut harness = harness(&["a1", "b1", "c1", "d1", "e1", "f1", "a2", "b2", "c2", "d2", "e2", "f2"]);
    let run = next_run_of(&mut harness, "a", "e1");
    harness.input("a", Input::CommitAndAck { run: run.run, commit: ensure("e", "{}"), emitted: Vec::new() });
    harness.finish("a", &run, Ok(Vec::new()));
    finish_run(&mut harness, "a", "a1", failed("no luck"));
    finish_run(&mut harness, "a", "b1", Err(RunError::Snooze { after_ms: 60_000, reason: "later".into() }));
    finish_run(&mut harness, "a", "c1", Err(RunError::Hopeless("never".into())));
    finish_run(&mut harness, "a", "d1", Err(RunError::Discard { reason: "not wanted".into() }));
    harness.pass(10);
    let mut now = running(&harness, "a");
    now.sort_unstable();
    assert_eq!(now, ["c2", "d2", "e2", "f1"]);
    harness.pass(1000);
    finish_run(&mut harness, "a", "a1", Ok(Vec::new()));
    assert!(running(&harness, "a").contains(&"a2".to_owned()));
    harness.pass_working(58_000);
    assert_eq!((harness.endings().len(), harness.claims().len()), (10, 2), "all but b1 and b2");
    harness.pass(1100);
    assert_eq!(running(&harness, "a"), ["b1"]);
}

#[test]
fn a_second_session_gets_other_keys_and_takes_over_only_what_was_lost() {
    let mut harness = harness(&["a1", "a2", "b1"]);
    harness.join("b", wide(), vec![ordered()], Vec::new());
    harness.publish(keyed("a", "a3"));
    harness.publish(keyed("c", "c1"));
    // Which of the two workers got an event depends on which was told first.
    assert_eq!(running(&harness, "a").len() + running(&harness, "b").len(), 3);
    harness.pass(1000);
    harness.crash("a");
    harness.pass(2900);
    assert!(!running(&harness, "b").iter().any(|text| text.starts_with('a')), "its lease has not run out");
    harness.pass(1200);
    let lost: Vec<String> = running(&harness, "b").into_iter().filter(|text| text.starts_with('a')).collect();
    assert_eq!(lost, ["a1"], "the first of them, and no other");
    for text in ["a1", "a2", "a3"] {
        finish_run(&mut harness, "b", text, Ok(Vec::new()));
        harness.pass(1100);
    }
    harness.pass_working(5000);
    assert_eq!((harness.endings(), harness.claims()), (vec![Ending::Acked; 5], vec![]));
}

#[test]
fn a_session_that_stops_leaves_its_keys_to_others() {
    let mut harness = harness(&["a1", "a2", "a3"]);
    let run = harness.next_run("a");
    harness.join("b", wide(), vec![ordered()], Vec::new());
    harness.input("a", Input::Stop);
    harness.finish("a", &run, Ok(Vec::new()));
    assert_eq!((harness.stopped.clone(), running(&harness, "b")), (vec!["a"], vec![]));
    // The worker is not told of an end in another session: it polls.
    harness.pass(1000);
    assert_eq!(running(&harness, "b"), ["a2"]);
}

#[test]
fn an_event_that_ends_its_process_holds_back_its_key_until_it_is_a_letter() {
    let mut harness = Harness::new();
    for n in 0..6 {
        harness.publish(keyed("p", if n == 0 { "poison" } else { "p" }));
        harness.publish(keyed("q", "q"));
    }
    let mut crashes = 0;
    harness.join("a", wide(), vec![ordered()], Vec::new());
    for _ in 0..2000 {
        match harness.runs["a"].iter().find(|run| payload(run) != "q").map(payload).as_deref() {
            Some("poison") => {
                crashes += 1;
                harness.crash("a");
                harness.join("a", wide(), vec![ordered()], Vec::new());
            }
            Some(_) => break,
            None if harness.waiting_runs("a") > 0 => drop(harness.ok("a")),
            None => harness.pass(100),
        }
    }
    assert!((10..=12).contains(&crashes), "{crashes} crashes");
    assert_eq!(harness.rows(Space::DeadLetters).len(), 1);
    harness.pass_working(60_000);
    assert_eq!((harness.endings().len(), harness.claims()), (12, vec![]));
    let attempts =
        harness.finished().iter().filter(|row| row.ending == Ending::Acked).map(|row| row.attempts).max();
    assert!(attempts <= Some(1), "a neighbour lost {attempts:?} attempts");
}

#[test]
fn a_replayed_letter_is_the_next_of_its_key() {
    let mut harness = harness(&["a1", "a2", "a3"]);
    finish_run(&mut harness, "a", "a1", Err(RunError::Hopeless("never".into())));
    assert_eq!(running(&harness, "a"), ["a2"]);
    let batch = harness.letter().replay(&Namespace::default(), harness.now.wall, 77).unwrap();
    harness.store.commit(&[batch]).unwrap();
    harness.news();
    harness.pass(5);
    assert_eq!(running(&harness, "a"), ["a2"], "one at a time");
    for text in ["a2", "a1", "a3"] {
        assert_eq!(running(&harness, "a"), [text]);
        finish_run(&mut harness, "a", text, Ok(Vec::new()));
    }
}

#[test]
fn configuration_switches_the_order_of_a_handler_with_open_claims() {
    let mut harness = Harness::new();
    ["a1", "a2", "a3", "a4"].iter().for_each(|text| drop(harness.publish(keyed("a", text))));
    let free = HandlerSettings { order: Some(HandlerOrder::Priority), ..HandlerSettings::default() };
    let config = WorkerConfig {
        handlers: [("m:h".to_owned(), free)].into(),
        handler_concurrency: 2,
        event_claim_limit: 2,
        ..wide()
    };
    harness.join("a", config, vec![ordered()], Vec::new());
    assert_eq!(running(&harness, "a"), ["a1", "a2"], "the configuration wins");
    // A newer program beside it keeps the order, and waits for the events that are running.
    harness.join("b", wide(), vec![ordered()], Vec::new());
    harness.crash("a");
    harness.pass(3900);
    assert_eq!(harness.waiting_runs("b"), 0);
    harness.pass(1200);
    for text in ["a1", "a2", "a3", "a4"] {
        assert_eq!(running(&harness, "b"), [text]);
        finish_run(&mut harness, "b", text, Ok(Vec::new()));
        harness.pass(1100);
    }
}

#[test]
fn waiting_behind_a_key_keeps_nobody_awake() {
    let mut harness = harness(&["a1", "a2", "b1", "b2"]);
    harness.join("b", wide(), vec![ordered()], Vec::new());
    let (run, before) = (next_run_of(&mut harness, "a", "b1"), harness.commits);
    harness.finish("a", &run, Err(RunError::RetryAfter { after_ms: 50_000, error: "busy".into() }));
    harness.pass(3000);
    // The commits are polls of two sessions, heartbeats, and the mark of the run.
    assert!(harness.commits - before < 12, "{} commits", harness.commits - before);
}

#[test]
fn handlers_without_order_write_no_keys() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(keyed("a", "a1"));
    harness.publish(keyed("a", "a2"));
    let rows = harness.rows(Space::Claims);
    assert!(rows.len() == 2 && rows.iter().all(|(_, row)| !row.contains("order_key")), "{rows:?}");
}

/// Random endings, crashes and new events at three workers: whenever a run begins, all earlier events of its key have
/// ended.
#[test]
fn any_history_keeps_the_order_of_keys() {
    for seed in 0..25u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut harness = Harness::new();
        let config = WorkerConfig {
            event_claim_limit: 1 + draw(12) as usize,
            handler_concurrency: 1 + draw(4) as usize,
            event_max_attempts: 3,
            ..wide()
        };
        let mut published = 0;
        for step in 0..400 {
            let who = ["a", "b", "c"][draw(3) as usize];
            match draw(10) {
                0..=2 if published < 120 => {
                    let key = ["k", "l", "m", "n"][draw(4) as usize];
                    let priority = Priority([100, 100, 7, 900][draw(4) as usize]);
                    harness.publish(OutEvent { priority, ..keyed(key, &published.to_string()) });
                    published += 1;
                }
                3 if draw(6) == 0 => harness.crash(who),
                4 => harness.pass(draw(1500)),
                _ if !harness.workers.contains_key(who) => {
                    harness.join(who, config.clone(), vec![ordered()], Vec::new());
                }
                _ if harness.waiting_runs(who) > 0 => {
                    let run = harness.next_run(who);
                    let result = match draw(8) {
                        0..=1 => failed("no luck"),
                        2 => Err(RunError::Snooze { after_ms: draw(3000), reason: "later".into() }),
                        3 => Err(RunError::Discard { reason: "no".into() }),
                        _ => Ok(Vec::new()),
                    };
                    harness.finish(who, &run, result);
                }
                _ => {}
            }
            in_order(&harness, seed, step);
        }
        for who in ["a", "b", "c"] {
            harness.crash(who);
        }
        harness.join("a", config, vec![ordered()], Vec::new());
        harness.pass_working(400_000);
        assert_eq!(harness.endings().len(), published, "seed {seed}: {:?}", harness.claims());
    }
}

/// Checks every run that is open at a worker.
fn in_order(harness: &Harness, seed: u64, step: usize) {
    let ended: Vec<String> = harness.rows(Space::Finished).into_iter().map(|(key, _)| key).collect();
    let events = harness.events("t");
    let id = ordered().id;
    let held: Vec<&HandlerRun> =
        harness.runs.values().flatten().filter(|run| run.lease_until > harness.now.wall).collect();
    for run in held {
        let earlier =
            events.iter().filter(|one| one.offset < run.event.offset && one.body.key == run.event.body.key);
        for one in earlier {
            let key = keys::finished(&one.stream, one.offset, &id);
            assert!(
                ended.contains(&key),
                "seed {seed}, step {step}: {} before {}",
                run.event.offset,
                one.offset
            );
        }
    }
}
