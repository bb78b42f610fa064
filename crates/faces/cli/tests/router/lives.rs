//! Children that do not end, do not answer, or write too much.

use serde_json::{Value, json};

use crate::children::{Scripts, is_alive, serve, table};
use crate::client::{Client, fault, metric};
use crate::server::eventually;

/// A child that answers its process id, and after `stay` ignores all signals and messages.
const STUBBORN: &str = "if message['data'] == 'die': os._exit(3)\n\
                        answer('reply', os.getpid())\n\
                        if message['data'] == 'stay':\n    \
                            import signal\n    \
                            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n    \
                            open(STAYS, 'w').close()\n    \
                            while True: signal.pause()";

#[test]
fn a_child_that_ignores_everything_is_killed_with_a_server_that_is_killed() {
    let scripts = Scripts::new();
    let stays = scripts.path("stays");
    let body = STUBBORN.replace("STAYS", &format!("{stays:?}"));
    let config = scripts.write("A", &json!({}), &body) + &scripts.write("B", &json!({}), &body);
    let mut server = serve(&config, &["--capability-restart-pause-ms", "1"]);
    let mut client = Client::of(&server);
    // A is the child started first; B is one that the loop's own thread has restarted.
    assert_eq!(client.refused("query", "B.Do", &json!("die")).0, 500);
    let pids: Vec<Value> = ["A.Do", "B.Do"]
        .into_iter()
        .map(|ty| {
            let pid = client.reply("query", ty, &json!("stay"));
            eventually("it will not listen", || stays.exists());
            std::fs::remove_file(&stays).expect("a file");
            pid
        })
        .collect();
    assert!(pids.iter().all(is_alive));
    server.kill();
    for pid in &pids {
        eventually("the child has ended", || !is_alive(pid));
    }
}

/// Children are killed when the thread that started them ends, so that thread must stay alive.
#[test]
fn the_thread_that_starts_children_stays() {
    let scripts = Scripts::new();
    let server = serve(&scripts.write("A", &json!({}), "answer('reply', os.getpid())"), &[]);
    let pid = Client::of(&server).reply("query", "A.Do", &json!(1));
    let is_there = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("threads");
        tasks.filter_map(Result::ok).any(|task| {
            std::fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.trim() == "millrace-spawn")
        })
    };
    assert!(is_there() && is_alive(&pid));
}

#[test]
fn what_cannot_be_started_is_told_as_if_there_were_no_guard() {
    let scripts = Scripts::new();
    let script = scripts.path("script");
    std::fs::write(&script, "#!/nowhere/interpreter\n").expect("a file");
    let fails = |command: &[&str], more: &str| {
        let folder = tempfile::TempDir::new().expect("a folder");
        std::fs::write(folder.path().join("millrace.toml"), table("A", command) + more).expect("a file");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--socket", "none"])
            .args(["--config", "millrace.toml"])
            .current_dir(folder.path())
            .output()
            .expect("the binary runs");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let missing = "No such file or directory (os error 2)";
    let said = fails(&["no-such-program-anywhere", "--parent", "1"], "");
    assert!(said.contains(&format!("cannot start \"no-such-program-anywhere\": {missing}")), "{said}");
    let said = fails(&["python3"], "cwd = \"/nowhere\"\n");
    assert!(said.contains(&format!("cannot start \"python3\": {missing}")), "{said}");
    let said = fails(&["python3"], "env = { PATH = \"/nowhere\" }\n");
    assert!(said.contains(&format!("cannot start \"python3\": {missing}")), "{said}");
    let path = script.to_str().expect("UTF-8");
    let said = fails(&[path], "");
    assert!(said.contains(&format!("cannot start {path:?}: Permission denied (os error 13)")), "{said}");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("a mode");
    let said = fails(&[path], "");
    assert!(said.contains(&format!("cannot start {path:?}: {missing}")), "{said}");
}

/// Only the request that the child hangs on waits for the timeout, not the rest of its queue.
#[test]
fn a_child_that_does_not_answer_is_started_again() {
    let scripts = Scripts::new();
    let body = "import signal\n\
                while message['data'] == 'hang': signal.pause()\n\
                answer('reply', os.getpid())";
    let flags = ["--request-timeout-ms", "1500", "--capability-restart-pause-ms", "1"];
    let server = serve(&scripts.write("A", &json!({}), body), &flags);
    let mut client = Client::of(&server);
    let first = client.reply("query", "A.Do", &json!(1));
    assert_eq!(client.refused("query", "A.Do", &json!("hang")), (504, "Request timed out".to_owned()));
    eventually("another life answers", || {
        let answer = client.ask("query", "A.Do", &json!(1));
        answer["kind"] == "reply" && answer["data"] != first
    });
    assert!(!is_alive(&first));
    assert!(server.log().contains("it ended: killed: it did not answer for 1500 ms"), "{}", server.log());
    // Whether the child's or the loop's timeout comes first, the timeout is reported and counted once.
    assert_eq!(server.log().matches("Sys.RequestTimedOut").count(), 1, "{}", server.log());
    assert!((metric(&server, "os_outcomes_total{class=\"timeout\"}") - 1.0).abs() < 0.5);
}

#[test]
fn the_end_of_a_child_that_did_not_answer_follows_from_the_request() {
    let scripts = Scripts::new();
    let log = scripts.path("log");
    let body = format!(
        "if message['type'] == 'W.Do':\n    answer('reply', None)\n    continue\n\
         with open({log:?}, 'a') as out: print(message['metadata']['causation'], file=out)"
    );
    let config = scripts.write("A", &json!({}), "pass")
        + &scripts.write("W", &json!({"subscribes": ["Sys.CapabilityDown"]}), &body);
    let server = serve(&config, &["--request-timeout-ms", "300"]);
    let mut client = Client::of(&server);
    let id = client.send("query", "A.Do", &json!(1));
    assert_eq!(fault(&client.next()).0, 504);
    eventually("its end is told", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.lines().next() == Some(id.as_str()))
    });
}

