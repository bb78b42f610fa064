//! `Bus.Publish` and feeds: a command becomes a durable event, and a durable event reaches an actor.

mod harness;

use harness::{Harness, fault, no_dead_letters, once, publish, until_committed, until_members};
use millrace_bus::BusLimits;
use millrace_kernel::{Capability, KernelSettings};
use millrace_model::{Group, OsFault, TopicName};
use millrace_router::{BusTopic, RouterLimits};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

fn topic(name: &str, group: &str) -> BusTopic {
    BusTopic {
        topic: TopicName::new(name).expect("a topic"),
        group: Group::new(group).expect("a group"),
        from_earliest: true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_becomes_a_durable_event_and_the_event_reaches_an_actor() {
    let (heard_in, mut heard) = mpsc::unbounded_channel();
    let local_queue = Capability::new("LocalQueue", "Listens").on_bus(
        vec![topic("t", "os.LocalQueue")],
        move |_, message| {
            let data: Value = serde_json::from_str(message.data.as_str()).unwrap();
            let metadata = &message.metadata;
            let text = |id: &Option<millrace_model::OsId>| id.as_ref().map(ToString::to_string);
            heard_in
                .send((data, metadata.id.to_string(), text(&metadata.causation), text(&metadata.correlation)))
                .unwrap();
            async { Ok(()) }
        },
    );
    let harness = Harness::with(BusLimits::default(), vec![local_queue]).await;
    let mut client = harness.client().await;
    let payload = json!({"n": 1});
    let published = publish(
        &mut client,
        json!({"topic": "t", "payload": payload, "key": "k", "headers": {"h": "v"}, "id": "my-id"}),
    )
    .await;
    let expected = json!({"topic": "t", "partition": 0, "offset": 1, "id": "my-id", "durability": "fsync"});
    assert_eq!(published, expected);
    let (data, id, causation, correlation) = heard.recv().await.unwrap();
    let expected = json!({"topic": "t", "partition": 0, "offset": 1, "key": "k", "headers": {"h": "v"}, "payload": payload});
    assert_eq!(data, expected);
    assert_eq!((id.as_str(), causation.as_deref(), correlation), ("my-id", Some("Bus.Publish-1"), None));
    until_committed(&harness, "t", "os.LocalQueue", 1).await;
    // The same id again is the same event, so it is not delivered a second time.
    assert_eq!(publish(&mut client, json!({"topic": "t", "payload": 1, "id": "my-id"})).await["offset"], 1);
    publish(&mut client, json!({"topic": "t", "payload": 2})).await;
    let (data, ..) = heard.recv().await.unwrap();
    assert_eq!(
        data,
        json!({"topic": "t", "partition": 0, "offset": 2, "key": null, "headers": {}, "payload": 2})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_are_committed_in_the_order_they_were_sent() {
    let harness = Harness::new().await;
    let mut client = harness.client().await;
    for n in 0..500 {
        client.send("command", "Bus.Publish", &json!({"topic": "t", "payload": n})).await;
    }
    for n in 1..=500 {
        let answer = client.answer().await;
        assert_eq!(
            (&answer["data"]["offset"], &answer["metadata"]["causation"]),
            (&json!(n), &json!(format!("Bus.Publish-{n}")))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_published_is_refused_with_its_code() {
    let harness = Harness::with(BusLimits { auto_create: false, ..BusLimits::default() }, Vec::new()).await;
    let mut client = harness.client().await;
    for (data, code, text) in [
        (
            json!({"topic": "t", "payload": 1}),
            404,
            "there is no topic t and topics are not created automatically",
        ),
        (json!({"topic": "no/topic", "payload": 1}), 422, "Schema validation failed: "),
        (json!({"topic": "t"}), 422, "Schema validation failed: data: \"payload\" is a required property"),
        (json!({"topic": "t", "payload": 1, "id": "ü"}), 422, "Schema validation failed: "),
        (json!({"topic": "t", "payload": 1, "namespace": "a/b"}), 422, "Schema validation failed: "),
    ] {
        client.send("command", "Bus.Publish", &data).await;
        let (found, message) = fault(&client.answer().await);
        assert_eq!(found, code, "{data}: {message}");
        assert!(message.starts_with(text), "{data}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_its_mailbox_is_full_the_events_of_a_capability_wait_in_the_log() {
    let (go, waits) = watch::channel(false);
    let (begun_in, mut begun) = mpsc::unbounded_channel();
    let slow = Capability::new("Slow", "Waits")
        .query("Slow.Wait", "Waits", Value::Bool(true), move |ctx, _| {
            let (mut waits, begun) = (waits.clone(), begun_in.clone());
            async move {
                begun.send(()).unwrap();
                waits.wait_for(|go| *go).await.unwrap();
                ctx.reply(&json!(null))
            }
        })
        .on_bus(vec![topic("t", "g")], |_, _| async { Ok(()) });
    let router = RouterLimits { mailbox_max: 1, ..RouterLimits::default() };
    let settings = KernelSettings { router, ..KernelSettings::default() };
    let harness = Harness::with_settings(settings, once(), vec![slow]).await;
    let (mut client, mut waiting) = (harness.client().await, harness.client().await);
    until_members(&harness, "t", 1).await;
    waiting.send("query", "Slow.Wait", &json!(1)).await;
    begun.recv().await.unwrap();
    for n in 0..3 {
        publish(&mut client, json!({"topic": "t", "payload": n})).await;
    }
    until_members(&harness, "t", 0).await;
    assert_eq!(harness.committed("t", "g").await, 0, "nothing was given up");
    go.send(true).unwrap();
    assert_eq!(waiting.answer().await["kind"], "reply");
    until_committed(&harness, "t", "g", 3).await;
    no_dead_letters(&mut client, "t").await;
}

/// An error with any code counts as an attempt, also 503.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_answers_503_has_seen_the_event() {
    let (heard_in, mut heard) = mpsc::unbounded_channel();
    let local_queue = Capability::new("LocalQueue", "Does not listen")
        .on_bus(vec![topic("t", "g")], |_, _| async { Err(OsFault::new(503, "not today")) });
    let undertaker = Capability::new("Undertaker", "Reads dead letters").on_bus(
        vec![topic("t.DLQ", "u")],
        move |_, message| {
            let data: Value = serde_json::from_str(message.data.as_str()).unwrap();
            heard_in.send(data["headers"]["x-dlq-reason"].clone()).unwrap();
            async { Ok(()) }
        },
    );
    let harness = Harness::with(once(), vec![local_queue, undertaker]).await;
    let mut client = harness.client().await;
    publish(&mut client, json!({"topic": "t", "payload": 1})).await;
    assert_eq!(heard.recv().await, Some(json!("not today")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_handler_fails_is_given_back_and_comes_again_later() {
    let (heard_in, mut heard) = mpsc::unbounded_channel();
    let local_queue =
        Capability::new("LocalQueue", "Listens").on_bus(vec![topic("t", "g")], move |_, message| {
            let data: Value = serde_json::from_str(message.data.as_str()).unwrap();
            let again = data.get("attempts").is_some();
            heard_in.send(again).unwrap();
            async move { if again { Ok(()) } else { Err(OsFault::new(500, "not yet")) } }
        });
    let harness = Harness::with(BusLimits::default(), vec![local_queue]).await;
    let mut client = harness.client().await;
    publish(&mut client, json!({"topic": "t", "payload": 1})).await;
    assert_eq!((heard.recv().await, heard.recv().await), (Some(false), Some(true)));
    until_committed(&harness, "t", "g", 1).await;
}
