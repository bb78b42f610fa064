//! Sizes: whatever events, schedules and settings are like, every batch fits into a store, and a too large one is
//! reported. The harness checks the size of every batch.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;
use millrace_store::Store;

/// Every character doubles when it is put into JSON as text, and again each further time.
fn quotes(bytes: usize) -> String {
    JsonText::from_value(&"\"".repeat(bytes / 2)).expect("a sound text").as_str().to_owned()
}

fn letters(harness: &Harness) -> Vec<DeadLetterRow> {
    let rows = harness.rows(Space::DeadLetters);
    rows.iter().map(|(key, value)| DeadLetterRow::decode(key, value.as_bytes()).expect("a letter")).collect()
}

#[test]
fn an_event_full_of_quotes_is_given_up_with_all_of_it() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    let payload = quotes(9_800_000);
    let headers = [("q".to_owned(), "\"".repeat(500_000))].into();
    let large = OutEvent { headers: Some(headers), key: Some("k".into()), ..out("t", &payload) };
    harness.publish(large.clone());
    harness.publish(out("t", "2"));
    let run = harness.next_run("a");
    harness.finish("a", &run, Err(RunError::Hopeless("\0".repeat(5000))));
    assert_eq!(harness.ok("a").event.body.payload.as_str(), "2", "others go on");
    assert_eq!(harness.endings(), [Ending::DeadLettered, Ending::Acked]);
    let letter = letters(&harness).remove(0);
    assert!(letter.payload.as_deref() == Some(payload.as_str()), "the payload as it was");
    assert!(letter.headers.as_deref() == Some(run.event.body.headers.as_ref().unwrap().json().as_str()));
    assert_eq!((letter.key.as_deref(), letter.error.len()), (Some("k"), 4096));
    let (namespace, topics) = (Namespace::default(), Topics::default());
    let copied = DeadLetter { event: None, ..harness.letter() };
    let (_, batch) = copied.publish_again(&namespace, &topics, harness.now.wall, 99).expect("a copy");
    let Op::Append(again) = &batch.ops[1] else { panic!("an append") };
    assert!(again.event.body.payload == large.payload);
}

#[test]
fn the_largest_event_there_may_be_is_given_up_with_all_of_it() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    let payload = format!("\"{}\"", "x".repeat(EVENT_BYTES_MAX - 98));
    harness.publish(out("t", &payload));
    let run = harness.next_run("a");
    harness.finish("a", &run, Err(RunError::Hopeless("\0".repeat(5000))));
    assert_eq!(harness.endings(), [Ending::DeadLettered]);
    let letter = letters(&harness).remove(0);
    assert!(letter.payload.as_deref() == Some(payload.as_str()));
    assert!(!letter.error.is_empty() && letter.error.len() < 4096, "shortened to make room");
    assert_eq!(harness.events(DEAD_LETTER_TOPIC).len(), 1);
}

#[test]
fn an_event_beyond_the_largest_is_refused_to_whoever_sends_it() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    let large = out("u", &"x".repeat(EVENT_BYTES_MAX - 97));
    let refused = Err(CommitError::TooLarge { bytes: EVENT_BYTES_MAX + 1, limit: EVENT_BYTES_MAX });
    let changes = StateChanges { event: Some(large.clone()), ..StateChanges::default() };
    let outside = imperative(
        &config(),
        &Namespace::default(),
        &Topics::default(),
        changes.clone(),
        (harness.now, &mut Elapsed::default()),
        1,
    );
    assert!(outside.map(drop) == refused.clone().map(|_: Option<StateCommit>| ()));
    assert!(harness.commit_run("a", &run, changes) == refused, "a handler may go on");
    harness.finish("a", &run, Ok(vec![large]));
    assert!(harness.claims()[0].error.as_deref().is_some_and(|error| error.contains("bytes")), "it failed");
}