#[test]
fn a_child_that_never_answers_is_unhealthy_and_then_nobody_waits_for_it() {
    let scripts = Scripts::new();
    let flags = ["--request-timeout-ms", "300", "--capability-restart-pause-ms", "1"];
    // The window is so short that restarts do not add up by time.
    let flags = [&flags[..], &["--capability-restart-window-ms", "1"]].concat();
    let server = serve(&scripts.write("A", &json!({}), "pass"), &flags);
    let mut client = Client::of(&server);
    let mut last = (504, String::new());
    while last.0 == 504 {
        last = client.refused("query", "A.Do", &json!(1));
    }
    let text =
        "Capability 'A' is unhealthy: it answered nothing in 4 lives (killed: it did not answer for 300 ms)";
    assert_eq!(last, (503, text.to_owned()));
    for _ in 0..100 {
        client.send("query", "A.Do", &json!(1));
    }
    for _ in 0..100 {
        assert_eq!(fault(&client.next()).0, 503);
    }
}

/// A child that is not restarted simply gets the next message.
#[test]
fn a_child_that_is_not_to_be_restarted_gets_the_next_message() {
    let scripts = Scripts::new();
    let body = "if message['data'] != 'forget': answer('reply', os.getpid())";
    let config = scripts.write("A", &json!({}), body) + "restart = false\n";
    let server = serve(&config, &["--request-timeout-ms", "1000"]);
    let mut client = Client::of(&server);
    let pid = client.reply("query", "A.Do", &json!(1));
    assert_eq!(client.refused("query", "A.Do", &json!("forget")).0, 504);
    eventually("it answers again", || client.ask("query", "A.Do", &json!(2))["data"] == pid);
}

#[test]
fn a_child_that_complains_without_end_does_not_fill_the_log() {
    let scripts = Scripts::new();
    let body = "for n in range(50000): print('complaint', n, file=sys.stderr)\n\
                print('the last one', file=sys.stderr, flush=True)\n\
                answer('reply', 'done')";
    let server = serve(&scripts.write("A", &json!({}), body), &["--capability-log-lines-max", "10"]);
    assert_eq!(Client::of(&server).reply("query", "A.Do", &json!(1)), "done");
    // Each line was logged or counted.
    let figures = || {
        let log = server.log();
        let logged = log.matches("complaint").count() + log.matches("the last one").count();
        let left_out: usize = log
            .split("left_out=")
            .skip(1)
            .map(|rest| rest.split_whitespace().next().expect("a figure").parse::<usize>().expect("a number"))
            .sum();
        (logged, left_out)
    };
    eventually("every line is accounted for", || {
        let (logged, left_out) = figures();
        logged + left_out == 50_001
    });
    let (logged, left_out) = figures();
    let windows = server.log().matches("capability-log-lines-max").count();
    assert!(
        logged <= 10 * (windows + 1) && left_out > 0,
        "{logged} logged, {left_out} left out in {windows}"
    );
}

