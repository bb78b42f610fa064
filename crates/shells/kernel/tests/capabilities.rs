//! Capabilities written in Rust, used over a connection of the loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_kernel::{
    Capability, HandlerPlace, KernelHandle, KernelParts, KernelSettings, OsReceiver, OsSender,
};
use millrace_model::{OsFault, OsMessage, Requester};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

async fn started(settings: KernelSettings, capabilities: Vec<Capability>) -> KernelHandle {
    let parts = KernelParts {
        settings,
        nonce: 7,
        clock: millrace_broker::SystemClock::start(millrace_model::CLOCK_SETTLE_MS),
        runtime: Handle::current(),
        rows: None,
        timers: Vec::new(),
        bus_feed: None,
        check_token: None,
        check_sender: None,
        audit_hook: None,
        records: None,
    };
    KernelHandle::start(parts, capabilities).await.expect("the loop starts").0
}

struct Client {
    sender: OsSender,
    receiver: OsReceiver,
    next: u64,
}

impl Client {
    async fn of(handle: &KernelHandle) -> Client {
        let (sender, receiver) = handle.open(Requester::Trusted).await.expect("the loop runs");
        Client { sender, receiver, next: 0 }
    }

    async fn send(&mut self, kind: &str, ty: &str, data: &str) -> String {
        self.next += 1;
        let id = format!("{ty}-{}", self.next);
        self.sender.send(message(kind, ty, data, &id)).await.expect("the loop runs");
        id
    }

    async fn answer(&mut self) -> Value {
        let line = self.receiver.next().await.expect("an answer");
        self.receiver.written(line.len());
        serde_json::from_str(&line).expect("JSON")
    }

    async fn ask(&mut self, kind: &str, ty: &str, data: &str) -> Value {
        let id = self.send(kind, ty, data).await;
        let answer = self.answer().await;
        assert_eq!(answer["metadata"]["causation"], *id, "{answer}");
        assert_eq!(answer["metadata"]["correlation"], "c", "{answer}");
        answer
    }
}

fn message(kind: &str, ty: &str, data: &str, id: &str) -> OsMessage {
    let line = format!(
        r#"{{"kind":"{kind}","type":"{ty}","data":{data},"metadata":{{"id":"{id}","timestamp":1,"correlation":"c"}}}}"#
    );
    millrace_wire::os::parse(line.as_bytes(), None).expect("a message")
}

fn greeter(place: HandlerPlace) -> Capability {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    Capability::new("Greeter", "Says hello").place(place).query(
        "Greeter.Hello",
        "Greets by name",
        schema,
        |ctx, _| async move {
            let data: Value = ctx.data()?;
            let name = data["name"].as_str().unwrap_or_default().to_owned();
            ctx.emit("Greeter.Greeted", &json!({ "name": name })).await?;
            ctx.reply(&json!({ "text": format!("Hello, {name}") }))
        },
    )
}

/// A capability that hands every event of type `ty` to the test.
fn listener(ty: &str) -> (Capability, mpsc::UnboundedReceiver<Value>) {
    let (heard_in, heard) = mpsc::unbounded_channel();
    let listener = Capability::new("Listener", "Listens").on_event(ty, move |_, event| {
        let metadata = &event.metadata;
        let causation = metadata.causation.as_ref().map(|id| id.as_str().to_owned());
        let data: Value = serde_json::from_str(event.data.as_str()).expect("JSON");
        heard_in.send(json!({ "data": data, "causation": causation })).expect("the test listens");
        async { Ok(()) }
    });
    (listener, heard)
}

