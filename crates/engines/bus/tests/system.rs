//! The server's own topics: writing and reading them, and the mirror of dead letters.

mod desk;

use std::sync::Arc;

use desk::{Desk, event, group, subscription, topic};
use millrace_bus::*;
use millrace_model::*;

const MIRROR: &str = "system.bus.dlq";

/// Each event has one attempt: a single NACK makes a dead letter.
fn strict() -> Desk {
    let mut desk = Desk::with(BusLimits { max_attempts: 1, ..BusLimits::default() });
    desk.open(1);
    desk
}

fn read(desk: &mut Desk, name: &str) {
    let subscribe =
        Subscribe { from: Some(From::Earliest), max_inflight: Some(100), ..subscription(name, "g") };
    desk.request(1, Request::Subscribe(subscribe));
    desk.out();
}

fn log(desk: &Desk, name: &str) -> Vec<Arc<Event>> {
    desk.logs.get(&topic(name).stream(Partition(0))).cloned().unwrap_or_default()
}

fn record(desk: &mut Desk, name: &str, events: Vec<NewEvent>) {
    desk.call(Request::Record(PublishBatch { topic: topic(name), events }));
}

#[test]
fn a_dead_letter_is_mirrored_in_the_same_commit() {
    let mut desk = strict();
    read(&mut desk, "t");
    desk.publish("t", "1");
    desk.hold = true;
    desk.nack(1, "t", "g", 1, None);
    let [(_, batch)] = &desk.held[..] else { panic!("one commit, not {:?}", desk.held) };
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
    assert!(desk.notes.is_empty(), "nothing is told before it is durable");
    desk.hold = false;
    desk.release();
    let (letter, mirrored) = (log(&desk, "t.DLQ")[0].clone(), log(&desk, MIRROR)[0].clone());
    assert_eq!(letter.body, mirrored.body);
    let [Note::DeadLettered { letter: told }] = &desk.notes[..] else { panic!("{:?}", desk.notes) };
    assert_eq!(*told, letter);
}

#[test]
fn dead_letters_go_to_the_mirror_of_their_own_namespace() {
    let mut desk = strict();
    let blue = TopicKey::parse("blue/t").expect("a key");
    let subscribe = Subscribe { topic: blue.clone(), from: Some(From::Earliest), ..subscription("t", "g") };
    desk.request(1, Request::Subscribe(subscribe));
    desk.call(Request::Publish(Publish { topic: blue.clone(), event: event("1"), deliver_at: None }));
    let nack = Nack {
        topic: blue,
        partition: Partition(0),
        group: group("g"),
        offset: Offset(1),
        reason: None,
        delay_ms: None,
        confirm: false,
    };
    desk.request(1, Request::Nack(nack));
    assert!(log(&desk, MIRROR).is_empty());
    let mirror = TopicKey::parse("blue/system.bus.dlq").expect("a key").stream(Partition(0));
    assert_eq!(desk.logs[&mirror].len(), 1);
}

#[test]
fn a_reader_of_the_mirror_that_fails_does_not_feed_it() {
    let mut desk = strict();
    read(&mut desk, "t");
    desk.publish("t", "1");
    desk.nack(1, "t", "g", 1, None);
    read(&mut desk, MIRROR);
    desk.nack(1, MIRROR, "g", 1, None);
    assert_eq!(desk.committed(MIRROR, "g", 0), 1);
    assert_eq!(log(&desk, "system.bus.dlq.DLQ").len(), 1, "it is kept");
    assert_eq!(log(&desk, MIRROR).len(), 1, "and not mirrored");
    read(&mut desk, "system.bus.dlq.DLQ");
    desk.nack(1, "system.bus.dlq.DLQ", "g", 1, None);
    assert_eq!(desk.out(), ["1<- g system.bus.dlq.DLQ/0/1 1 attempt 2"], "dead letters have none");
    read(&mut desk, "t.DLQ");
    desk.nack(1, "t.DLQ", "g", 1, None);
    assert_eq!(log(&desk, MIRROR).len(), 1);
    assert_eq!(desk.notes.len(), 1, "nothing is told about the server's own topics: {:?}", desk.notes);
}

#[test]
fn large_dead_letters_fit_their_batches_and_leave_their_payload_out_of_the_mirror() {
    let mut desk = strict();
    read(&mut desk, "t");
    let payload = |mib: usize| format!("\"{}\"", "x".repeat(mib << 20));
    for mib in [1, 1, 1, 3, 9] {
        desk.publish("t", &payload(mib));
    }
    desk.hold = true;
    for offset in 1..=5 {
        desk.nack(1, "t", "g", offset, None);
    }
    desk.hold = false;
    desk.release();
    assert_eq!(desk.committed("t", "g", 0), 5);
    let (letters, mirror) = (log(&desk, "t.DLQ"), log(&desk, MIRROR));
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
    let mut desk = Desk::new();
    record(&mut desk, "system.metrics", vec![event("1"), event("2")]);
    desk.expect(&["published 0/1 0/2"]);
    let admin = vec![Actor::new("admin").expect("a name")];
    desk.by = Some(Arc::new(Principal {
        agent: Actor::new("eve").expect("a name"),
        roles: admin,
        namespaces: None,
    }));
    desk.publish("system.metrics", "3");
    desk.publish("system.other", "3");
    let later = Some(DeliverAt::AfterMs(1000));
    let publish = Publish { topic: topic("system.metrics"), event: event("3"), deliver_at: later };
    desk.call(Request::Publish(publish));
    desk.call(Request::PublishBatch(PublishBatch { topic: topic(MIRROR), events: vec![event("3")] }));
    let out = desk.out();
    assert_eq!(out.len(), 4);
    let refused = "refused forbidden: agent eve may not publish to topic system.";
    assert!(out.iter().all(|line| line.starts_with(refused)), "{out:?}");
    assert_eq!(log(&desk, "system.metrics").len(), 2);
    desk.publish("systematic", "1");
    desk.expect(&["published 0/1"]);
    desk.by = None;
    desk.publish("system.metrics", "3");
    desk.expect(&["published 0/3"]);
}