/// Events of this size can no longer be sent, but older versions could send them.
#[test]
fn an_event_too_large_for_a_letter_is_pointed_at() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    let payload = format!("\"{}\"", "x".repeat(BATCH_BYTES_MAX - 300));
    let stream = key("t").stream(Partition(0));
    let body = EventBody { key: Some("k".into()), ..EventBody::of(JsonText::parse(&payload).unwrap()) };
    let event = NewEvent { id: None, body: body.into() };
    let append = Op::Append(Append { stream, event, dedupe_window_ms: 0 });
    harness
        .store
        .commit(&[Batch { nonce: 5, now: harness.now.wall, ops: vec![append], ..Batch::default() }])
        .unwrap();
    harness.publish(out("t", "2"));
    let run = harness.next_run("a");
    harness.finish("a", &run, Err(RunError::Hopeless("no use".into())));
    harness.ok("a");
    assert_eq!(harness.endings(), [Ending::DeadLettered, Ending::Acked]);
    let letter = letters(&harness).remove(0);
    assert!(letter.payload.is_none() && letter.key.is_none() && letter.headers.is_none());
    assert_eq!((letter.event_id, letter.partition, letter.offset), (run.event.id.clone(), 0, Offset(1)));
    assert_eq!(letter.error, "no use");
    let (namespace, topics, now) = (Namespace::default(), Topics::default(), harness.now.wall);
    let gone = DeadLetter { event: None, ..harness.letter() }.publish_again(&namespace, &topics, now, 9);
    assert!(matches!(gone, Err(ReplayError::NoCopy(_))), "{gone:?}");
    let (_, batch) = harness.letter().publish_again(&namespace, &topics, now, 9).unwrap();
    let Op::Append(again) = &batch.ops[1] else { panic!("an append") };
    assert!(again.event.body.payload.as_str() == payload && again.event.body.key.as_deref() == Some("k"));
}

#[test]
fn large_fires_that_were_missed_are_made_up_for_in_several_commits() {
    let schedule = |bytes: usize| ScheduleSpec {
        name: "large".into(),
        cron: "* * * * *".into(),
        zone: "UTC".into(),
        catch_up: CatchUp::All,
        jitter_ms: 0,
        event: out("tick", &"x".repeat(bytes)),
    };
    let mut harness = Harness::new();
    harness.join("a", config(), vec![handler("m:h", "other")], vec![schedule(130_000)]);
    harness.crash("a");
    harness.pass(100 * 60_000);
    harness.join("a", config(), vec![handler("m:h", "other")], vec![schedule(130_000)]);
    harness.pass(10_000);
    assert_eq!(harness.events("tick").len(), 100);
    harness.crash("a");
    harness.pass(3 * 60_000);
    harness.join("a", config(), Vec::new(), vec![schedule(EVENT_BYTES_MAX - 137)]);
    harness.pass(10_000);
    assert_eq!(harness.events("tick").len(), 103, "one by one");
    let large = vec![schedule(EVENT_BYTES_MAX)];
    let refused = Worker::new(config(), identity("b"), Vec::new(), large, 1);
    assert!(matches!(refused, Err(SpecError::EventTooLarge { .. })), "{refused:?}");
}

#[test]
fn a_large_act_leaves_no_room_for_claims_but_they_come() {
    let mut harness = Harness::new();
    let config = WorkerConfig { event_claim_limit: 2000, ..config() };
    harness.join("a", config, vec![handler("m:h", "t"), handler("m:i", "u")], Vec::new());
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.hold = true;
    harness.publish(out("u", "2"));
    let emitted = vec![out("v", &"x".repeat(EVENT_BYTES_MAX - 98)), out("v", &"x".repeat(62_000))];
    harness.finish("a", &run, Ok(emitted));
    harness.publish(out("u", "3"));
    harness.release_commits();
    harness.pass(10);
    assert_eq!(harness.events("v").len(), 2);
    assert_eq!(harness.ok("a").event.body.payload.as_str(), "2");
    assert_eq!(harness.ok("a").event.body.payload.as_str(), "3");
}

#[test]
fn claims_fit_however_many_events_may_be_in_hand() {
    let mut harness = Harness::new();
    let config = WorkerConfig { event_claim_limit: 1_000_000, ..config() };
    harness.publish(out("t", "1"));
    harness.publish(out("u", "2"));
    harness.join("a", config, vec![handler("m:h", "t"), handler("m:i", "u")], Vec::new());
    assert_eq!(harness.pass_working(100), 2);
}

