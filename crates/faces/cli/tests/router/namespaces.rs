//! Namespaces separate the loop's data: Memory, its vault and traces of one namespace are invisible to another. And a
//! timer may do what its agent may do when it is due.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::client::Client;
use crate::server::{Server, eventually};

fn token(agent: &str, scopes: &str, namespaces: &str) -> String {
    format!(
        "[[auth.tokens]]\ntoken = \"{agent}-secret\"\nagent = \"{agent}\"\nscopes = [{scopes}]\nnamespaces = [{namespaces}]\n"
    )
}

fn tokens() -> String {
    [
        token("ann", "\"os\", \"publish\"", "\"eu\""),
        token("bob", "\"os\", \"publish\"", "\"us\", \"eu\""),
        token("cid", "\"os\"", "\"default\""),
        token("root", "\"admin\"", "\"*\""),
    ]
    .concat()
}

/// Returns a value of `/metrics`, which needs a token here.
fn metric(server: &Server, name: &str) -> f64 {
    let (status, text) = server.request_as("root-secret", "GET", "/metrics", &json!(null));
    assert_eq!(status, 200, "{text}");
    let text = text.as_str().expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("millrace_{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn serve(flags: &[&str]) -> Server {
    Server::with_config(&tokens(), &[&["--socket", "os.sock"], flags].concat())
}

fn enter(server: &Server, agent: &str) -> Client {
    let mut client = Client::of(server);
    client.reply("command", "Syscall.Authenticate", &json!({"token": format!("{agent}-secret")}));
    client
}

fn set(client: &mut Client, key: &str, value: &Value) {
    client.reply("command", "Memory.Set", &json!({"key": key, "value": value}));
}

fn get(client: &mut Client, key: &str) -> Value {
    client.reply("query", "Memory.Get", &json!({"key": key}))
}

#[test]
fn memory_and_vault_of_one_namespace_are_not_anothers() {
    let mut server = serve(&[]);
    // A client without a token, as before there were namespaces, uses `default`.
    let mut owner = Client::of(&server);
    set(&mut owner, "/a", &json!("default"));
    set(&mut owner, "/vault/key", &json!("pwenc:v1:default"));
    let (mut ann, mut bob) = (enter(&server, "ann"), enter(&server, "bob"));
    for client in [&mut ann, &mut bob] {
        assert_eq!((get(client, "/a"), get(client, "/vault/key")), (Value::Null, Value::Null));
        assert_eq!(client.reply("query", "Memory.List", &json!({})), json!({}));
        // Deleting a key that does not exist is no error, and deletes nothing in another namespace.
        client.reply("command", "Memory.Delete", &json!({"key": "/a"}));
    }
    set(&mut ann, "/a", &json!("eu"));
    set(&mut bob, "/a", &json!("us"));
    let sealed = ann.refused("command", "Memory.Set", &json!({"key": "/vault/key", "value": "open"}));
    assert!(sealed.1.starts_with("E_VAULT_REQUIRES_PWENC"), "{sealed:?}");
    server.kill_and_restart();
    let (mut ann, mut bob, mut cid) = (enter(&server, "ann"), enter(&server, "bob"), enter(&server, "cid"));
    let mut owner = Client::of(&server);
    let found = [&mut ann, &mut bob, &mut cid, &mut owner].map(|client| get(client, "/a"));
    assert_eq!(found, ["eu", "us", "default", "default"].map(Value::from));
    assert_eq!(get(&mut cid, "/vault/key"), "pwenc:v1:default", "what was there before belongs to default");
    // A token with several namespaces may name one of them; no token may name another, on any way in.
    let of = |namespace: &str| json!({"key": "/a", "namespace": namespace});
    assert_eq!(bob.reply("query", "Memory.Get", &of("eu")), "eu");
    assert_eq!(owner.reply("query", "Memory.Get", &of("us")), "us");
    let mut root = enter(&server, "root");
    assert_eq!(
        (get(&mut root, "/a"), root.reply("query", "Memory.Get", &of("us"))),
        (json!("default"), json!("us"))
    );
    let forbidden = (403, "Forbidden: the token is not for namespace us".to_owned());
    for (kind, ty) in [
        ("query", "Memory.Get"),
        ("query", "Memory.List"),
        ("command", "Memory.Set"),
        ("command", "Memory.Delete"),
    ] {
        let data = json!({"key": "/a", "value": 1, "namespace": "us"});
        assert_eq!(ann.refused(kind, ty, &data), forbidden, "{ty}");
        let later = json!({"delayMs": 1, "message": {"kind": kind, "type": ty, "data": data}});
        assert_eq!(ann.refused("command", "Timer.Set", &later), forbidden, "a timer with {ty}");
    }
    let mut web = crate::socket::Socket::open_as(&(server.ws_url() + "os?namespace=eu"), "ann-secret")
        .expect("a socket");
    web.send_text(&crate::client::message("query", "Memory.Get", &of("us").to_string(), "w"));
    assert_eq!(web.next()["data"]["code"], 403);
    web.send_text(&crate::client::message("query", "Memory.Get", r#"{"key":"/a"}"#, "x"));
    assert_eq!(web.next()["data"], "eu");
    assert_eq!(root.refused("query", "Memory.Get", &of("a b")).0, 422);
    assert_eq!(bob.reply("query", "Memory.Get", &of("us")), "us", "nothing was changed");
}

#[test]
fn traces_of_one_namespace_are_not_anothers_live_and_stored() {
    let mut server = serve(&["--trace-store"]);
    let mut ids = Vec::new();
    for agent in ["ann", "bob", "cid"] {
        let mut client = enter(&server, agent);
        ids.push(client.ask("query", "Memory.Get", &json!({"key": "/a"}))["metadata"]["causation"].clone());
    }
    let sees = |client: &mut Client| {
        let mut found = Vec::new();
        for id in &ids {
            let page = client.reply("query", "Syscall.Trace", &json!({"id": id}));
            found.push(page["records"].as_array().expect("records").len());
        }
        found
    };
    // Each sees the request and its reply; ann does not see what bob did, because bob may act in a namespace that she
    // may not.
    assert_eq!(sees(&mut enter(&server, "ann")), [2, 0, 0]);
    assert_eq!(sees(&mut enter(&server, "bob")), [2, 2, 0]);
    assert_eq!(sees(&mut enter(&server, "cid")), [0, 0, 2]);
    assert_eq!(sees(&mut enter(&server, "root")), [2, 2, 2]);
    assert_eq!(sees(&mut Client::of(&server)), [2, 2, 2]);
    // Each request, its reply, and the same for the `Syscall.Authenticate` and `Syscall.Trace` around them.
    let kept = |namespace: &str| {
        let path = format!("/topics/system.router.trace/events?limit=1000&namespace={namespace}");
        server.request_as("root-secret", "GET", &path, &json!(null)).1.to_string()
    };
    for (namespace, id) in ["eu", "us", "default"].iter().zip(&ids) {
        let reply = format!("\"causation\":{id}");
        eventually("the trace is kept", || kept(namespace).contains(&reply));
    }
    assert_eq!(server.terminate(), Some(0));
    let stored = |namespace: &str, id: &Value| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args([
            "trace",
            "--stored",
            "--json",
            "--namespace",
            namespace,
            "--store",
            &server.store_url(),
        ]);
        let ran = command.args(["--id", id.as_str().expect("an id")]).output().expect("the binary runs");
        String::from_utf8_lossy(&ran.stdout).lines().count()
    };
    let counts = |namespace: &str| ids.iter().map(|id| stored(namespace, id)).collect::<Vec<_>>();
    // Each record is kept in the namespace where its agent acts by default.
    assert_eq!(
        (counts("eu"), counts("us"), counts("default")),
        (vec![2, 0, 0], vec![0, 2, 0], vec![0, 0, 2])
    );
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Sets two timers that are due at `due`: one publishes `payload`, one stores it in Memory.
fn put_off(client: &mut Client, due: u64, payload: &str) {
    let data = json!({"topic": "t", "payload": payload, "namespace": "eu"});
    for message in [
        json!({"kind": "command", "type": "Bus.Publish", "data": data}),
        json!({"kind": "command", "type": "Memory.Set", "data": {"key": format!("/{payload}"), "value": 1}}),
    ] {
        client.reply("command", "Timer.Set", &json!({"dueAt": due, "message": message}));
    }
}

fn published(server: &Server) -> Vec<Value> {
    let page = server.request_as("root-secret", "GET", "/topics/t/events?namespace=eu", &json!(null)).1;
    let events = page["events"].as_array().cloned().unwrap_or_default();
    events.iter().map(|event| event["payload"].clone()).collect()
}

/// Revokes ann's token, by a reload or by a restart.
fn revoke_ann(server: &mut Server, restarts: bool) {
    let without = tokens().replace("ann-secret", "other-secret").replace("\"ann\"", "\"other\"");
    std::fs::write(server.folder().join("millrace.toml"), without).expect("a file");
    if restarts {
        server.kill();
        server.restart_with_log();
        return;
    }
    server.signal("HUP");
    eventually("ann is revoked", || {
        server.request_as("ann-secret", "GET", "/topics?namespace=eu", &json!(null)).0 == 401
    });
}

/// Returns a server with timers of ann that are not due yet and were set before her token was revoked. On a busy
/// machine they may become due too early: then the function retries with more time.
fn with_timers_of_revoked(restarts: bool) -> Server {
    let attempts = (0..).map(|attempt| {
        let mut server = serve(&["--audit", "refusals"]);
        let due = now_ms() + (2000u64 << attempt);
        put_off(&mut enter(&server, "ann"), due, "ann");
        revoke_ann(&mut server, restarts);
        (now_ms() < due).then_some(server)
    });
    attempts.flatten().next().expect("one attempt is in time")
}

#[test]
fn timers_of_a_token_that_is_gone_do_not_act() {
    for restarts in [false, true] {
        let mut server = with_timers_of_revoked(restarts);
        let mut bob = enter(&server, "bob");
        put_off(&mut bob, now_ms() + 1, "bob");
        eventually("bob's timer acts", || published(&server) == ["bob"]);
        eventually("ann's are given up", || metric(&server, "os_timers_refused_total") > 1.5);
        eventually("nothing is left of them", || metric(&server, "os_timers") < 0.5);
        assert_eq!(published(&server), ["bob"], "what a revoked token put off is not published");
        let mut root = enter(&server, "root");
        let kept = root.reply("query", "Memory.Get", &json!({"key": "/ann", "namespace": "eu"}));
        assert_eq!(kept, Value::Null);
        let log = server.log();
        assert!(log.contains("no token of agent ann with the scope os is accepted any more"), "{log}");
        assert!(log.contains("Sys.TimerRefused"), "{log}");
        eventually("it is audited", || {
            let path = "/topics/system.bus.audit/events?limit=1000";
            let audit = server.request_as("root-secret", "GET", path, &json!(null)).1.to_string();
            audit.contains("a timer was not sent") && audit.contains("Bus.Publish")
        });
        // The timers are gone for good, even if the token returns.
        std::fs::write(server.folder().join("millrace.toml"), tokens()).expect("a file");
        server.kill_and_restart();
        assert!(metric(&server, "os_timers") < 0.5);
        assert_eq!(published(&server), ["bob"]);
    }
}

#[test]
fn a_timer_goes_on_with_another_token_of_its_agent_and_with_what_that_may_do() {
    let server = serve(&[]);
    let far = now_ms() + 3_600_000;
    let mut ann = enter(&server, "ann");
    let data = json!({"topic": "t", "payload": 1, "namespace": "eu"});
    let publish = json!({"kind": "command", "type": "Bus.Publish", "data": data});
    let chained = json!({"kind": "command", "type": "Timer.Set", "data": {"delayMs": 1, "message": publish}});
    ann.reply("command", "Timer.Set", &json!({"dueAt": far, "message": chained}));
    // The same agent with another secret, and without the scope to publish.
    let config = tokens().replace("ann-secret", "ann2-secret").replacen("\"os\", \"publish\"", "\"os\"", 1);
    std::fs::write(server.folder().join("millrace.toml"), config).expect("a file");
    server.signal("HUP");
    eventually("the new token counts", || {
        let mut client = Client::of(&server);
        client.ask("command", "Syscall.Authenticate", &json!({"token": "ann2-secret"}))["kind"] == "reply"
    });
    let mut ann = enter(&server, "ann2");
    let message = json!({"kind": "command", "type": "Memory.Set", "data": {"key": "/later", "value": 1}});
    ann.reply("command", "Timer.Set", &json!({"delayMs": 1, "message": message}));
    eventually("it acts", || get(&mut ann, "/later") == 1);
    assert_eq!(ann.refused("command", "Timer.Set", &json!({"delayMs": 1, "message": publish})).0, 403);
    assert_eq!(metric(&server, "os_timers_refused_total"), 0.0);
}
