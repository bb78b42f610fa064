//! Child processes: which messages they are handed, what happens to their output, and how they end and are started
//! again.

mod harness;

use harness::{Client, Harness, command, doer, example, fault, limits, python};
use millrace_bus::BusLimits;
use millrace_child::{Changed, Child, ChildLimits, ChildSettings};
use millrace_kernel::Capability;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn the_example_in_python_answers_and_listens() {
    let mut harness = Harness::new().await;
    harness.run(vec![example("Greeter", "python3", "python/greeter.py")]).await;
    let mut client = harness.client().await;
    assert_eq!(client.query("Greeter.Hello", &json!({"name": "Ada"})).await, json!({"text": "Hello, Ada"}));
    let (code, text) = client.refused("Greeter.Hello", &json!({"nam": 1})).await;
    assert_eq!(
        (code, text.as_str()),
        (422, "Schema validation failed: data: \"name\" is a required property")
    );
    client.send("event", "User.Created", &json!({"name": "Ada"})).await;
    client.send("event", "User.Created", &json!({"name": "Bea"})).await;
    assert_eq!(client.query("Greeter.Count", &json!({})).await, json!({"users": 2}));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_handed_over_one_at_a_time_and_in_order() {
    let mut harness = Harness::new().await;
    // Reads everything that was written to it meanwhile with one read.
    let path = harness.path("raw.py");
    let text = "import json, os, time\n\
                print('{\"name\":\"A\",\"inbound\":[{\"kind\":\"query\",\"type\":\"A.Do\"}]}', flush=True)\n\
                while True:\n    \
                    time.sleep(0.05)\n    \
                    lines = os.read(0, 1 << 20).decode().splitlines()\n    \
                    if not lines: break\n    \
                    message = json.loads(lines[0])\n    \
                    data = {'n': message['data'], 'lines': len(lines)}\n    \
                    print(json.dumps({'kind': 'reply', 'type': 'A.Do', 'data': data, 'metadata': {'causation': message['metadata']['id']}}), flush=True)";
    std::fs::write(&path, text).unwrap();
    harness.run(vec![python("A", &path)]).await;
    let mut client = harness.client().await;
    for n in 0..5 {
        client.send("query", "A.Do", &json!(n)).await;
    }
    for n in 0..5 {
        assert_eq!(client.answer().await["data"], json!({"n": n, "lines": 1}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_fails_what_is_in_progress_and_the_rest_waits_for_the_next_run() {
    let mut harness = Harness::new().await;
    let body = "if message['data'] == 'die': os._exit(3)\nanswer('reply', os.getpid())";
    harness.run(vec![harness.script("A", &doer("A"), body)]).await;
    let mut client = harness.client().await;
    let first = client.query("A.Do", &json!(1)).await;
    client.send("query", "A.Do", &json!("die")).await;
    client.send("query", "A.Do", &json!(2)).await;
    client.send("query", "A.Do", &json!(3)).await;
    assert_eq!(fault(&client.answer().await), (500, "Capability 'A' ended before it answered".to_owned()));
    let second = client.answer().await["data"].clone();
    assert_ne!(first, second, "another process");
    assert_eq!(client.answer().await["data"], second);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_said_with_the_last_breath_counts() {
    let mut harness = Harness::new().await;
    harness.run(vec![harness.script("A", &doer("A"), "answer('reply', 1)\nos._exit(0)")]).await;
    let mut client = harness.client().await;
    assert_eq!(client.query("A.Do", &json!(1)).await, json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_line_without_its_lf_counts_if_it_is_whole() {
    let mut harness = Harness::new().await;
    let body = "text = json.dumps({'kind': 'reply', 'type': 'A.Do', 'data': 1, 'metadata': {'causation': message['metadata']['id']}})\n\
                sys.stdout.write(text[:message['data']])\n\
                sys.stdout.flush()\n\
                os._exit(0)";
    harness.run(vec![harness.script("A", &doer("A"), body)]).await;
    let mut client = harness.client().await;
    assert_eq!(client.query("A.Do", &json!(1000)).await, json!(1));
    let half = client.refused("A.Do", &json!(30)).await;
    assert_eq!(half, (500, "Capability 'A' ended before it answered".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_its_restarts_it_is_unhealthy_until_it_is_reloaded() {
    let mut harness = Harness::new().await;
    let dying = harness.script("A", &doer("A"), "print('oh no', file=sys.stderr)\nsys.exit(7)");
    harness.run(vec![dying.clone()]).await;
    let mut client = harness.client().await;
    // The first run and three restarts.
    for _ in 0..4 {
        let (code, text) = client.refused("A.Do", &json!(1)).await;
        assert_eq!((code, text.as_str()), (500, "Capability 'A' ended before it answered"));
    }
    let (code, text) = client.refused("A.Do", &json!(1)).await;
    assert_eq!(code, 503);
    let expected = "Capability 'A' is unhealthy: it was started again 3 times within 60000 ms \
                    (exit status: 7; its last words: oh no)";
    assert_eq!(text, expected);
    // The same settings and the same file: an unhealthy child is started again all the same.
    let changed = harness.children.become_these(vec![dying]).await.unwrap();
    assert_eq!(changed.replaced, ["A"]);
    assert_eq!(client.refused("A.Do", &json!(1)).await.0, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_to_be_restarted_is_unhealthy_at_once() {
    let mut harness = Harness::new().await;
    let dying = harness.script("A", &doer("A"), "sys.exit(7)");
    harness.run(vec![ChildSettings { restart: false, ..dying }]).await;
    let mut client = harness.client().await;
    assert_eq!(client.refused("A.Do", &json!(1)).await.0, 500);
    let (code, text) = client.refused("A.Do", &json!(1)).await;
    assert_eq!(code, 503);
    assert_eq!(text, "Capability 'A' is unhealthy: it ended (exit status: 7) and is not to be started again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_spoils_the_request_in_hand_and_nothing_else() {
    let mut harness = Harness::new().await;
    let body = "data = message['data']\n\
                if data == 'text': print('debug output', flush=True)\n\
                if data == 'long': print(json.dumps({'kind': 'event', 'type': 'A.Long', 'data': 'x' * 17000}), flush=True)\n\
                if data == 'bare': say({'kind': 'reply', 'type': 'A.Do', 'data': 1, 'metadata': {}})\n\
                if data == 'fine': answer('reply', 'fine')";
    harness.run(vec![harness.script("A", &doer("A"), body)]).await;
    let mut client = harness.client().await;
    let (code, text) = client.refused("A.Do", &json!("text")).await;
    assert_eq!(code, 500);
    assert!(text.starts_with("Capability 'A' said what is no message: Invalid JSON: "), "{text}");
    let long = client.refused("A.Do", &json!("long")).await;
    assert_eq!(long, (413, "Message exceeds maximum line length of 16KB".to_owned()));
    let bare = client.refused("A.Do", &json!("bare")).await;
    assert_eq!(bare, (500, "Capability 'A' emitted a reply A.Do without metadata.causation".to_owned()));
    assert_eq!(client.query("A.Do", &json!("fine")).await, json!("fine"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_it_never_answers_does_not_hold_up_the_next() {
    let impatient = ChildLimits { answer_ms: 1000, ..limits() };
    let mut harness = Harness::with(impatient, BusLimits::default(), Vec::new()).await;
    let body = "if message['data'] != 'forget': answer('reply', message['data'])";
    harness.run(vec![harness.script("A", &doer("A"), body)]).await;
    let mut client = harness.client().await;
    client.send("query", "A.Do", &json!("forget")).await;
    client.send("query", "A.Do", &json!(2)).await;
    assert_eq!(fault(&client.answer().await), (504, "Request timed out".to_owned()));
    assert_eq!(client.answer().await["data"], json!(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_asks_another_capability_and_gets_the_outcome() {
    let mut harness = Harness::new().await;
    let asks = "if message['kind'] == 'query':\n    \
                    asker = message\n    \
                    say({'kind': 'query', 'type': message['data'], 'data': {'payload': 5}, 'metadata': {'id': 'mine'}})\n\
                else:\n    \
                    got = [message['kind'], message['data'], message['metadata']['causation']]\n    \
                    message = asker\n    \
                    answer('reply', got)";
    harness.run(vec![harness.script("A", &doer("A"), asks)]).await;
    let mut client = harness.client().await;
    let reply = client.query("A.Do", &json!("Syscall.Ping")).await;
    assert_eq!(reply, json!(["reply", {"payload": 5}, "mine"]));
    let error = client.query("A.Do", &json!("No.Body")).await;
    assert_eq!((&error[0], &error[1]["code"]), (&json!("error"), &json!(404)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_request_with_an_id_is_refused_and_the_first_gets_its_outcome() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let opened = gate.clone();
    let slow = Capability::new("Slow", "Waits").query("Slow.Do", "Waits", json!({}), move |ctx, _| {
        let opened = opened.clone();
        async move {
            opened.notified().await;
            ctx.reply(&json!("late"))
        }
    });
    let opens = Capability::new("Gate", "Opens").on_event("Gate.Open", move |_, _| {
        gate.notify_one();
        async { Ok(()) }
    });
    let mut harness = Harness::with(limits(), BusLimits::default(), vec![slow, opens]).await;
    let body = "if message['kind'] == 'query':\n    \
                    asker, got = message, []\n    \
                    for _ in range(2): say({'kind': 'query', 'type': 'Slow.Do', 'data': 1, 'metadata': {'id': 'same'}})\n    \
                    continue\n\
                got.append([message['kind'], message['data']])\n\
                if len(got) == 1: say({'kind': 'event', 'type': 'Gate.Open', 'data': 1})\n\
                message = asker\n\
                if len(got) == 2: answer('reply', got)";
    harness.run(vec![harness.script("A", &doer("A"), body)]).await;
    let got = harness.client().await.query("A.Do", &json!(1)).await;
    assert_eq!((&got[0][0], &got[0][1]["code"]), (&json!("error"), &json!(409)));
    assert_eq!(got[1], json!(["reply", "late"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_asks_and_does_not_read_is_stopped_and_then_killed() {
    let impatient = ChildLimits { answer_ms: 5000, ..limits() };
    let mut harness = Harness::with(impatient, BusLimits::default(), Vec::new()).await;
    let (path, all) = (harness.path("flood.py"), harness.path("all"));
    // The outcomes of its requests are many times what may wait for it.
    let text = "import json, sys\n\
                print('{\"name\":\"A\",\"inbound\":[{\"kind\":\"query\",\"type\":\"A.Do\"}]}', flush=True)\n\
                for n in range(30000):\n    \
                    print(json.dumps({'kind': 'query', 'type': 'Syscall.Ping', 'data': 'p' * 200, 'metadata': {'id': str(n)}}))\n\
                sys.stdout.flush()\n\
                open(sys.argv[1], 'w')\n\
                sys.stdin.read()";
    std::fs::write(&path, text).unwrap();
    let mut flood = ChildSettings { restart: false, ..python("A", &path) };
    flood.command.push(all.to_str().unwrap().to_owned());
    harness.run(vec![flood]).await;
    let mut client = harness.client().await;
    // This request may be written to the child before everything else: then it is in the child's hands when the child
    // is killed.
    client.refused("A.Do", &json!(1)).await;
    let (code, text) = client.refused("A.Do", &json!(1)).await;
    assert!(code == 503 && text.contains("it read nothing of what was written to it"), "{code} {text}");
    assert!(!all.exists(), "it was listened to until its last request");
}

/// Starts a child that sends its manifest, writes its process id to a file and never reads, and writes more to it than
/// a pipe holds.
async fn hang(harness: &mut Harness, restart: bool) -> (Client, u64) {
    let (path, pid) = (harness.path("hang.py"), harness.path("pid"));
    let manifest =
        json!({"name": "A", "inbound": [{"kind": "query", "type": "A.Do"}], "subscribes": ["Big.Event"]});
    let text = format!(
        "import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\nprint({:?}, flush=True)\ntime.sleep(1000)",
        manifest.to_string()
    );
    std::fs::write(&path, text).expect("a script");
    let mut settings = ChildSettings { restart, ..python("A", &path) };
    settings.command.push(pid.to_str().expect("UTF-8").to_owned());
    harness.run(vec![settings]).await;
    let mut client = harness.client().await;
    client.send("event", "Big.Event", &json!("x".repeat(1 << 20))).await;
    let pid = std::fs::read_to_string(&pid).expect("it runs").parse().expect("a number");
    (client, pid)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_does_not_read_is_killed_and_counts_as_crashed() {
    let impatient = ChildLimits { answer_ms: 500, ..limits() };
    let mut harness = Harness::with(impatient, BusLimits::default(), Vec::new()).await;
    let (mut client, pid) = hang(&mut harness, false).await;
    let expected = "Capability 'A' is unhealthy: it ended (killed: it read nothing of what was written to it for \
                    500 ms) and is not to be started again";
    assert_eq!(client.refused("A.Do", &json!(1)).await, (503, expected.to_owned()));
    assert!(!is_alive(pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_does_not_read_ends_when_it_is_replaced() {
    let impatient = ChildLimits { answer_ms: 3000, ..limits() };
    let mut harness = Harness::with(impatient, BusLimits::default(), Vec::new()).await;
    let (mut client, pid) = hang(&mut harness, true).await;
    let id = client.send("query", "A.Do", &json!("old")).await;
    // Once the loop has answered this, it has routed both messages before.
    client.query("Syscall.Ping", &json!({"payload": 1})).await;
    harness.run(vec![harness.script("A", &doer("A"), "answer('reply', 'new')")]).await;
    let new = client.send("query", "A.Do", &json!(1)).await;
    let answer = client.answer().await;
    assert_eq!(answer["metadata"]["causation"], *id);
    assert_eq!(fault(&answer).0, 503, "{answer}");
    let answer = client.answer().await;
    assert_eq!((&answer["metadata"]["causation"], &answer["data"]), (&json!(new), &json!("new")));
    assert!(!is_alive(pid), "the new one begins when the old one has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_answers_nothing_ends_when_it_is_replaced() {
    let impatient = ChildLimits { answer_ms: 500, ..limits() };
    let mut harness = Harness::with(impatient, BusLimits::default(), Vec::new()).await;
    harness.run(vec![harness.script("A", &doer("A"), "pass")]).await;
    let mut client = harness.client().await;
    // Handled one after the other, they would take longer than a request may wait for its answer.
    for n in 0..200 {
        client.send("query", "A.Do", &json!(n)).await;
    }
    let other = ChildSettings {
        env: [("N".to_owned(), "1".to_owned())].into(),
        ..harness.script("A", &doer("A"), "pass")
    };
    harness.run(vec![other]).await;
    let mut last = 504;
    for _ in 0..200 {
        last = fault(&client.answer().await).0;
    }
    assert_eq!(last, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_a_child_has_started_ends_with_it() {
    let mut harness = Harness::new().await;
    let body = "import subprocess\n\
                other = subprocess.Popen(['sleep', '1000'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n\
                answer('reply', other.pid)\n\
                os._exit(0)";
    harness.run(vec![harness.script("A", &doer("A"), body)]).await;
    let pid = harness.client().await.query("A.Do", &json!(1)).await.as_u64().unwrap();
    while is_alive(pid) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_cannot_be_started_says_why() {
    let harness = Harness::new().await;
    let why = async |settings: ChildSettings| {
        let limits = ChildLimits { manifest_ms: 60_000, ..ChildLimits::default() };
        Child::start(settings, limits).await.expect_err("no manifest").to_string()
    };
    let script = |name: &str, text: &str| {
        let path = harness.path(name);
        std::fs::write(&path, text).expect("a script");
        python("A", &path)
    };
    let none = why(command("A", &["/nowhere/program"])).await;
    assert_eq!(
        none,
        "capability 'A': cannot start \"/nowhere/program\": No such file or directory (os error 2)"
    );
    let ended = why(script("ended.py", "import sys\nsys.exit('no licence')")).await;
    let expected =
        "capability 'A': it ended (exit status: 1) before it said its manifest; its last words: no licence";
    assert_eq!(ended, expected);
    let text = why(script("text.py", "print('hello')")).await;
    assert!(
        text.starts_with("capability 'A': its first line is no manifest: the manifest is not valid JSON: "),
        "{text}"
    );
    let name = why(script("name.py", "print('{\"name\":\"B\",\"inbound\":[]}')")).await;
    assert_eq!(name, "capability 'A': its manifest says that its name is \"B\": both names must be the same");
    let wrong = why(script(
        "wrong.py",
        "print('{\"name\":\"A\",\"inbound\":[{\"kind\":\"query\",\"type\":\"A.*\"}]}')",
    ))
    .await;
    assert!(wrong.contains("inbound[0].type is \"A.*\": it must be one literal"), "{wrong}");
    let impatient = ChildLimits { manifest_ms: 50, ..ChildLimits::default() };
    let silent = Child::start(script("silent.py", "import sys\nsys.stdin.read()"), impatient).await;
    let expected = "capability 'A': it said nothing within 50 ms: its first line must be its manifest";
    assert_eq!(silent.expect_err("no manifest").to_string(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_fails_changes_nothing() {
    let mut harness = Harness::new().await;
    let good = harness.script("A", &doer("A"), "answer('reply', 'old')");
    harness.run(vec![good.clone()]).await;
    let broken = command("B", &["/nowhere/program"]);
    let claims_the_same =
        harness.script("C", &json!({"name": "C", "inbound": [{"kind": "query", "type": "A.Do"}]}), "pass");
    for bad in [vec![broken], vec![good.clone(), claims_the_same], vec![good.clone(), good.clone()]] {
        harness.children.become_these(bad).await.expect_err("it is refused");
        assert_eq!(harness.client().await.query("A.Do", &json!(1)).await, "old");
    }
    let changed = harness.children.become_these(vec![good]).await.unwrap();
    assert_eq!(changed, Changed::default(), "nothing has changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_under_load_loses_no_request() {
    let mut harness = Harness::new().await;
    let version =
        |harness: &Harness, n: u32| harness.script("A", &doer("A"), &format!("answer('reply', {n})"));
    let first = version(&harness, 0);
    harness.run(vec![first]).await;
    let (done_in, mut done) = tokio::sync::watch::channel(false);
    let mut client: Client = harness.client().await;
    let asking = tokio::spawn(async move {
        let (mut answers, mut versions) = (0, Vec::<Value>::new());
        while !*done.borrow_and_update() {
            for _ in 0..8 {
                client.send("query", "A.Do", &json!(1)).await;
            }
            for _ in 0..8 {
                let answer = client.answer().await;
                assert_eq!(answer["kind"], "reply", "{answer}");
                answers += 1;
                if versions.last() != Some(&answer["data"]) {
                    versions.push(answer["data"].clone());
                }
            }
        }
        (answers, versions)
    });
    for n in 1..=6 {
        let next = version(&harness, n);
        // The time of a file may be the same for two versions; a variable in the settings tells them apart.
        let next =
            ChildSettings { command: next.command, env: [("N".to_owned(), n.to_string())].into(), ..next };
        let changed = harness.children.become_these(vec![next]).await.unwrap();
        assert_eq!(changed.replaced, ["A"]);
    }
    done_in.send(true).unwrap();
    let (answers, versions) = asking.await.unwrap();
    assert!(answers > 0 && versions.len() > 1, "{answers} answers of {versions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn children_end_with_the_loop_whether_they_want_or_not() {
    let mut harness = Harness::new().await;
    let polite = harness.script("A", &doer("A"), "answer('reply', os.getpid())");
    let stubborn = harness.path("stubborn.py");
    let text = "import os, sys, time\n\
                print('{\"name\":\"B\",\"inbound\":[{\"kind\":\"query\",\"type\":\"B.Do\"}]}', flush=True)\n\
                sys.stdin.readline()\n\
                grandchild = os.fork()\n\
                if grandchild == 0: time.sleep(1000)\n\
                import json\n\
                open(sys.argv[1], 'w').write(json.dumps([os.getpid(), grandchild]))\n\
                time.sleep(1000)";
    std::fs::write(&stubborn, text).unwrap();
    let pids = harness.path("pids");
    let mut stubborn = python("B", &stubborn);
    stubborn.command.push(pids.to_str().unwrap().to_owned());
    harness.run(vec![polite, stubborn]).await;
    let mut client = harness.client().await;
    let polite = client.query("A.Do", &json!(1)).await;
    client.send("query", "B.Do", &json!(1)).await;
    let stubborn: Vec<u64> = loop {
        match std::fs::read_to_string(&pids).ok().and_then(|text| serde_json::from_str(&text).ok()) {
            Some(pids) => break pids,
            None => tokio::task::yield_now().await,
        }
    };
    harness.handle.stop(std::time::Duration::ZERO).await;
    for pid in stubborn.into_iter().chain(polite.as_u64()) {
        while is_alive(pid) {
            tokio::task::yield_now().await;
        }
    }
}

/// Whether the process runs. A killed process may remain as a zombie until its parent collects it.
fn is_alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}
