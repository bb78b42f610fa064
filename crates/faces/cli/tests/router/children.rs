//! Child processes of the real binary: configuration, crashes, reload, the end of the server.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, fault, message};
use crate::server::{Server, eventually};

/// A folder of scripts that exists as long as the test.
pub struct Scripts(TempDir);

impl Scripts {
    pub fn new() -> Scripts {
        Scripts(TempDir::new().expect("a folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a child in Python that handles the query `NAME.Do` and what the manifest entries in `more` ask for.
    /// Returns its configuration.
    pub fn write(&self, name: &str, more: &Value, body: &str) -> String {
        let mut manifest =
            json!({"name": name, "inbound": [{"kind": "query", "type": format!("{name}.Do")}]});
        for (key, value) in more.as_object().expect("an object") {
            manifest[key] = value.clone();
        }
        let body = body.lines().fold(String::new(), |all, line| all + "    " + line + "\n");
        let text = format!(
            "import json, os, sys\n\
             def say(message):\n    print(json.dumps(message), flush=True)\n\
             def answer(kind, data):\n    \
                 say({{'kind': kind, 'type': message['type'], 'data': data, 'metadata': {{'causation': message['metadata']['id']}}}})\n\
             say(json.loads({manifest:?}))\n\
             for line in sys.stdin:\n    message = json.loads(line)\n{body}",
            manifest = manifest.to_string()
        );
        let path = self.path(&format!("{name}.py"));
        std::fs::write(&path, text).expect("a script");
        table(name, &["python3", path.to_str().expect("UTF-8")])
    }
}

pub fn table(name: &str, command: &[&str]) -> String {
    format!("[[capability]]\nname = {name:?}\ncommand = {command:?}\n")
}

fn example(name: &str, program: &str, path: &str) -> String {
    let path = format!("{}/../../../examples/capabilities/{path}", env!("CARGO_MANIFEST_DIR"));
    table(name, &[program, &path])
}

pub fn serve(config: &str, flags: &[&str]) -> Server {
    Server::with_log_level(config, &[&["--socket", "os.sock"], flags].concat(), "info")
}

/// Writes another configuration and reloads it over the socket.
fn reload(server: &Server, config: &str) -> Value {
    std::fs::write(server.folder().join("millrace.toml"), config).expect("a file");
    Client::of(server).ask("command", "Syscall.Reload", &json!({}))
}

pub fn is_alive(pid: &Value) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

#[test]
fn the_examples_do_what_they_say() {
    let config =
        example("Greeter", "python3", "python/greeter.py") + &example("Ledger", "node", "node/ledger.mjs");
    let server = serve(&config, &[]);
    let mut client = Client::of(&server);
    let hello = client.reply("query", "Greeter.Hello", &json!({"name": "Ada"}));
    assert_eq!(hello, json!({"text": "Hello, Ada"}));
    client.send("event", "User.Created", &json!({"name": "Ada"}));
    assert_eq!(client.reply("query", "Greeter.Count", &json!({})), json!({"users": 1}));
    eventually("its stderr is in the log", || server.log().contains("a user was created: {'name': 'Ada'}"));
    let described = client.reply("query", "Syscall.Describe", &json!({"name": "Greeter.Hello"}));
    assert_eq!(described["input"]["required"], json!(["name"]));
    for amount in [5, 7] {
        let payment = json!({"topic": "payments", "payload": {"amount": amount}});
        client.reply("command", "Bus.Publish", &payment);
    }
    eventually("both are acknowledged", || server.committed("payments", "os.Ledger", 0) == 2);
    assert_eq!(client.reply("query", "Ledger.Total", &json!({})), json!({"total": 12, "payments": 2}));
}

/// At the start, children run before timers fire.
#[test]
fn a_timer_that_was_due_while_the_server_was_down_reaches_a_child() {
    let scripts = Scripts::new();
    let config = scripts.write("A", &json!({}), "answer('reply', 'done')");
    let mut server = serve(&config, &[]);
    let mut client = Client::of(&server);
    let template = json!({"kind": "query", "type": "A.Do", "data": 1});
    let set = client.send("command", "Timer.Set", &json!({"delayMs": 150, "message": template}));
    assert_eq!(client.next()["kind"], "reply");
    server.kill_and_restart();
    let mut client = Client::of(&server);
    eventually("the child has answered", || {
        let found = client.reply("query", "Syscall.Trace", &json!({"id": set}));
        found["records"].as_array().is_some_and(|records| {
            assert!(records.iter().all(|record| record["step"] != "refused"), "{records:?}");
            records.iter().any(|record| record["kind"] == "reply" && record["from"] == "A")
        })
    });
}

#[test]
fn a_crash_costs_the_request_in_hand_and_four_crashes_the_capability() {
    let scripts = Scripts::new();
    let config =
        scripts.write("A", &json!({}), "if message['data'] == 'die': os._exit(3)\nanswer('reply', 'alive')");
    let server = serve(&config, &["--capability-restart-pause-ms", "10"]);
    let mut client = Client::of(&server);
    for _ in 0..3 {
        client.send("query", "A.Do", &json!("die"));
        client.send("query", "A.Do", &json!(1));
        let ended = (500, "Capability 'A' ended before it answered".to_owned());
        assert_eq!(fault(&client.next()), ended);
        assert_eq!(client.next()["data"], "alive", "what waited is answered by the next process");
    }
    client.refused("query", "A.Do", &json!("die"));
    eventually("it is unhealthy", || {
        let answer = client.ask("query", "A.Do", &json!(1));
        answer["data"]["code"] == 503
    });
    let (_, text) = client.refused("query", "A.Do", &json!(1));
    assert_eq!(
        text,
        "Capability 'A' is unhealthy: it was started again 3 times within 60000 ms (exit status: 3)"
    );
    assert!(server.log().contains("unhealthy"));
    // SIGHUP gives the capability another chance.
    server.signal("HUP");
    eventually("it is well again", || client.ask("query", "A.Do", &json!(1))["data"] == "alive");
}

#[test]
fn a_server_whose_capability_cannot_start_does_not_start() {
    let scripts = Scripts::new();
    let folder = TempDir::new().expect("a folder");
    let fails = |config: &str| {
        std::fs::write(folder.path().join("millrace.toml"), config).expect("a file");
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--socket", "none"])
            .args(["--config", "millrace.toml"])
            .current_dir(folder.path())
            .output()
            .expect("the binary runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let good = scripts.write("Good", &json!({}), "pass");
    let (code, said) = fails(&(good.clone() + &table("Bad", &["/nowhere/program"])));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("capability 'Bad': cannot start \"/nowhere/program\""), "{said}");
    let path = scripts.path("noisy.py");
    std::fs::write(&path, "print('starting up')").expect("a script");
    let (code, said) = fails(&table("Noisy", &["python3", path.to_str().expect("UTF-8")]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("capability 'Noisy': its first line is no manifest"), "{said}");
    let taken =
        scripts.write("Rude", &json!({"inbound": [{"kind": "query", "type": "Syscall.Ping"}]}), "pass");
    let (code, said) = fails(&taken);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("query Syscall.Ping is claimed by \"Syscall\" and by \"Rude\""), "{said}");
    let (code, said) = fails("[[capability]]\nname = \"A\"\n");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("capability[0]: command is missing"), "{said}");
}

#[test]
fn a_reload_adds_replaces_and_removes_and_a_bad_one_changes_nothing() {
    let scripts = Scripts::new();
    let a = scripts.write("A", &json!({}), "answer('reply', 'first')");
    let server = serve(&a, &[]);
    let mut client = Client::of(&server);
    assert_eq!(client.reply("query", "A.Do", &json!(1)), "first");
    let b = scripts.write("B", &json!({}), "answer('reply', os.environ['WHO'])") + "env = { WHO = \"me\" }\n";
    let reply = reload(&server, &(a.clone() + &b));
    assert_eq!(
        reply["data"]["message"],
        "0 tokens, 0 revoked; capabilities added: B; replaced: none; removed: none"
    );
    assert_eq!(client.reply("query", "B.Do", &json!(1)), "me");
    // An edited script counts as a changed capability.
    let a = scripts.write("A", &json!({}), "answer('reply', 'the second')");
    let reply = reload(&server, &(a.clone() + &b));
    assert_eq!(
        reply["data"]["message"],
        "0 tokens, 0 revoked; capabilities added: none; replaced: A; removed: none"
    );
    assert_eq!(client.reply("query", "A.Do", &json!(1)), "the second");
    for bad in
        [a.clone() + &table("C", &["/nowhere/program"]), "[[capability]]\n".to_owned(), "no TOML".to_owned()]
    {
        let refused = fault(&reload(&server, &bad));
        assert!(refused.0 == 422 && refused.1.starts_with("not reloaded: "), "{}", refused.1);
        assert_eq!(client.reply("query", "A.Do", &json!(1)), "the second");
        assert_eq!(client.reply("query", "B.Do", &json!(1)), "me");
    }
    let reply = reload(&server, &a);
    assert_eq!(
        reply["data"]["message"],
        "0 tokens, 0 revoked; capabilities added: none; replaced: none; removed: B"
    );
    assert_eq!(client.refused("query", "B.Do", &json!(1)).0, 404);
}

#[test]
fn reloads_under_load_lose_no_request() {
    let scripts = Scripts::new();
    let version = |n: u32| {
        scripts.write("A", &json!({}), &format!("answer('reply', {n})"))
            + &format!("env = {{ N = \"{n}\" }}\n")
    };
    let server = serve(&version(0), &[]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask = |who: u32| {
            let (mut client, mut answers) = (Client::of(&server), 0);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for n in 0..16 {
                    client.write(message("query", "A.Do", "1", &format!("{who}/{}", answers + n)) + "\n");
                }
                for _ in 0..16 {
                    let answer = client.next();
                    assert_eq!(answer["kind"], "reply", "{answer}");
                    answers += 1;
                }
            }
            answers
        };
        let asking: Vec<_> = (0..2).map(|who| scope.spawn(move || ask(who))).collect();
        for n in 1..=5 {
            let reply = reload(&server, &version(n));
            assert_eq!(reply["kind"], "reply", "{reply}");
            assert_eq!(
                Client::of(&server).reply("query", "A.Do", &json!(1)),
                n,
                "the new one answers at once"
            );
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for answers in asking {
            assert!(answers.join().expect("every request was answered by a reply") > 0);
        }
    });
}

#[test]
fn children_end_with_the_server_also_when_it_is_killed() {
    let scripts = Scripts::new();
    let config = scripts.write("A", &json!({}), "answer('reply', os.getpid())");
    let mut server = serve(&config, &[]);
    let first = Client::of(&server).reply("query", "A.Do", &json!(1));
    assert!(is_alive(&first));
    server.kill_and_restart();
    eventually("the child has ended", || !is_alive(&first));
    let second = Client::of(&server).reply("query", "A.Do", &json!(1));
    assert_ne!(first, second);
    assert_eq!(server.terminate(), Some(0));
    assert!(!is_alive(&second), "it has ended before the server");
}

#[test]
fn an_event_in_hand_when_the_server_is_killed_comes_again_with_the_same_id() {
    let scripts = Scripts::new();
    let log = scripts.path("seen");
    let body = format!(
        "if message['type'] == 'A.Do':\n    answer('reply', None)\n    continue\n\
         with open({log:?}, 'a') as seen: print(message['metadata']['id'], message['data']['payload'], file=seen)\n\
         if not os.path.exists({gate:?}): sys.stdin.read()\n\
         answer('reply', None)",
        gate = scripts.path("gate"),
    );
    let config = scripts.write("A", &json!({"bus": [{"topic": "t", "from": "earliest"}]}), &body);
    let mut server = serve(&config, &[]);
    let event = json!({"topic": "t", "payload": "x", "id": "the-one"});
    Client::of(&server).reply("command", "Bus.Publish", &event);
    let seen = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("the child has it in hand", || seen() == "the-one x\n");
    server.kill();
    std::fs::write(scripts.path("gate"), "").expect("a file");
    server.restart();
    eventually("it was acknowledged", || server.committed("t", "os.A", 0) == 1);
    assert_eq!(seen(), "the-one x\nthe-one x\n");
}

#[test]
fn a_stop_of_the_server_costs_an_event_no_attempt() {
    let scripts = Scripts::new();
    let log = scripts.path("seen");
    let body = format!(
        "if message['type'] == 'A.Do':\n    answer('reply', None)\n    continue\n\
         with open({log:?}, 'a') as seen: print(message['data'].get('attempts', 1), file=seen)\n\
         if not os.path.exists({gate:?}): sys.stdin.read()\n\
         answer('reply', None)",
        gate = scripts.path("gate"),
    );
    let config = scripts.write("A", &json!({"bus": [{"topic": "t", "from": "earliest"}]}), &body);
    let mut server = serve(&config, &["--max-attempts", "2"]);
    Client::of(&server).reply("command", "Bus.Publish", &json!({"topic": "t", "payload": 1}));
    let seen = || std::fs::read_to_string(&log).unwrap_or_default();
    for stops in 1..=3 {
        eventually("the child has it in hand", || seen() == "1\n".repeat(stops));
        assert_eq!(server.terminate(), Some(0));
        if stops == 3 {
            std::fs::write(scripts.path("gate"), "").expect("a file");
        }
        server.restart();
    }
    eventually("it was acknowledged", || server.committed("t", "os.A", 0) == 1);
    assert_eq!(seen(), "1\n".repeat(4));
}

#[test]
fn the_configuration_is_shown_without_secrets() {
    let folder = TempDir::new().expect("a folder");
    let config = "[[capability]]\nname = \"A\"\ncommand = \"python3 'a b.py'\"\nenv = { KEY = \"s3cret\" }\n";
    std::fs::write(folder.path().join("millrace.toml"), config).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["config", "print", "--json", "--config", "millrace.toml"])
        .current_dir(folder.path())
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    let expected = "name=A command=python3 'a b.py' restart=true env=KEY";
    assert_eq!(shown["capability[0]"], json!({"value": expected, "from": "file millrace.toml"}));
    assert_eq!(shown["capability-restarts-max"]["value"], 3);
    assert!(!text.contains("s3cret"));
}

#[test]
fn a_child_that_ends_while_nothing_was_asked_of_it_left_nothing_unanswered() {
    let scripts = Scripts::new();
    let config = scripts.write("A", &json!({}), "answer('reply', os.getpid())");
    let server = serve(&config, &["--capability-restart-pause-ms", "10"]);
    let mut client = Client::of(&server);
    let pid = client.ask("query", "A.Do", &json!(1))["data"].as_u64().expect("a process");
    Command::new("kill").args(["-9", &pid.to_string()]).status().expect("a signal");
    eventually("its end is told", || server.log().contains("Sys.CapabilityDown"));
    assert_ne!(client.ask("query", "A.Do", &json!(1))["data"].as_u64(), Some(pid), "another life");
    let log = server.log();
    assert!(log.contains("Capability 'A' ended: signal: 9") && !log.contains("before it answered"), "{log}");
}