#[test]
fn its_topics_are_made_with_a_bound_and_keep_what_their_owner_sets() {
    let limits =
        BusLimits { auto_create: false, topics_max: 0, system_retention_ms: 60_000, ..BusLimits::default() };
    let mut desk = Desk::with(limits);
    record(&mut desk, "system.metrics", Vec::new());
    desk.expect(&["topic system.metrics created=true"]);
    let retention = |desk: &Desk| {
        let row = desk.tables[&(Space::Topics, keys::topic(&topic("system.metrics")))].clone();
        TopicRow::decode("t", &row).expect("a row").config.retention_ms
    };
    assert_eq!(retention(&desk), Some(60_000));
    record(&mut desk, "system.metrics", vec![event("1")]);
    desk.out();
    desk.pass(200_000);
    record(&mut desk, "system.metrics", vec![event("2")]);
    desk.expect(&["published 0/2"]);
    desk.call(Request::DescribeTopic { topic: topic("system.metrics") });
    let view = desk.out();
    let patch = TopicPatch { retention_ms: Some(Some(5)), ..TopicPatch::default() };
    desk.call(Request::PatchTopic { topic: topic("system.metrics"), patch: patch.into() });
    desk.restart();
    record(&mut desk, "system.metrics", Vec::new());
    assert_eq!(retention(&desk), Some(5), "{view:?}");
    desk.call(Request::DeleteTopic { topic: topic("system.metrics") });
    record(&mut desk, "system.metrics", vec![event("3")]);
    assert_eq!(retention(&desk), Some(60_000), "made anew");
}

#[test]
fn the_servers_topics_are_for_those_who_look_after_it() {
    let mut desk = Desk::new();
    desk.open(1);
    for name in SYSTEM_TOPICS {
        record(&mut desk, name, vec![event("1")]);
    }
    desk.out();
    let mut may = |roles: &[&str], name: &str| {
        let roles = roles.iter().map(|role| Actor::new(role).expect("a name")).collect();
        desk.by =
            Some(Arc::new(Principal { agent: Actor::new("eve").expect("a name"), roles, namespaces: None }));
        desk.call(Request::Offsets { topic: topic(name) });
        !desk.out()[0].starts_with("refused forbidden")
    };
    for (name, metrics_suffices) in [("system.metrics", true), (AUDIT_TOPIC, false), (MIRROR, false)] {
        assert!(!may(&["publish", "subscribe"], name), "{name}");
        assert_eq!(may(&["subscribe", "metrics"], name), metrics_suffices, "{name}");
        assert!(may(&["admin"], name), "{name}");
    }
    desk.by = None;
    let open = AccessList::new(["*"].into_iter()).expect("a list");
    let patch = TopicPatch { subscribe_acl: Some(Some(open)), ..TopicPatch::default() };
    desk.call(Request::PatchTopic { topic: topic(MIRROR), patch: patch.into() });
    desk.out();
    desk.by = Some(Arc::new(Principal {
        agent: Actor::new("eve").expect("a name"),
        roles: Vec::new(),
        namespaces: None,
    }));
    desk.call(Request::Offsets { topic: topic(MIRROR) });
    assert!(desk.out()[0].starts_with("offsets"), "a list of its own decides");
}

#[test]
fn what_the_server_writes_is_not_counted_as_published() {
    let mut desk = strict();
    read(&mut desk, "t");
    desk.publish("t", "1");
    record(&mut desk, "system.metrics", vec![event("1")]);
    desk.nack(1, "t", "g", 1, None);
    desk.out();
    desk.call(Request::Stats);
    let stats = desk.out().remove(0);
    // Published: the event and its dead letter. System: the mirror's copy and the metrics.
    assert!(stats.contains("published: 2, system: 2"), "{stats}");
}

#[test]
fn acks_and_failed_deliveries_are_told_if_asked_for() {
    let limits =
        BusLimits { max_attempts: 2, note_acks: true, note_redeliveries: true, ..BusLimits::default() };
    let mut desk = Desk::with(limits);
    desk.open(1);
    read(&mut desk, "t");
    for n in 1..=3 {
        desk.publish("t", &n.to_string());
    }
    desk.nack(1, "t", "g", 3, None);
    desk.ack(1, "t", "g", 2);
    desk.nack(1, "t", "g", 3, None);
    let told = desk.notes.iter().map(|note| match note {
        Note::Acked { at, events, .. } => format!("acked {} completing {events}", at.offset),
        Note::Nacked { at, reason, .. } => format!("nacked {} because {reason}", at.offset),
        Note::Redelivery { at, attempts, decision, .. } => {
            format!("{} after {attempts}: {}", at.offset, decision.as_str())
        }
        Note::DeadLettered { letter } => format!("dead letter {}", letter.offset),
        Note::ClockAhead { .. } | Note::Removed { .. } => format!("{note:?}"),
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
    desk.notes.clear();
    record(&mut desk, "system.metrics", vec![event("1")]);
    read(&mut desk, "system.metrics");
    desk.ack(1, "system.metrics", "g", 1);
    assert!(desk.notes.is_empty(), "nothing about the server's own: {:?}", desk.notes);
}
