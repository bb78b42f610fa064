//! The server's own topics: writing and reading them, and the mirror of dead letters.

mod harness;

use std::sync::Arc;

use harness::{Harness, event, group, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

const MIRROR: &str = "system.bus.dlq";

/// Each event has one attempt: a single NACK makes a dead letter.
fn strict() -> Harness {
    let mut harness = Harness::with(BusLimits { max_attempts: 1, ..BusLimits::default() });
    harness.open(1);
    harness
}

fn read(harness: &mut Harness, name: &str) {
    let subscribe =
        Subscribe { from: Some(From::Earliest), max_inflight: Some(100), ..subscription(name, "g") };
    harness.request(1, Request::Subscribe(subscribe));
    harness.out();
}

fn log(harness: &Harness, name: &str) -> Vec<Arc<Event>> {
    harness.log(name)
}

fn record(harness: &mut Harness, name: &str, events: Vec<NewEvent>) {
    harness.call(Request::Record(PublishBatch { topic: topic(name), events }));
}

#[test]
fn a_dead_letter_is_mirrored_in_the_same_commit() {
    let mut harness = strict();
    read(&mut harness, "t");
    harness.publish("t", "1");
    harness.hold = true;
    harness.nack(1, "t", "g", 1, None);
    let [(_, batch)] = &harness.held[..] else { panic!("one commit, not {:?}", harness.held) };
    let into: Vec<_> = batch
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::Append(append) => Some(append.stream.topic.topic().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(into, [MIRROR, "t.DLQ"]);
    assert!(batch.ops.iter().any(|op| matches!(op, Op::Put { space: Space::Cursors, .. })));
    assert!(harness.notes.is_empty(), "nothing is told before it is durable");
    harness.hold = false;
    harness.release();
    let (letter, mirrored) = (log(&harness, "t.DLQ")[0].clone(), log(&harness, MIRROR)[0].clone());
    assert_eq!(letter.body, mirrored.body);
    let [Note::DeadLettered { letter: told }] = &harness.notes[..] else { panic!("{:?}", harness.notes) };
    assert_eq!(*told, letter);
}

#[test]
fn dead_letters_go_to_the_mirror_of_their_own_namespace() {
    let mut harness = strict();
    let blue = TopicKey::parse("blue/t").expect("a key");
    let subscribe = Subscribe { topic: blue.clone(), from: Some(From::Earliest), ..subscription("t", "g") };
    harness.request(1, Request::Subscribe(subscribe));
    harness.call(Request::Publish(Publish { topic: blue.clone(), event: event("1"), deliver_at: None }));
    let nack = Nack {
        topic: blue,
        partition: Partition(0),
        group: group("g"),
        offset: Offset(1),
        reason: None,
        delay_ms: None,
        confirm: false,
    };
    harness.request(1, Request::Nack(nack));
    assert!(log(&harness, MIRROR).is_empty());
    let mirror = TopicKey::parse("blue/system.bus.dlq").expect("a key").stream(Partition(0));
    assert_eq!(harness.log_of(&mirror).len(), 1);
}

#[test]
fn a_reader_of_the_mirror_that_fails_does_not_feed_it() {
    let mut harness = strict();
    read(&mut harness, "t");
    harness.publish("t", "1");
    harness.nack(1, "t", "g", 1, None);
    read(&mut harness, MIRROR);
    harness.nack(1, MIRROR, "g", 1, None);
    assert_eq!(harness.committed(MIRROR, "g", 0), 1);
    assert_eq!(log(&harness, "system.bus.dlq.DLQ").len(), 1, "it is kept");
    assert_eq!(log(&harness, MIRROR).len(), 1, "and not mirrored");
    read(&mut harness, "system.bus.dlq.DLQ");
    harness.nack(1, "system.bus.dlq.DLQ", "g", 1, None);
    assert_eq!(harness.out(), ["1<- g system.bus.dlq.DLQ/0/1 1 attempt 2"], "dead letters have none");
    read(&mut harness, "t.DLQ");
    harness.nack(1, "t.DLQ", "g", 1, None);
    assert_eq!(log(&harness, MIRROR).len(), 1);
    assert_eq!(harness.notes.len(), 1, "nothing is told about the server's own topics: {:?}", harness.notes);
}

#[test]
fn large_dead_letters_fit_their_batches_and_leave_their_payload_out_of_the_mirror() {
    let mut harness = strict();
    read(&mut harness, "t");
    let payload = |mib: usize| format!("\"{}\"", "x".repeat(mib << 20));
    for mib in [1, 1, 1, 3, 9] {
        harness.publish("t", &payload(mib));
    }
    harness.hold = true;
    for offset in 1..=5 {
        harness.nack(1, "t", "g", offset, None);
    }
    harness.hold = false;
    harness.release();
    assert_eq!(harness.committed("t", "g", 0), 5);
    let (letters, mirror) = (log(&harness, "t.DLQ"), log(&harness, MIRROR));
    assert_eq!((letters.len(), mirror.len()), (5, 5));
    for (letter, mirrored) in letters.iter().zip(&mirror) {
        let large = letter.body.payload.bytes().len() > 2 << 20;
        assert_eq!(mirrored.body.payload.as_str() == "null", large);
        let headers = mirrored.body.headers.as_ref().expect("headers");
        assert_eq!(headers.get("x-dlq-payload").is_some(), large);
        assert_eq!(
            headers.get("x-dlq-offset"),
            letter.body.headers.as_ref().expect("headers").get("x-dlq-offset")
        );
    }
}

#[test]
fn nobody_who_has_a_name_writes_the_servers_topics() {
    let mut harness = Harness::new();
    record(&mut harness, "system.metrics", vec![event("1"), event("2")]);
    harness.expect(&["published 0/1 0/2"]);
    let admin = vec![Actor::new("admin").expect("a name")];
    harness.by = Requester::Agent(Arc::new(Principal {
        agent: Actor::new("eve").expect("a name"),
        roles: admin,
        namespaces: None,
    }));
    harness.publish("system.metrics", "3");
    harness.publish("system.other", "3");
    let later = Some(DeliverAt::AfterMs(1000));
    let publish = Publish { topic: topic("system.metrics"), event: event("3"), deliver_at: later };
    harness.call(Request::Publish(publish));
    harness.call(Request::PublishBatch(PublishBatch { topic: topic(MIRROR), events: vec![event("3")] }));
    let out = harness.out();
    assert_eq!(out.len(), 4);
    let refused = "refused forbidden: agent eve may not publish to topic system.";
    assert!(out.iter().all(|line| line.starts_with(refused)), "{out:?}");
    assert_eq!(log(&harness, "system.metrics").len(), 2);
    harness.publish("systematic", "1");
    harness.expect(&["published 0/1"]);
    harness.by = Requester::Trusted;
    harness.publish("system.metrics", "3");
    harness.expect(&["published 0/3"]);
}

#[test]
fn its_topics_are_made_with_a_bound_and_keep_what_their_owner_sets() {
    let limits =
        BusLimits { auto_create: false, topics_max: 0, system_retention_ms: 60_000, ..BusLimits::default() };
    let mut harness = Harness::with(limits);
    record(&mut harness, "system.metrics", Vec::new());
    harness.expect(&["topic system.metrics created=true"]);
    let retention = |harness: &Harness| {
        let row = harness.row(Space::Topics, &keys::topic(&topic("system.metrics")));
        TopicRow::decode("t", &row).expect("a row").config.retention_ms
    };
    assert_eq!(retention(&harness), Some(60_000));
    record(&mut harness, "system.metrics", vec![event("1")]);
    harness.out();
    harness.pass(200_000);
    record(&mut harness, "system.metrics", vec![event("2")]);
    harness.expect(&["published 0/2"]);
    harness.call(Request::DescribeTopic { topic: topic("system.metrics") });
    let view = harness.out();
    let patch = TopicPatch { retention_ms: Some(Some(5)), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic("system.metrics"), patch: patch.into() });
    harness.restart();
    record(&mut harness, "system.metrics", Vec::new());
    assert_eq!(retention(&harness), Some(5), "{view:?}");
    harness.call(Request::DeleteTopic { topic: topic("system.metrics") });
    record(&mut harness, "system.metrics", vec![event("3")]);
    assert_eq!(retention(&harness), Some(60_000), "made anew");
}

#[test]
fn the_servers_topics_are_for_those_who_look_after_it() {
    let mut harness = Harness::new();
    harness.open(1);
    for name in SYSTEM_TOPICS {
        record(&mut harness, name, vec![event("1")]);
    }
    harness.out();
    let mut may = |roles: &[&str], name: &str| {
        let roles = roles.iter().map(|role| Actor::new(role).expect("a name")).collect();
        harness.by = Requester::Agent(Arc::new(Principal {
            agent: Actor::new("eve").expect("a name"),
            roles,
            namespaces: None,
        }));
        harness.call(Request::Offsets { topic: topic(name) });
        !harness.out()[0].starts_with("refused forbidden")
    };
    for (name, metrics_suffices) in [("system.metrics", true), (AUDIT_TOPIC, false), (MIRROR, false)] {
        assert!(!may(&["publish", "subscribe"], name), "{name}");
        assert_eq!(may(&["subscribe", "metrics"], name), metrics_suffices, "{name}");
        assert!(may(&["admin"], name), "{name}");
    }
    harness.by = Requester::Trusted;
    let open = AccessList::new(["*"].into_iter()).expect("a list");
    let patch = TopicPatch { subscribe_acl: Some(Some(open)), ..TopicPatch::default() };
    harness.call(Request::PatchTopic { topic: topic(MIRROR), patch: patch.into() });
    harness.out();
    harness.by = Requester::Agent(Arc::new(Principal {
        agent: Actor::new("eve").expect("a name"),
        roles: Vec::new(),
        namespaces: None,
    }));
    harness.call(Request::Offsets { topic: topic(MIRROR) });
    assert!(harness.out()[0].starts_with("offsets"), "a list of its own decides");
}

#[test]
fn what_the_server_writes_is_not_counted_as_published() {
    let mut harness = strict();
    read(&mut harness, "t");
    harness.publish("t", "1");
    record(&mut harness, "system.metrics", vec![event("1")]);
    harness.nack(1, "t", "g", 1, None);
    harness.out();
    harness.call(Request::Stats);
    let stats = harness.out().remove(0);
    // Published: the event and its dead letter. System: the mirror's copy and the metrics.
    assert!(stats.contains("published: 2, system: 2"), "{stats}");
}

#[test]
fn acks_and_failed_deliveries_are_told_if_asked_for() {
    let limits =
        BusLimits { max_attempts: 2, note_acks: true, note_redeliveries: true, ..BusLimits::default() };
    let mut harness = Harness::with(limits);
    harness.open(1);
    read(&mut harness, "t");
    for n in 1..=3 {
        harness.publish("t", &n.to_string());
    }
    harness.nack(1, "t", "g", 3, None);
    harness.ack(1, "t", "g", 2);
    harness.nack(1, "t", "g", 3, None);
    let told = harness.notes.iter().map(|note| match note {
        Note::Acked { at, events, .. } => format!("acked {} completing {events}", at.offset),
        Note::Nacked { at, reason, .. } => format!("nacked {} because {reason}", at.offset),
        Note::Redelivery { at, attempts, decision, .. } => {
            format!("{} after {attempts}: {}", at.offset, decision.as_str())
        }
        Note::DeadLettered { letter } => format!("dead letter {}", letter.offset),
        Note::ClockAhead { .. } | Note::Removed { .. } | Note::DeliveryEnded { .. } => format!("{note:?}"),
    });
    let told: Vec<_> = told.collect();
    assert_eq!(
        told,
        [
            "nacked 3 because no",
            "3 after 1: again",
            "acked 2 completing 2",
            "nacked 3 because no",
            "3 after 2: dead_letter",
            "dead letter 1",
        ]
    );
    harness.notes.clear();
    record(&mut harness, "system.metrics", vec![event("1")]);
    read(&mut harness, "system.metrics");
    harness.ack(1, "system.metrics", "g", 1);
    assert!(harness.notes.is_empty(), "nothing about the server's own: {:?}", harness.notes);
}
