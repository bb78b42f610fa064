//! Children and the bus: their events come again when they crash, and wait in the log while they cannot be handled.

mod harness;

use harness::{
    Harness, doer, example, fault, limits, no_dead_letters, once, publish, until_committed, until_members,
};
use millrace_bus::{BusLimits, From, Request, Subscribe};
use millrace_child::ChildSettings;
use millrace_model::{AckMode, Filter, Group, Namespace, Requester, TopicKey, TopicName};
use serde_json::json;

fn subscription(name: &str, group: &str) -> Subscribe {
    Subscribe {
        topic: TopicKey::new(&Namespace::default(), &TopicName::new(name).expect("a topic")),
        group: Group::new(group).expect("a group"),
        from: Some(From::Earliest),
        reset: false,
        max_inflight: Some(1),
        ack_mode: Some(AckMode::Individual),
        sticky: false,
        filter: Filter::default(),
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
    idler
        .send(&Requester::Trusted, &mut vec![(1, Request::Subscribe(subscription("idle", "idler")))])
        .await
        .unwrap();
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