#[test]
fn a_commit_fits_together_with_the_claim_it_moves_on() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    // The claim stores the error, which is six times as long in JSON.
    harness.finish("a", &run, failed(&"\0".repeat(4096)));
    harness.pass(1000);
    let run = harness.next_run("a");
    let commit = |fields: usize| StateChanges {
        event: Some(out("u", "1")),
        ..ensure("x", &format!(r#"{{"a":"{}"}}"#, "x".repeat(fields)))
    };
    let mut sizes = (0..100).map(|step| BATCH_BYTES_MAX / 2 - step * 250);
    let (mut refused, mut done) = (0, false);
    while let Some(size) = sizes.next().filter(|_| !done) {
        match harness.commit_run("a", &run, commit(size)) {
            Err(CommitError::TooLarge { .. }) => refused += 1,
            committed => done = committed.is_ok(),
        }
    }
    assert!(done && refused > 40, "{refused}");
    harness.finish("a", &run, Ok(Vec::new()));
    assert_eq!(harness.endings(), [Ending::Acked]);
}

#[test]
fn errors_are_bounded_whatever_the_setting() {
    let mut harness = Harness::new();
    let config = WorkerConfig { error_bytes_max: usize::MAX, event_max_attempts: 2, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    for _ in 0..2 {
        let run = harness.next_run("a");
        harness.finish("a", &run, failed(&"\0".repeat(13 << 20)));
        harness.pass(2000);
    }
    assert_eq!(harness.endings(), [Ending::DeadLettered]);
    assert_eq!(letters(&harness)[0].error.len(), ERROR_BYTES_LIMIT);
}

#[test]
fn what_a_session_says_of_itself_is_bounded() {
    let mut identity = identity("a");
    identity.metadata.insert("notes".into(), "\"".repeat(BATCH_BYTES_MAX / 2));
    let refused = Worker::new(config(), identity, Vec::new(), Vec::new(), 1);
    assert!(matches!(refused, Err(SpecError::MetadataTooLarge { .. })), "{refused:?}");
}

fn appends_to_u(batch: &Batch) -> bool {
    batch.ops.iter().any(|op| matches!(op, Op::Append(append) if append.stream.topic == key("u")))
}

/// A store with a lower limit refuses a batch, nothing of which is written: those concerned are told.
#[test]
fn what_a_store_finds_too_large_harms_nobody_else() {
    let mut harness = Harness::new();
    let config = WorkerConfig { handler_concurrency: 2, event_max_attempts: 2, ..config() };
    harness.join("a", config, vec![handler("m:h", "t"), handler("m:i", "t")], Vec::new());
    harness.publish(out("t", "1"));
    let (run, other) = (harness.next_run("a"), harness.next_run("a"));
    harness.narrow = appends_to_u;
    let changes = StateChanges { event: Some(out("u", "1")), ..StateChanges::default() };
    let refused = harness.commit_run("a", &run, changes);
    assert!(matches!(refused, Err(CommitError::TooLarge { limit: 7, .. })), "{refused:?}");
    // Both acknowledgements are in one shared commit, with whatever else there is.
    harness.finish("a", &run, Ok(vec![out("u", "2")]));
    harness.finish("a", &other, Ok(Vec::new()));
    harness.publish(out("t", "2"));
    harness.pass(10);
    assert_eq!(harness.endings(), [Ending::Acked], "the other one's");
    assert!(matches!(&harness.notes[0], Note::TooLarge { what, .. } if what.contains("acknowledgement")));
    assert_eq!(harness.pass_working(10), 2, "the next event");
    // The first lease that expired was marked only by its claim; from then on each costs an attempt.
    for attempt in [1, 2] {
        harness.pass(31_000);
        let again = harness.next_run("a");
        assert_eq!((again.event.offset, again.attempt), (Offset(1), attempt));
        harness.finish("a", &again, Ok(vec![out("u", "2")]));
    }
    harness.pass(31_000);
    assert!(harness.endings().contains(&Ending::DeadLettered) && harness.stopped.is_empty());
    assert!(harness.claims().is_empty());
}

#[test]
fn claims_a_store_finds_too_large_become_fewer() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.pass(2000);
    harness.narrow = |batch| batch.bytes() > 5000;
    for n in 0..50 {
        harness.publish(out("t", &n.to_string()));
    }
    assert_eq!(harness.pass_working(60_000), 50);
    assert!(harness.notes.iter().any(|note| matches!(note, Note::TooLarge { .. })), "{:?}", harness.notes);
}

#[test]
fn a_fire_or_a_sweep_a_store_finds_too_large_is_told_and_the_rest_goes_on() {
    let mut harness = Harness::new();
    let config =
        WorkerConfig { retention_interval_ms: 1000, event_retention_ms: 1, clock_settle_ms: 0, ..config() };
    let schedule = ScheduleSpec {
        name: "s".into(),
        cron: "* * * * *".into(),
        zone: "UTC".into(),
        catch_up: CatchUp::One,
        jitter_ms: 0,
        event: out("u", "1"),
    };
    harness.join("a", config, vec![handler("m:h", "t")], vec![schedule]);
    harness.publish(out("t", "1"));
    assert_eq!(harness.pass_working(10), 1);
    harness.narrow = |batch| appends_to_u(batch) || batch.ops.iter().any(|op| matches!(op, Op::Trim { .. }));
    harness.pass_working(61_000);
    for expected in ["schedule", "retention"] {
        let told = |note: &Note| matches!(note, Note::TooLarge { what, .. } if what.contains(expected));
        assert!(harness.notes.iter().any(told), "{expected}: {:?}", harness.notes);
    }
    harness.publish(out("t", "2"));
    assert_eq!(harness.pass_working(10), 1);
    harness.narrow = |_| false;
    harness.pass_working(10_000);
    assert!(harness.notes.iter().any(|note| matches!(note, Note::Fired { .. })), "it fires when it can");
}
