//! `Bus.Publish` and feeds: a command becomes a durable event, and a durable event reaches an actor.

mod harness;

use std::time::Duration;

use harness::{Client, Harness, doer, example, fault, limits};
use millrace_bus::{BusLimits, From, Reply, Request, Subscribe};
use millrace_kernel::{Capability, ChildSettings, KernelSettings};
use millrace_model::{AckMode, Filter, Group, Namespace, OsFault, TopicKey, TopicName};
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

async fn publish(client: &mut Client, data: Value) -> Value {
    let answer = client.ask("command", "Bus.Publish", &data).await;
    assert_eq!(answer["kind"], "reply", "{answer}");
    answer["data"].clone()
}

/// Polls until a group's commit has reached `offset`: nothing reports that an ack has become durable.
async fn until_committed(harness: &Harness, topic: &str, group: &str, offset: u64) {
    while harness.committed(topic, group).await < offset {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Polls until the topic's only group has this many members.
async fn until_members(harness: &Harness, topic: &str, members: usize) {
    let topic = TopicKey::parse(&format!("default/{topic}")).expect("a topic");
    loop {
        let request = Request::ListGroups { topic: topic.clone() };
        if let Reply::Groups(view) = harness.runtime.handle().call(request).await.expect("the bus runs")
            && view.groups.first().is_some_and(|group| group.members == members)
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Limits with one attempt for each event.
fn once() -> BusLimits {
    BusLimits { max_attempts: 1, ..BusLimits::default() }
}

fn subscription(name: &str, group: &str) -> Subscribe {
    let topic = topic(name, group);
    Subscribe {
        topic: TopicKey::new(&Namespace::default(), &topic.topic),
        group: topic.group,
        from: Some(From::Earliest),
        reset: false,
        max_inflight: Some(1),
        ack_mode: Some(AckMode::Individual),
        sticky: false,
        filter: Filter::default(),
    }
}

async fn no_dead_letters(client: &mut Client, topic: &str) {
    let first = publish(client, json!({"topic": format!("{topic}.DLQ"), "payload": 1})).await;
    assert_eq!(first["offset"], 1, "there are no dead letters: {first}");
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
    let harness = Harness::with(limits(), BusLimits::default(), vec![local_queue]).await;
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
    let harness =
        Harness::with(limits(), BusLimits { auto_create: false, ..BusLimits::default() }, Vec::new()).await;
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
async fn the_example_for_node_adds_up_and_gives_back_what_it_cannot_add() {
    let mut harness =
        Harness::with(limits(), BusLimits { max_attempts: 1, ..BusLimits::default() }, Vec::new()).await;
    let mut client = harness.client().await;
    publish(&mut client, json!({"topic": "payments", "payload": {"amount": 5}})).await;
    publish(&mut client, json!({"topic": "payments", "payload": {"amount": "five"}})).await;
    publish(&mut client, json!({"topic": "payments", "payload": {"amount": 7}})).await;
    harness.run(vec![example("Ledger", "node", "node/ledger.mjs")]).await;
    until_committed(&harness, "payments", "os.Ledger", 3).await;
    assert_eq!(client.query("Ledger.Total", &json!({})).await, json!({"total": 12, "payments": 2}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_in_the_hands_of_a_child_that_crashes_comes_again_with_the_same_id() {
    let mut harness = Harness::new().await;
    let manifest = json!({"name": "A", "inbound": [{"kind": "query", "type": "A.Do"}], "bus": [{"topic": "t", "from": "earliest"}]});
    let body = "if message['type'] == 'A.Do':\n    \
                    answer('reply', seen)\n    \
                    continue\n\
                data = message['data']\n\
                if data['payload'] == 'deadly' and data.get('attempts', 1) == 1: os._exit(1)\n\
                seen = [message['metadata']['id'], data.get('attempts', 1), data['payload']]\n\
                answer('reply', None)";
    harness.run(vec![harness.script("A", &manifest, body)]).await;
    let mut client = harness.client().await;
    publish(&mut client, json!({"topic": "t", "payload": "deadly", "id": "the-one"})).await;
    until_committed(&harness, "t", "os.A", 1).await;
    assert_eq!(client.query("A.Do", &json!(1)).await, json!(["the-one", 2, "deadly"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_subscribes_by_command_and_a_client_cannot() {
    let mut harness = Harness::new().await;
    let body = "if message['type'] == 'A.Do':\n    \
                    asker = message\n    \
                    say({'kind': 'command', 'type': 'Bus.Subscribe', 'data': message['data'], 'metadata': {'id': 'sub'}})\n\
                elif message['type'] == 'Bus.Message':\n    \
                    answer('reply', None)\n\
                else:\n    \
                    got = message['data']\n    \
                    message = asker\n    \
                    answer('reply', got)";
    harness.run(vec![harness.script("A", &doer("A"), body)]).await;
    let mut client = harness.client().await;
    let placed = client.query("A.Do", &json!({"topic": "t"})).await;
    let expected = json!({"topic": "t", "group": "os.A", "partitions": [{"partition": 0, "next": 1}]});
    assert_eq!(placed, expected);
    publish(&mut client, json!({"topic": "t", "payload": 1})).await;
    until_committed(&harness, "t", "os.A", 1).await;
    client.send("command", "Bus.Subscribe", &json!({"topic": "t"})).await;
    let (code, text) = fault(&client.answer().await);
    assert_eq!(code, 403);
    assert!(text.starts_with("Bus.Subscribe is for capabilities"), "{text}");
}

/// With one attempt for each event, an attempt that counted although nobody had seen the event would be its last.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_capability_is_unhealthy_its_events_wait_in_the_log() {
    let mut harness = Harness::with(limits(), once(), Vec::new()).await;
    let manifest = json!({"name": "A", "inbound": [{"kind": "query", "type": "A.Die"}], "bus": [{"topic": "t", "from": "earliest"}]});
    let dying = harness.script("A", &manifest, "os._exit(1)");
    harness.run(vec![ChildSettings { restart: false, ..dying }]).await;
    let mut client = harness.client().await;
    until_members(&harness, "t", 1).await;
    while client.refused("A.Die", &json!(1)).await.0 != 503 {}
    for n in 0..3 {
        publish(&mut client, json!({"topic": "t", "payload": n})).await;
    }
    until_members(&harness, "t", 0).await;
    assert_eq!(harness.committed("t", "os.A").await, 0, "nothing was given up");
    harness.run(vec![harness.script("A", &manifest, "answer('reply', None)")]).await;
    until_committed(&harness, "t", "os.A", 3).await;
    no_dead_letters(&mut client, "t").await;
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
    let harness = Harness::with_settings(settings, limits(), once(), vec![slow]).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn events_that_wait_for_a_slow_child_use_up_no_attempts_and_do_not_pile_up() {
    let bus_limits = BusLimits { ack_timeout_ms: 200, max_attempts: 4, ..BusLimits::default() };
    let mut harness = Harness::with(limits(), bus_limits, Vec::new()).await;
    let manifest = json!({"name": "A", "inbound": [{"kind": "query", "type": "A.Wait"}, {"kind": "query", "type": "A.Seen"}],
        "bus": [{"topic": "t", "from": "earliest"}]});
    let body = "if message['type'] == 'A.Wait':\n    \
                    seen = []\n    \
                    while not os.path.exists(message['data']): time.sleep(0.01)\n    \
                    answer('reply', None)\n\
                elif message['type'] == 'A.Seen':\n    \
                    answer('reply', seen)\n\
                else:\n    \
                    seen.append(message['data']['payload'])\n    \
                    answer('reply', None)";
    harness.run(vec![harness.script("A", &manifest, body)]).await;
    let (mut client, mut waiting) = (harness.client().await, harness.client().await);
    until_members(&harness, "t", 1).await;
    let go = harness.path("go");
    waiting.send("query", "A.Wait", &json!(go.to_str().unwrap())).await;
    for n in 0..6 {
        publish(&mut client, json!({"topic": "t", "payload": n})).await;
    }
    // Waits until an event of another topic has used up its attempts with a consumer that does nothing. A feed that
    // takes its own events again and again would have used up their attempts by then.
    let idler = harness.runtime.handle().open(Namespace::default()).unwrap();
    idler.ask(&mut vec![(1, Request::Subscribe(subscription("idle", "idler")))]).await.unwrap();
    publish(&mut client, json!({"topic": "idle", "payload": 1})).await;
    until_committed(&harness, "idle", "idler", 1).await;
    assert_eq!(harness.committed("t", "os.A").await, 0, "none was given up");
    waiting.send("query", "A.Seen", &json!(1)).await;
    std::fs::write(&go, "").unwrap();
    assert_eq!(waiting.answer().await["kind"], "reply");
    // The events that were in the mailbox before this query: as many as the window.
    assert_eq!(waiting.answer().await["data"], json!([0, 1]));
    until_committed(&harness, "t", "os.A", 6).await;
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
    let harness = Harness::with(limits(), once(), vec![local_queue, undertaker]).await;
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
    let harness = Harness::with(limits(), BusLimits::default(), vec![local_queue]).await;
    let mut client = harness.client().await;
    publish(&mut client, json!({"topic": "t", "payload": 1})).await;
    assert_eq!((heard.recv().await, heard.recv().await), (Some(false), Some(true)));
    until_committed(&harness, "t", "g", 1).await;
}