/// This does not have to wait for the timeout of a request.
#[test]
fn a_child_that_has_closed_its_stdin_is_noticed_at_the_write() {
    let scripts = Scripts::new();
    let body = "answer('reply', os.getpid())\n\
                if message['data'] == 'close':\n    \
                    import signal\n    \
                    os.close(0)\n    \
                    open(CLOSED, 'w').close()\n    \
                    while True: signal.pause()";
    let closed = scripts.path("closed");
    let config = scripts.write("A", &json!({}), &body.replace("CLOSED", &format!("{closed:?}")));
    let server = serve(&config, &["--capability-restart-pause-ms", "1", "--request-timeout-ms", "600000"]);
    let mut client = Client::of(&server);
    let first = client.reply("query", "A.Do", &json!("close"));
    eventually("it has closed its stdin", || closed.exists());
    assert_eq!(
        client.refused("query", "A.Do", &json!(1)),
        (500, "Capability 'A' ended before it answered".to_owned())
    );
    let second = client.reply("query", "A.Do", &json!(1));
    assert!(second != first && !is_alive(&first));
    assert!(server.log().contains("killed: it closed its stdin and did not end"), "{}", server.log());
}

#[test]
fn whoever_a_child_left_in_a_session_of_its_own_ends_with_it() {
    let scripts = Scripts::new();
    let body = "import subprocess\n\
                if message['data'] == 'die': os._exit(3)\n\
                left = subprocess.Popen(['sh', '-c', 'sleep 1000 & echo $!; wait'], start_new_session=True, \
                stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)\n\
                answer('reply', [left.pid, int(left.stdout.readline())])";
    let mut server = serve(&scripts.write("A", &json!({}), body), &["--capability-restart-pause-ms", "1"]);
    let mut client = Client::of(&server);
    let left = client.reply("query", "A.Do", &json!(1));
    assert!(left.as_array().expect("two").iter().all(is_alive), "{left}");
    client.refused("query", "A.Do", &json!("die"));
    let again = client.reply("query", "A.Do", &json!(1));
    for pid in left.as_array().expect("two") {
        eventually("it has ended with the child that crashed", || !is_alive(pid));
    }
    assert!(again.as_array().expect("two").iter().all(is_alive), "those of another life go on");
    assert_eq!(server.terminate(), Some(0));
    for pid in again.as_array().expect("two") {
        eventually("it has ended with the server", || !is_alive(pid));
    }
}

/// Requests sent before the reload are finished before any request sent after it begins.
#[test]
fn a_reload_keeps_the_order_and_two_lives_do_not_work_at_once() {
    let scripts = Scripts::new();
    let (log, gate) = (scripts.path("log"), scripts.path("gate"));
    let version = |name: &str| {
        let body = format!(
            "import time\n\
             with open({log:?}, 'a') as out: print('{name}', message['data'], 'begun', file=out)\n\
             while not os.path.exists({gate:?}): time.sleep(0.01)\n\
             with open({log:?}, 'a') as out: print('{name}', message['data'], 'done', file=out)\n\
             answer('reply', message['data'])"
        );
        scripts.write("A", &json!({}), &body) + &format!("env = {{ V = {name:?} }}\n")
    };
    let server = serve(&version("old"), &[]);
    let mut client = Client::of(&server);
    for n in 0..4 {
        client.send("query", "A.Do", &json!(n));
    }
    eventually("the first is in hand", || std::fs::read_to_string(&log).is_ok());
    std::fs::write(server.folder().join("millrace.toml"), version("new")).expect("a file");
    assert_eq!(Client::of(&server).ask("command", "Syscall.Reload", &json!({}))["kind"], "reply");
    for n in 4..8 {
        client.send("query", "A.Do", &json!(n));
    }
    client.send("query", "Syscall.Ping", &json!({"payload": 1}));
    assert_eq!(client.next()["type"], "Syscall.Ping", "the loop has routed all of them");
    std::fs::write(&gate, "").expect("a file");
    for n in 0..8 {
        assert_eq!(client.next()["data"], n);
    }
    let expected: String = (0..8)
        .map(|n| {
            let life = if n < 4 { "old" } else { "new" };
            format!("{life} {n} begun\n{life} {n} done\n")
        })
        .collect();
    assert_eq!(std::fs::read_to_string(&log).expect("a file"), expected);
}