#[tokio::test]
async fn a_query_is_answered_and_its_event_reaches_who_subscribed() {
    for place in [HandlerPlace::Kernel, HandlerPlace::Runtime] {
        let (listener, mut heard) = listener("Greeter.Greeted");
        let handle = started(KernelSettings::default(), vec![greeter(place), listener]).await;
        let mut client = Client::of(&handle).await;
        let answer = client.ask("query", "Greeter.Hello", r#"{"name":"Ada"}"#).await;
        assert_eq!(answer["kind"], "reply");
        assert_eq!(answer["data"], json!({"text": "Hello, Ada"}));
        let heard = heard.recv().await.expect("an event");
        assert_eq!(heard, json!({"data": {"name": "Ada"}, "causation": "Greeter.Hello-1"}));
        let refused = client.ask("query", "Greeter.Hello", r#"{"nam":1}"#).await;
        assert_eq!((&refused["kind"], &refused["data"]["code"]), (&json!("error"), &json!(422)));
        let wrong = client.ask("command", "Greeter.Hello", r#"{"name":"Ada"}"#).await;
        assert_eq!(wrong["data"]["code"], 404);
    }
}

#[tokio::test]
async fn numbers_no_program_can_hold_come_back_as_they_were() {
    let handle = started(KernelSettings::default(), Vec::new()).await;
    let mut client = Client::of(&handle).await;
    let data = r#"{"payload":[1e400,1.0,-0,12345678901234567890,"\ud800"],  "more":  true}"#;
    client.send("query", "Syscall.Ping", data).await;
    let line = client.receiver.next().await.expect("an answer");
    assert!(line.contains(&format!("\"data\":{data},")), "{line}");
}

#[tokio::test]
async fn a_panic_answers_500_and_is_told_and_the_actor_goes_on() {
    for place in [HandlerPlace::Kernel, HandlerPlace::Runtime] {
        let (listener, mut heard) = listener("Sys.ActorFault");
        let fragile = Capability::new("Fragile", "Breaks").place(place).command(
            "Fragile.Touch",
            "",
            json!({}),
            |ctx, message| async move {
                assert!(message.data.as_str() != "1", "do not touch");
                ctx.reply(&json!("fine"))
            },
        );
        let handle = started(KernelSettings::default(), vec![fragile, listener]).await;
        let mut client = Client::of(&handle).await;
        let answer = client.ask("command", "Fragile.Touch", "1").await;
        assert_eq!(answer["kind"], "error");
        let wanted = json!({"code": 500, "message": "Capability 'Fragile' failed: do not touch"});
        assert_eq!(answer["data"], wanted);
        let heard = heard.recv().await.expect("an event");
        assert_eq!(heard["data"]["capability"], "Fragile");
        assert_eq!(heard["data"]["request"], "Fragile.Touch-1");
        assert_eq!(client.ask("command", "Fragile.Touch", "2").await["data"], "fine");
    }
}

#[tokio::test]
async fn an_error_a_handler_returns_is_the_answer() {
    let strict = Capability::new("Strict", "Refuses")
        .query("Strict.Ask", "", json!({}), |_, _| async { Err(OsFault::new(403, "not for you")) });
    let handle = started(KernelSettings::default(), vec![strict]).await;
    let answer = Client::of(&handle).await.ask("query", "Strict.Ask", "null").await;
    assert_eq!(answer["data"], json!({"code": 403, "message": "not for you"}));
}

#[tokio::test]
async fn a_handler_asks_another_capability_and_waits_for_it() {
    let asker =
        Capability::new("Asker", "Asks").query("Asker.Ask", "", json!({}), |ctx, message| async move {
            let ty = serde_json::from_str::<String>(message.data.as_str()).expect("a type");
            match ctx.query(&ty, &json!({"name": "Bob"})).await {
                Ok(data) => Ok(data),
                Err(fault) => Err(OsFault::new(502, format!("{} {}", fault.code, fault.message))),
            }
        });
    let handle = started(KernelSettings::default(), vec![greeter(HandlerPlace::Runtime), asker]).await;
    let mut client = Client::of(&handle).await;
    let answer = client.ask("query", "Asker.Ask", "\"Greeter.Hello\"").await;
    assert_eq!(answer["data"]["text"], "Hello, Bob");
    let answer = client.ask("query", "Asker.Ask", "\"No.One\"").await;
    let wanted = "404 Capability 'No.One' not found in registry.";
    assert_eq!(answer["data"], json!({"code": 502, "message": wanted}));
}

#[tokio::test]
async fn a_handler_that_blocks_holds_up_nobody_else() {
    let gate = Arc::new(std::sync::Barrier::new(2));
    let at_gate = gate.clone();
    let slow =
        Capability::new("Slow", "Blocks").blocking_command("Slow.Wait", "", json!({}), move |ctx, _| {
            at_gate.wait();
            ctx.wait(ctx.emit("Slow.Waited", &json!(1)))?;
            ctx.reply(&json!("done"))
        });
    let (listener, mut heard) = listener("Slow.Waited");
    let handle = started(KernelSettings::default(), vec![slow, listener]).await;
    let mut client = Client::of(&handle).await;
    client.send("command", "Slow.Wait", "null").await;
    assert_eq!(client.ask("query", "Syscall.Ping", "1").await["data"], 1);
    tokio::task::spawn_blocking(move || gate.wait()).await.expect("the gate opens");
    assert_eq!(client.answer().await["data"], "done");
    assert_eq!(heard.recv().await.expect("an event")["data"], 1);
}

#[tokio::test]
async fn one_message_at_a_time_in_order() {
    let at_work = Arc::new(AtomicUsize::new(0));
    let serial = Capability::new("Serial", "").command("Serial.Do", "", json!({}), move |_, message| {
        let at_work = at_work.clone();
        async move {
            assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            tokio::task::yield_now().await;
            at_work.fetch_sub(1, Ordering::SeqCst);
            Ok(message.data.clone())
        }
    });
    let handle = started(KernelSettings::default(), vec![serial]).await;
    let mut client = Client::of(&handle).await;
    for n in 0..500 {
        client.send("command", "Serial.Do", &n.to_string()).await;
    }
    for n in 0..500 {
        assert_eq!(client.answer().await["data"], n);
    }
}

#[tokio::test]
async fn a_mailbox_that_is_full_answers_503_at_once() {
    let mut settings = KernelSettings::default();
    settings.router.mailbox_max = 2;
    let gate = Arc::new(Notify::new());
    let handle = started(settings, vec![stuck(&gate)]).await;
    let mut client = Client::of(&handle).await;
    for _ in 0..3 {
        client.send("command", "Stuck.Wait", "null").await;
    }
    let answer = client.answer().await;
    assert_eq!(
        (&answer["metadata"]["causation"], &answer["data"]["code"]),
        (&json!("Stuck.Wait-3"), &json!(503))
    );
    gate.notify_one();
    gate.notify_one();
    assert_eq!(client.answer().await["metadata"]["causation"], "Stuck.Wait-1");
}

/// A capability that waits at the gate with every command.
fn stuck(gate: &Arc<Notify>) -> Capability {
    let gate = gate.clone();
    Capability::new("Stuck", "").command("Stuck.Wait", "", json!({}), move |ctx, _| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            ctx.reply(&json!("through"))
        }
    })
}

#[tokio::test]
async fn who_is_removed_finishes_what_it_has_and_who_comes_is_there_at_once() {
    let handle = started(KernelSettings::default(), Vec::new()).await;
    let gate = Arc::new(Notify::new());
    let ids = handle.change(Vec::new(), vec![stuck(&gate)]).await.expect("it is added");
    let mut client = Client::of(&handle).await;
    client.send("command", "Stuck.Wait", "null").await;
    client.ask("query", "Syscall.Ping", "1").await;
    handle.change(ids, vec![greeter(HandlerPlace::Kernel)]).await.expect("one goes, one comes");
    assert_eq!(client.ask("command", "Stuck.Wait", "null").await["data"]["code"], 404);
    assert_eq!(client.ask("query", "Greeter.Hello", r#"{"name":"X"}"#).await["kind"], "reply");
    gate.notify_one();
    assert_eq!(client.answer().await["data"], "through");
    let again =
        handle.change(Vec::new(), vec![greeter(HandlerPlace::Kernel)]).await.expect_err("it is there");
    assert!(again.to_string().contains("Greeter"), "{again}");
}

#[tokio::test]
async fn a_stop_lets_work_finish_and_answers_the_rest_with_503() {
    let gate = Arc::new(Notify::new());
    let handle = started(KernelSettings::default(), vec![stuck(&gate)]).await;
    let mut client = Client::of(&handle).await;
    client.send("command", "Stuck.Wait", "null").await;
    client.ask("query", "Syscall.Ping", "1").await;
    let stopping = tokio::spawn({
        let handle = handle.clone();
        async move { handle.stop(Duration::from_secs(600)).await }
    });
    // Pings are answered until the stop has been handled.
    while client.ask("query", "Syscall.Ping", "1").await["kind"] == "reply" {}
    let late = client.ask("query", "Syscall.Ping", "1").await;
    assert_eq!(late["data"], json!({"code": 503, "message": "Kernel shutting down"}));
    gate.notify_one();
    assert_eq!(client.answer().await["data"], "through");
    stopping.await.expect("it stops");
    assert_eq!(client.receiver.next().await, None);

    let handle = started(KernelSettings::default(), vec![stuck(&gate)]).await;
    let mut client = Client::of(&handle).await;
    client.send("command", "Stuck.Wait", "null").await;
    client.ask("query", "Syscall.Ping", "1").await;
    handle.stop(Duration::ZERO).await;
    let answer = client.answer().await;
    assert_eq!(answer["data"], json!({"code": 503, "message": "Kernel shutting down"}));
}

#[tokio::test]
async fn mistakes_in_a_contract_are_told_when_it_is_installed() {
    let handle = started(KernelSettings::default(), Vec::new()).await;
    let reply = |_, _| async { Ok(millrace_model::JsonText::null()) };
    let wrong = [
        (Capability::new("A", "").query("lower.Case", "", json!({}), reply), "lower.Case"),
        (Capability::new("A", "").query("A.B", "", json!({"type": "thing"}), reply), "A.B"),
        (Capability::new("A", "").query("Sys.Thing", "", json!({}), reply), "Sys"),
        (Capability::new("A", "").query("Syscall.Ping", "", json!({}), reply), "Syscall.Ping"),
        (
            Capability::new("A", "").query("A.B", "", json!({}), reply).query("A.B", "", json!({}), reply),
            "two handlers",
        ),
        (Capability::new("A", "").subscribes("nonsense"), "nonsense"),
        (Capability::new("A b", ""), "A b"),
    ];
    for (capability, named) in wrong {
        let error = handle.change(Vec::new(), vec![capability]).await.expect_err(named);
        assert!(error.to_string().contains(named), "{error}");
    }
    let mut client = Client::of(&handle).await;
    assert_eq!(client.ask("query", "Syscall.Ping", "1").await["data"], 1);
}

#[tokio::test]
async fn whoever_hangs_up_leaves_nothing_behind() {
    let gate = Arc::new(Notify::new());
    let handle = started(KernelSettings::default(), vec![stuck(&gate)]).await;
    let mut client = Client::of(&handle).await;
    client.send("command", "Stuck.Wait", "null").await;
    client.ask("query", "Syscall.Ping", "1").await;
    assert_eq!(handle.view().await.expect("a view").gauges.pending, 1);
    drop(client);
    while handle.view().await.expect("a view").gauges.connections > 0 {}
    let gauges = handle.view().await.expect("a view").gauges;
    assert_eq!((gauges.pending, gauges.in_mailboxes), (0, 1));
    gate.notify_one();
    while handle.view().await.expect("a view").gauges.in_mailboxes > 0 {}
}

/// The shell set the causation of its messages, so the engine accepts it however late they come and whatever the engine
/// has forgotten.
#[tokio::test]
async fn a_handler_may_speak_long_after_it_has_answered() {
    let settings = KernelSettings {
        router: millrace_router::RouterLimits { lineage_max: 1, ..millrace_router::RouterLimits::default() },
        ..KernelSettings::default()
    };
    let (listener, mut heard) = listener("Slow.Done");
    let go = Arc::new(Notify::new());
    let wait = go.clone();
    let slow = Capability::new("Slow", "Answers first").command(
        "Slow.Begin",
        "Begins",
        json!({}),
        move |ctx, message| {
            let wait = wait.clone();
            async move {
                let late = ctx.clone();
                if message.data.as_str() == "true" {
                    tokio::spawn(async move {
                        wait.notified().await;
                        late.emit("Slow.Done", &json!("done")).await
                    });
                }
                ctx.reply(&json!("begun"))
            }
        },
    );
    let handle = started(settings, vec![slow, listener]).await;
    let mut client = Client::of(&handle).await;
    assert_eq!(client.ask("command", "Slow.Begin", "true").await["data"], "begun");
    for _ in 0..10 {
        client.ask("command", "Slow.Begin", "false").await;
    }
    go.notify_one();
    let heard = heard.recv().await.expect("an event");
    assert_eq!(heard, json!({"data": "done", "causation": "Slow.Begin-1"}));
    assert_eq!(handle.view().await.expect("the loop runs").counters.actor_faults, 0);
    handle.stop(Duration::ZERO).await;
}

/// A regression: the handler used to wait for ever.
#[tokio::test]
async fn a_handler_that_asks_what_it_did_not_declare_is_told() {
    let (said_in, mut said) = mpsc::unbounded_channel();
    let shy = Capability::new("Shy", "Says only what it declared")
        .query("Shy.Ask", "Asks another", json!({}), move |ctx, _| {
            let said = said_in.clone();
            async move {
                let refused = ctx.query("Syscall.Ping", &json!(1)).await;
                said.send(refused.clone()).expect("the test listens");
                refused
            }
        })
        .says(millrace_model::OsKind::Reply, "Shy.Ask", "The answer", None);
    let handle = started(KernelSettings::default(), vec![shy]).await;
    let mut client = Client::of(&handle).await;
    for _ in 0..2 {
        let answer = client.ask("query", "Shy.Ask", "1").await;
        assert_eq!(answer["data"]["code"], 500, "{answer}");
        let refused = said.recv().await.expect("it goes on").expect_err("a fault");
        assert!(refused.message.ends_with("emitted query Syscall.Ping, which its manifest does not declare"));
    }
    handle.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_handler_whose_question_misses_its_own_schema_is_told() {
    let careless = Capability::new("Careless", "Asks for nonsense")
        .query("Careless.Ask", "Asks another", json!({}), |ctx, _| async move {
            let refused = ctx.query("Syscall.Ping", &json!("no object")).await.expect_err("a fault");
            // The engine has already answered the handler's own request: the event tells the test what the handler was
            // told.
            ctx.emit("Careless.Heard", &refused.message).await?;
            Err(refused)
        })
        .says(millrace_model::OsKind::Query, "Syscall.Ping", "Asks", Some(json!({"type": "object"})))
        .says(millrace_model::OsKind::Event, "Careless.Heard", "What it was told", None);
    let (listener, mut heard) = listener("Careless.Heard");
    let handle = started(KernelSettings::default(), vec![careless, listener]).await;
    let mut client = Client::of(&handle).await;
    for _ in 0..2 {
        assert_eq!(client.ask("query", "Careless.Ask", "1").await["data"]["code"], 500);
        let told = heard.recv().await.expect("it goes on");
        let told = told["data"].as_str().expect("a text");
        assert!(told.contains("emitted query Syscall.Ping that does not fit its schema"), "{told}");
    }
    handle.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn whoever_outlives_its_capability_and_asks_is_told() {
    let (go, told) = (Arc::new(Notify::new()), Arc::new(std::sync::Mutex::new(None)));
    let (wait, keep) = (go.clone(), told.clone());
    let handle = started(KernelSettings::default(), Vec::new()).await;
    let late =
        Capability::new("Late", "Answers first").command("Late.Begin", "Begins", json!({}), move |ctx, _| {
            let (wait, keep) = (wait.clone(), keep.clone());
            async move {
                let ghost = ctx.clone();
                let asks = tokio::spawn(async move {
                    wait.notified().await;
                    ghost.query("Syscall.Ping", &json!({ "payload": 1 })).await
                });
                *keep.lock().expect("nobody panics") = Some(asks);
                ctx.reply(&json!("begun"))
            }
        });
    let ids = handle.change(Vec::new(), vec![late]).await.expect("it is added");
    let mut client = Client::of(&handle).await;
    assert_eq!(client.ask("command", "Late.Begin", "1").await["data"], "begun");
    handle.change(ids, Vec::new()).await.expect("it is removed");
    assert_eq!(client.ask("command", "Late.Begin", "1").await["data"]["code"], 404);
    go.notify_one();
    let asks = told.lock().expect("nobody panics").take().expect("it was begun");
    let refused = asks.await.expect("it ends").expect_err("nobody asks");
    assert_eq!((refused.code, refused.message.as_str()), (503, "The capability that asks has been removed"));
    handle.stop(Duration::ZERO).await;
}
