//! Tokens on the Unix socket.

use serde_json::json;

use crate::client::{Client, fault, ping};
use crate::server::Server;

const TOKENS: &str = "[[auth.tokens]]\ntoken = \"worker-secret\"\nagent = \"worker\"\nscopes = [\"os\"]\n\
                      [[auth.tokens]]\ntoken = \"boss-secret\"\nagent = \"boss\"\nscopes = [\"admin\"]\n\
                      [[auth.tokens]]\ntoken = \"bus-secret\"\nagent = \"bus\"\nscopes = [\"publish\"]\n";

fn strict(flags: &[&str]) -> Server {
    Server::with_config(TOKENS, &[&["--socket", "os.sock", "--require-auth"], flags].concat())
}

#[test]
fn whoever_does_not_begin_with_a_valid_token_is_sent_away() {
    let server = strict(&[]);
    let wrong = [
        ping("first", "1"),
        crate::client::message("command", "Syscall.Authenticate", "{}", "first"),
        crate::client::message("command", "Syscall.Authenticate", r#"{"token":"guess"}"#, "first"),
    ];
    for line in wrong {
        let mut client = Client::of(&server);
        client.write(line + "\n");
        let answer = client.next();
        let (code, said) = fault(&answer);
        assert_eq!((code, &answer["metadata"]["causation"]), (401, &json!("first")));
        assert!(
            said.starts_with("Authentication required: First message must be Syscall.Authenticate"),
            "{said}"
        );
        client.ends();
    }
}

#[test]
fn a_token_without_the_scope_is_told_which_one_it_lacks() {
    let expected = (403, "Forbidden: the token of agent bus has no scope os".to_owned());
    let server = strict(&[]);
    let mut client = Client::of(&server);
    assert_eq!(client.refused("command", "Syscall.Authenticate", &json!({"token": "bus-secret"})), expected);
    client.ends();
    // Where no token is needed, a refused token does not close the connection.
    let server = Server::with_config(TOKENS, &["--socket", "os.sock"]);
    let mut client = Client::of(&server);
    assert_eq!(client.refused("command", "Syscall.Authenticate", &json!({"token": "bus-secret"})), expected);
    client.still_works();
}

#[test]
fn a_token_that_is_shown_later_counts_from_then_on() {
    let config = TOKENS.to_owned()
        + "[[auth.tokens]]\ntoken = \"worker-large\"\nagent = \"worker\"\nscopes = [\"os\", \"publish\"]\n";
    let server = Server::with_config(&config, &["--socket", "os.sock"]);
    let publish = json!({"topic": "t", "payload": 1});
    let show = |client: &mut Client, token: &str| {
        client.ask("command", "Syscall.Authenticate", &json!({ "token": token }))["data"].clone()
    };
    let mut client = Client::of(&server);
    assert_eq!(
        client.reply("command", "Bus.Publish", &publish)["offset"],
        1,
        "the file's owner may do anything"
    );
    assert_eq!(show(&mut client, "worker-secret")["message"], "You are worker");
    assert_eq!(client.refused("command", "Bus.Publish", &publish).0, 403, "a worker may not");
    assert_eq!(show(&mut client, "guess")["code"], 401);
    assert_eq!(
        show(&mut client, "boss-secret"),
        json!({"code": 403, "message": "Forbidden: this connection is of agent worker: open a new one for agent boss"})
    );
    assert_eq!(client.refused("command", "Syscall.Shutdown", &json!({})).0, 403, "it did not become boss");
    assert_eq!(show(&mut client, "worker-large")["message"], "You are worker");
    assert_eq!(client.reply("command", "Bus.Publish", &publish)["offset"], 2);
}

/// A refused publish is in the audit, whichever way it came.
#[test]
fn refusals_of_the_loop_are_audited() {
    let config = TOKENS.to_owned()
        + "[[auth.tokens]]\ntoken = \"eve-secret\"\nagent = \"eve\"\nscopes = [\"os\", \"publish\"]\nnamespaces = [\"default\"]\n";
    let server = Server::with_config(
        &config,
        &["--socket", "os.sock", "--require-auth", "--audit", "refusals,publish"],
    );
    let list = json!({"topic": "t", "publishACL": ["boss"]});
    assert_eq!(server.request_as("boss-secret", "POST", "/topics", &list).0, 201);
    let publish = json!({"topic": "t", "payload": 1});
    let mut eve = Client::of(&server);
    eve.reply("command", "Syscall.Authenticate", &json!({"token": "eve-secret"}));
    assert_eq!(eve.refused("command", "Bus.Publish", &publish).0, 403);
    let elsewhere = json!({"topic": "u", "payload": 1, "namespace": "blue"});
    assert_eq!(eve.refused("command", "Bus.Publish", &elsewhere).0, 403);
    let mut worker = Client::of(&server);
    worker.reply("command", "Syscall.Authenticate", &json!({"token": "worker-secret"}));
    assert_eq!(worker.refused("command", "Bus.Publish", &publish).0, 403);
    let mut web =
        crate::socket::Socket::open_as(&(server.ws_url() + "os"), "worker-secret").expect("a socket");
    web.send_text(&crate::client::message("command", "Bus.Publish", &publish.to_string(), "w"));
    assert_eq!(web.next()["data"]["code"], 403);
    let mut boss = Client::of(&server);
    boss.reply("command", "Syscall.Authenticate", &json!({"token": "boss-secret"}));
    boss.reply("command", "Bus.Publish", &publish);
    let mut records = Vec::new();
    crate::server::eventually("all five are in the audit", || {
        let path = "/topics/system.bus.audit/events?limit=1000";
        let (_, page) = server.request_as("boss-secret", "GET", path, &json!(null));
        let events = page["events"].as_array().expect("events").clone();
        let of_loop = |event: &serde_json::Value| {
            event["payload"]["what"] == "Bus.Publish" || event["payload"]["kind"] == "published"
        };
        records =
            events.iter().filter(|event| of_loop(event)).map(|event| event["payload"].clone()).collect();
        records.len() >= 5
    });
    let agents: Vec<&str> = records.iter().filter_map(|record| record["agent"].as_str()).collect();
    assert_eq!(agents, ["eve", "eve", "worker", "worker", "boss"], "{records:?}");
    let shown: Vec<_> = records.iter().map(|one| (one["kind"].as_str(), one["code"].as_str())).collect();
    let refused = (Some("refused"), Some("forbidden"));
    assert_eq!(shown, [refused, refused, refused, refused, (Some("published"), None)]);
    assert_eq!((&records[0]["topic"], &records[0]["namespace"]), (&json!("t"), &json!("default")));
    assert!(records[3]["peer"].is_string(), "of a WebSocket it is known where it came from");
}

#[test]
fn a_timer_is_cancelled_only_by_whoever_set_it() {
    let mut server = strict(&[]);
    let come_in = |server: &Server, token: &str| {
        let mut client = Client::of(server);
        client.reply("command", "Syscall.Authenticate", &json!({ "token": token }));
        client
    };
    let template = json!({"kind": "event", "type": "No.Body", "data": 1});
    let set = json!({"delayMs": 3_600_000, "message": template});
    let mut worker = come_in(&server, "worker-secret");
    let timers: Vec<_> = (0..2).map(|_| worker.reply("command", "Timer.Set", &set)).collect();
    let cancelled = |client: &mut Client, timer: &serde_json::Value| {
        client.reply("command", "Timer.Cancel", timer)["cancelled"] == true
    };
    assert!(
        !cancelled(&mut come_in(&server, "boss-secret"), &timers[0]),
        "another agent, as if it were not there"
    );
    drop(worker);
    assert!(cancelled(&mut come_in(&server, "worker-secret"), &timers[0]), "the same agent, come again");
    server.kill_and_restart();
    assert!(!cancelled(&mut come_in(&server, "boss-secret"), &timers[1]));
    assert!(cancelled(&mut come_in(&server, "worker-secret"), &timers[1]), "also after a restart");
}

#[test]
fn with_a_token_the_connection_is_its_agents_and_only_admins_stop_the_server() {
    let mut server = strict(&[]);
    let mut worker = Client::of(&server);
    let reply = worker.reply("command", "Syscall.Authenticate", &json!({"token": "worker-secret"}));
    assert_eq!(reply, json!({"authenticated": true, "message": "You are worker"}));
    worker.still_works();
    assert_eq!(worker.refused("command", "Syscall.Shutdown", &json!({})).0, 403);
    assert_eq!(worker.refused("command", "Syscall.Reload", &json!({})).0, 403);
    assert_eq!(worker.refused("command", "Syscall.Authenticate", &json!({"token": "guess"})).0, 401);
    worker.still_works();
    let mut boss = Client::of(&server);
    boss.reply("command", "Syscall.Authenticate", &json!({"token": "boss-secret"}));
    boss.reply("command", "Syscall.Shutdown", &json!({}));
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn what_a_token_may_not_ask_its_timers_may_not_ask_either() {
    let server = strict(&[]);
    let mut worker = Client::of(&server);
    worker.reply("command", "Syscall.Authenticate", &json!({"token": "worker-secret"}));
    let publish = json!({"topic": "t", "payload": 1});
    assert_eq!(worker.refused("command", "Bus.Publish", &publish).0, 403, "it has no scope publish");
    for (ty, data) in [("Syscall.Shutdown", json!({})), ("Bus.Publish", publish)] {
        let template = json!({"kind": "command", "type": ty, "data": data});
        let once = json!({"delayMs": 0, "message": template});
        assert_eq!(worker.refused("command", "Timer.Set", &once).0, 403, "{ty}");
        let nested = json!({"delayMs": 0, "message": {"kind": "command", "type": "Timer.Set", "data": once}});
        assert_eq!(worker.refused("command", "Timer.Set", &nested).0, 403, "{ty}, nested");
    }
    worker.still_works();
}

/// An access list is checked for the agent that set the timer, or that sent the command and closed its connection.
#[test]
fn access_lists_hold_for_timers_and_for_those_who_hang_up() {
    const WITH_LIST: &str = "[[auth.tokens]]\ntoken = \"eve-secret\"\nagent = \"eve\"\nscopes = [\"os\", \"publish\"]\n\
                             [[auth.tokens]]\ntoken = \"boss-secret\"\nagent = \"boss\"\nscopes = [\"admin\", \"subscribe\"]\n";
    let server = Server::with_config(WITH_LIST, &["--socket", "os.sock", "--require-auth"]);
    let made =
        server.request_as("boss-secret", "POST", "/topics", &json!({"topic": "t", "publishACL": ["boss"]}));
    assert!(made.0 < 300, "{made:?}");
    let publish = json!({"topic": "t", "payload": 1});
    let mut eve = Client::of(&server);
    eve.reply("command", "Syscall.Authenticate", &json!({"token": "eve-secret"}));
    assert_eq!(eve.refused("command", "Bus.Publish", &publish).0, 403);
    let template = json!({"kind": "command", "type": "Bus.Publish", "data": publish});
    eve.reply("command", "Timer.Set", &json!({"delayMs": 0, "message": template}));
    let mut gone = Client::of(&server);
    gone.reply("command", "Syscall.Authenticate", &json!({"token": "eve-secret"}));
    for _ in 0..300 {
        gone.send("query", "Syscall.Ping", &json!({"payload": 1}));
    }
    gone.send("command", "Bus.Publish", &publish);
    drop(gone);
    // These requests are queued after both.
    for _ in 0..50 {
        eve.still_works();
    }
    let (_, page) = server.request_as("boss-secret", "GET", "/topics/t/offsets", &json!(null));
    assert_eq!(page["partitions"][0]["next"], 1, "nothing was published: {page}");
}

#[test]
fn a_token_that_is_taken_away_is_noticed_on_the_socket() {
    let server = strict(&[]);
    let mut worker = Client::of(&server);
    worker.reply("command", "Syscall.Authenticate", &json!({"token": "worker-secret"}));
    let rest = TOKENS.split_once("[[auth.tokens]]\ntoken = \"boss").expect("three tokens").1;
    let config = format!("[[auth.tokens]]\ntoken = \"boss{rest}");
    std::fs::write(server.folder().join("millrace.toml"), config).expect("a file");
    let mut boss = Client::of(&server);
    boss.reply("command", "Syscall.Authenticate", &json!({"token": "boss-secret"}));
    boss.reply("command", "Syscall.Reload", &json!({}));
    assert_eq!(worker.refused("query", "Syscall.Ping", &json!({"payload": 1})).0, 401);
    worker.ends();
    boss.still_works();
}

#[test]
fn send_and_trace_show_a_token() {
    let server = strict(&[]);
    let run = |args: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(args)
            .args(["--socket", &crate::client::path(&server).to_string_lossy()])
            .output()
            .expect("the binary runs")
    };
    let ping = ping("a", "1");
    let sent = run(&["send", &ping, "--token", "worker-secret"]);
    let shown = String::from_utf8_lossy(&sent.stdout).into_owned();
    assert_eq!((sent.status.code(), shown.lines().count()), (Some(0), 1), "{sent:?}");
    assert!(shown.contains(r#""causation":"a""#), "the answer to the message, not to the token: {shown}");
    let traced = run(&["trace", "--id", "a", "--token", "worker-secret"]);
    assert!(String::from_utf8_lossy(&traced.stdout).contains("query Syscall.Ping a"), "{traced:?}");
    for args in [&["send", ping.as_str()][..], &["send", &ping, "--token", "guess"], &["trace", "--id", "a"]]
    {
        assert_eq!(run(args).status.code(), Some(1), "{args:?}");
    }
}

#[test]
fn whoever_says_nothing_is_not_waited_for_for_ever() {
    let server = strict(&["--os-auth-ms-max", "50"]);
    Client::of(&server).ends();
}

#[test]
fn without_require_auth_the_file_mode_is_the_lock() {
    let server = Server::with_config(TOKENS, &["--socket", "os.sock"]);
    Client::of(&server).still_works();
}

#[test]
fn nothing_is_sent_after_a_token_that_is_refused() {
    let server = Server::with_config(TOKENS, &["--socket", "os.sock"]);
    let send = |token: &str| {
        let publish = r#"{"kind":"command","type":"Bus.Publish","data":{"topic":"t","payload":1}}"#;
        std::process::Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["send", publish, "--token", token])
            .args(["--socket", &crate::client::path(&server).to_string_lossy()])
            .output()
            .expect("the binary runs")
    };
    for (token, said) in
        [("guess", "the token is not accepted (401)"), ("bus-secret", "has no scope os (403)")]
    {
        let ran = send(token);
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0), "{ran:?}");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(stderr.contains(said) && stderr.contains("nothing was sent"), "{stderr}");
    }
    let (_, list) = server.request_as("boss-secret", "GET", "/topics", &json!(null));
    assert!(crate::server::user_topics(&list).is_empty(), "{list}");
}
