//! Events through the real binary: events of timers over a kill, events for which there is no room, and events that no
//! child can take.

use serde_json::{Value, json};

use crate::children::{Scripts, serve};
use crate::client::{Client, message, metric};
use crate::server::{Server, eventually};

/// Returns a child that writes the number of every event to a file, once the file `gate` exists; and a function that
/// reads these numbers.
fn listener(scripts: &Scripts, answers: bool) -> (String, impl Fn() -> Vec<u64> + use<>) {
    let (seen, begun, gate) = (scripts.path("seen"), scripts.path("begun"), scripts.path("gate"));
    let body = format!(
        "import time\n\
         if message['type'] == 'A.Do':\n    answer('reply', None)\n    continue\n\
         open({begun:?}, 'a').close()\n\
         while not os.path.exists({gate:?}): time.sleep(0.01)\n\
         with open({seen:?}, 'a') as out: print(message['data'], file=out)\n{}",
        if answers { "answer('reply', None)" } else { "" }
    );
    let config = scripts.write("A", &json!({"subscribes": ["X.Due"]}), &body);
    let read = move || {
        let text = std::fs::read_to_string(&seen).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    (config, read)
}

fn set_timer(client: &mut Client, data: &Value) {
    let event = json!({"kind": "event", "type": "X.Due", "data": data});
    client.reply("command", "Timer.Set", &json!({"delayMs": 1, "message": event}));
}

/// When the server is killed, the child is handling the first event; the others are in its pipe or its mailbox.
#[test]
fn the_event_of_a_durable_timer_is_not_lost_by_a_kill() {
    let scripts = Scripts::new();
    let (config, seen) = listener(&scripts, false);
    let mut server = serve(&config, &[]);
    let mut client = Client::of(&server);
    for n in 0..50 {
        set_timer(&mut client, &json!(n));
    }
    eventually("the child has begun with the first", || scripts.path("begun").exists());
    eventually("all of them have fired", || metric(&server, "os_timers_fired_total") > 49.5);
    server.kill();
    assert!(seen().is_empty());
    std::fs::write(scripts.path("gate"), "").expect("a file");
    server.restart();
    eventually("all of them came again", || seen().len() == 50);
    assert_eq!(seen(), (0..50).collect::<Vec<_>>(), "once each, and in order");
    // An orderly stop lets the child finish: no event comes a third time.
    assert_eq!(server.terminate(), Some(0));
    server.restart();
    Client::of(&server).reply("query", "A.Do", &json!(1));
    assert!(metric(&server, "os_timers") < 0.5);
    assert_eq!(seen().len(), 50);
}

#[test]
fn a_child_that_replies_to_an_event_has_finished_with_it() {
    let scripts = Scripts::new();
    let (config, seen) = listener(&scripts, true);
    std::fs::write(scripts.path("gate"), "").expect("a file");
    let mut server = serve(&config, &[]);
    let mut client = Client::of(&server);
    set_timer(&mut client, &json!(1));
    eventually("its row goes with the reply", || seen() == [1] && metric(&server, "os_timers") < 0.5);
    // A plain event may be replied to as well, because a child cannot tell them apart.
    client.send("event", "X.Due", &json!(2));
    eventually("it came", || seen() == [1, 2]);
    client.reply("query", "A.Do", &json!(1));
    assert!(metric(&server, "os_orphan_outcomes_total") < 0.5);
    server.kill_and_restart();
    Client::of(&server).reply("query", "A.Do", &json!(1));
    assert_eq!(seen(), [1, 2]);
}

/// An event that is unfinished when its child ends is delivered to the restarted child, but not for ever.
#[test]
fn an_event_that_kills_its_child_comes_twice() {
    let scripts = Scripts::new();
    let log = scripts.path("log");
    let body = format!(
        "if message['type'] == 'A.Do':\n    answer('reply', None)\n    continue\n\
         with open({log:?}, 'a') as out: print(message['data'], file=out)\n\
         os._exit(3)"
    );
    let config = scripts.write("A", &json!({"subscribes": ["X.Due"]}), &body);
    let server = serve(&config, &["--capability-restart-pause-ms", "1"]);
    let mut client = Client::of(&server);
    set_timer(&mut client, &json!(7));
    eventually("it is given up", || metric(&server, "os_timers") < 0.5);
    assert_eq!(std::fs::read_to_string(&log).expect("a file"), "7\n7\n");
    eventually("that is told", || server.log().contains("ended twice before it had finished with an event"));
    client.reply("query", "A.Do", &json!(1));
}

#[test]
fn a_client_that_is_faster_than_a_subscriber_waits_and_loses_nothing() {
    const EVENTS: u64 = 20_000;
    let scripts = Scripts::new();
    let body = "if message['type'] == 'A.Do':\n    answer('reply', [total, order])\n    continue\n\
                order = order and message['data'] == total\n\
                total += 1";
    let config = scripts.write("A", &json!({"subscribes": ["X.Said"]}), body);
    let path = scripts.path("A.py");
    let text = std::fs::read_to_string(&path).expect("a script");
    std::fs::write(&path, format!("total, order = 0, True\n{text}")).expect("a script");
    let server = serve(&config, &["--mailbox-max", "16"]);
    let mut client = Client::of(&server);
    let mut lines = String::new();
    for n in 0..EVENTS {
        lines += &message("event", "X.Said", &n.to_string(), &format!("e{n}"));
        lines.push('\n');
    }
    client.write(lines);
    eventually("all of them arrived", || {
        let answer = client.ask("query", "A.Do", &json!(1));
        answer["data"] == json!([EVENTS, true])
    });
    assert!(metric(&server, "os_events_undelivered_total") < 0.5);
    assert!(!server.log().contains("Sys.EventDropped"));
}

#[test]
fn an_event_that_does_not_fit_is_told_and_a_timer_for_it_is_lost_once() {
    let scripts = Scripts::new();
    let strict = json!({"subscribes": ["X.Due"], "inbound": [
        {"kind": "query", "type": "A.Do"},
        {"kind": "event", "type": "X.Due", "data": {"type": "number"}},
    ]});
    let config = scripts.write("A", &strict, "answer('reply', None)");
    let mut server = serve(&config, &["--timer-retry-ms", "20"]);
    let mut client = Client::of(&server);
    client.send("event", "X.Due", &json!("text"));
    client.still_works();
    eventually("it is in the log", || server.log().contains("Sys.EventDropped"));
    assert!(server.log().contains(r#"Schema validation failed: data: \"text\" is not of type \"number\""#));
    set_timer(&mut client, &json!("text"));
    eventually("the timer is lost", || metric(&server, "os_timers_lost_total") > 0.5);
    assert_eq!(server.log().matches("Sys.TimerLost").count(), 1);
    server.kill_and_restart();
    let mut client = Client::of(&server);
    client.reply("query", "A.Do", &json!(1));
    assert!(metric(&server, "os_timers") < 0.5, "its row is gone");
    assert!(metric(&server, "os_timers_lost_total") < 0.5);
}

/// Returns the id of the process that runs this script.
fn child_of(server: &Server, script: &std::path::Path) -> Option<String> {
    let script = script.to_str().expect("UTF-8");
    let processes = std::fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
    processes.filter_map(|process| process.file_name().into_string().ok()).find(|pid| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1).map(str::to_owned));
        String::from_utf8_lossy(&read("cmdline")).contains(script)
            && parent.is_some_and(|parent| parent == server.pid().to_string())
    })
}

/// The event that is being handled at both kills may be given up, and then `Sys.TimerLost` says so. The child had not
/// begun the others.
#[test]
fn two_deaths_of_a_child_cost_no_event_that_it_had_not_begun() {
    let scripts = Scripts::new();
    let (config, seen) = listener(&scripts, true);
    let server = serve(&config, &["--capability-restart-pause-ms", "1"]);
    let mut client = Client::of(&server);
    for n in 0..10 {
        set_timer(&mut client, &json!(n));
    }
    let mut before = None;
    for _ in 0..2 {
        eventually("another life has begun with the first", || {
            let child = child_of(&server, &scripts.path("A.py"));
            child.is_some() && child != before && scripts.path("begun").exists()
        });
        before = child_of(&server, &scripts.path("A.py"));
        let pid = before.clone().expect("a child");
        std::fs::remove_file(scripts.path("begun")).expect("a file");
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().expect("kill").success());
        eventually("it has ended", || {
            !crate::children::is_alive(&json!(pid.parse::<u64>().expect("a number")))
        });
    }
    std::fs::write(scripts.path("gate"), "").expect("a file");
    eventually("no timer is left", || metric(&server, "os_timers") < 0.5);
    assert!(seen().ends_with(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), "{:?}", seen());
    let lost = server.log().matches("Sys.TimerLost").count();
    assert_eq!(seen().len() + lost, 10, "{:?}", seen());
    assert!((metric(&server, "os_timers_lost_total") - lost as f64).abs() < 0.5);
}

/// The event that kills the child is given up, and `Sys.TimerLost` says so. The events delivered along with it are not.
#[test]
fn one_event_that_kills_its_child_takes_no_others_with_it() {
    let scripts = Scripts::new();
    let (seen, gate) = (scripts.path("seen"), scripts.path("gate"));
    let body = format!(
        "import time\n\
         if message['type'] == 'A.Do':\n    answer('reply', None)\n    continue\n\
         while not os.path.exists({gate:?}): time.sleep(0.01)\n\
         if message['data'] == 0: os._exit(3)\n\
         with open({seen:?}, 'a') as out: print(message['data'], file=out)\n\
         answer('reply', None)"
    );
    let config = scripts.write("A", &json!({"subscribes": ["X.Due"]}), &body);
    let server = serve(&config, &["--capability-restart-pause-ms", "1"]);
    let mut client = Client::of(&server);
    for n in 0..50 {
        set_timer(&mut client, &json!(n));
    }
    eventually("all of them have fired", || metric(&server, "os_timers_fired_total") > 49.5);
    std::fs::write(&gate, "").expect("a file");
    eventually("no timer is left", || metric(&server, "os_timers") < 0.5);
    let seen = std::fs::read_to_string(&seen).unwrap_or_default();
    let numbers: Vec<u64> = seen.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(numbers, (1..50).collect::<Vec<u64>>());
    assert_eq!(server.log().matches("Sys.TimerLost").count(), 1);
    assert!((metric(&server, "os_timers_lost_total") - 1.0).abs() < 0.5);
}

/// The time limit of an event begins when the child can have begun with it.
#[test]
fn an_event_that_a_slow_child_has_not_begun_is_not_lost_by_a_kill_of_the_server() {
    const TIMERS: u64 = 12;
    let scripts = Scripts::new();
    let seen = scripts.path("seen");
    let body = format!(
        "import time\n\
         if message['type'] == 'A.Do':\n    answer('reply', None)\n    continue\n\
         time.sleep(0.3)\n\
         with open({seen:?}, 'a') as out: print(message['data'], file=out)\n\
         answer('reply', None)"
    );
    let config = scripts.write("A", &json!({"subscribes": ["X.Due"]}), &body);
    let mut server = serve(&config, &["--capability-event-ms", "700"]);
    let mut client = Client::of(&server);
    for n in 0..TIMERS {
        set_timer(&mut client, &json!(n));
    }
    let numbers = || -> std::collections::BTreeSet<u64> {
        let text = std::fs::read_to_string(&seen).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    // By now more time has passed than the limit of an event, and most events were written to the child long ago.
    eventually("it is at the fifth", || numbers().len() >= 4);
    server.kill_and_restart();
    eventually("all of them are seen", || numbers().len() as u64 == TIMERS);
}

/// Returns a child that records how many events were dropped.
fn drops(scripts: &Scripts) -> String {
    let told = scripts.path("told");
    let body = format!(
        "if message['type'] == 'W.Do':\n    answer('reply', None)\n    continue\n\
         with open({told:?}, 'a') as out: print(message['data']['dropped'], file=out)"
    );
    scripts.write("W", &json!({"subscribes": ["Sys.EventDropped"]}), &body)
}

fn slow_listener(scripts: &Scripts, version: &str, at_five: &str) -> String {
    let seen = scripts.path("seen");
    let body = format!(
        "import time\n\
         if message['type'] == 'A.Do':\n    answer('reply', None)\n    continue\n\
         time.sleep(0.05)\n\
         if message['data'] == 5: {at_five}\n\
         with open({seen:?}, 'a') as out: print(message['data'], '{version}', file=out)\n\
         say({{'kind': 'event', 'type': 'X.Done', 'data': message['data'], 'metadata': {{'causation': message['metadata']['id']}}}})"
    );
    scripts.write("A", &json!({"subscribes": ["X.Said"]}), &body) + &format!("env = {{ V = {version:?} }}\n")
}

/// Events that the old child emits in response still reach all subscribers.
#[test]
fn a_reload_loses_no_event_that_was_written_to_a_child() {
    let scripts = Scripts::new();
    let done = scripts.path("done");
    let body = format!(
        "if message['type'] == 'B.Do':\n    answer('reply', None)\n    continue\n\
         with open({done:?}, 'a') as out: print(message['data'], file=out)"
    );
    let heard = scripts.write("B", &json!({"subscribes": ["X.Done"]}), &body);
    let server = serve(&(slow_listener(&scripts, "old", "pass") + &heard), &[]);
    let mut client = Client::of(&server);
    for n in 0..40 {
        client.send("event", "X.Said", &json!(n));
    }
    let lines = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(scripts.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    eventually("it has begun", || !lines("seen").is_empty());
    let config = slow_listener(&scripts, "new", "pass") + &heard;
    std::fs::write(server.folder().join("millrace.toml"), config).expect("a file");
    client.reply("command", "Syscall.Reload", &json!({}));
    for n in 40..45 {
        client.send("event", "X.Said", &json!(n));
    }
    eventually("all of them are seen", || lines("seen").len() >= 45);
    let expected = |n: u64| format!("{n} {}", if n < 40 { "old" } else { "new" });
    assert_eq!(lines("seen"), (0..45).map(expected).collect::<Vec<String>>());
    eventually("and told on", || lines("done").len() >= 45);
    assert_eq!(lines("done"), (0..45).map(|n| n.to_string()).collect::<Vec<String>>());
    assert!(metric(&server, "os_events_undelivered_total") < 0.5);
}

/// The restarted child gets the events that the old one had not read; events that may have been in its own buffer are
/// reported as dropped.
#[test]
fn an_event_that_a_child_did_not_see_before_it_ended_comes_again_or_is_told() {
    let scripts = Scripts::new();
    let config = slow_listener(&scripts, "A", "os._exit(3)") + &drops(&scripts);
    let server = serve(&config, &["--capability-restart-pause-ms", "1"]);
    let mut client = Client::of(&server);
    for n in 0..200 {
        client.send("event", "X.Said", &json!(n));
    }
    let lines = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(scripts.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let told = || lines("told").iter().filter_map(|n| n.parse::<usize>().ok()).sum::<usize>();
    eventually("the last one is seen", || lines("seen").last().is_some_and(|last| last == "199 A"));
    eventually("every other one is told", || lines("seen").len() + told() >= 200);
    // No more events than fit the pipe are in doubt, and none comes twice.
    assert!(lines("seen").len() >= 150, "{} seen", lines("seen").len());
    let mut once = lines("seen");
    once.dedup();
    assert_eq!(once.len(), lines("seen").len());
    assert!((metric(&server, "os_events_undelivered_total") - told() as f64).abs() < 0.5);
}

/// A configuration may lack a capability by mistake, or be rolled back.
#[test]
fn a_durable_timer_waits_for_somebody_who_subscribes_to_its_event() {
    let scripts = Scripts::new();
    let (config, seen) = listener(&scripts, true);
    std::fs::write(scripts.path("gate"), "").expect("a file");
    let other = scripts.write("B", &json!({}), "answer('reply', None)");
    let mut server = serve(&other, &[]);
    set_timer(&mut Client::of(&server), &json!(1));
    eventually("that is told", || server.log().contains("Sys.TimerWaits"));
    server.kill_and_restart();
    eventually("it is still there", || metric(&server, "os_timers") > 0.5);
    std::fs::write(server.folder().join("millrace.toml"), config).expect("a file");
    Client::of(&server).reply("command", "Syscall.Reload", &json!({}));
    eventually("it came", || seen() == [1] && metric(&server, "os_timers") < 0.5);
    assert!(!server.log().contains("Sys.TimerLost"));
}

#[test]
fn a_durable_timer_that_nobody_subscribes_to_is_lost_in_the_end_and_told() {
    let scripts = Scripts::new();
    let server =
        serve(&scripts.write("B", &json!({}), "answer('reply', None)"), &["--timer-give-up-ms", "200"]);
    set_timer(&mut Client::of(&server), &json!(1));
    eventually("it is lost", || metric(&server, "os_timers_lost_total") > 0.5);
    eventually("its row is gone", || metric(&server, "os_timers") < 0.5);
    assert!(server.log().contains("no capability subscribes to X.Due"), "{}", server.log());
}

#[test]
fn an_error_for_the_event_of_a_timer_is_told_and_503_makes_it_come_again() {
    let scripts = Scripts::new();
    let log = scripts.path("log");
    let body = format!(
        "if message['type'] == 'A.Do':\n    answer('reply', None)\n    continue\n\
         with open({log:?}, 'a') as out: print(message['data'], file=out)\n\
         times = open({log:?}).read().split().count(str(message['data']))\n\
         if message['data'] == 503 and times == 3: answer('reply', None)\n\
         else: answer('error', {{'code': message['data'], 'message': 'not now'}})"
    );
    let config = scripts.write("A", &json!({"subscribes": ["X.Due"]}), &body);
    let server = serve(&config, &["--timer-retry-ms", "20"]);
    let mut client = Client::of(&server);
    set_timer(&mut client, &json!(503));
    eventually("it has come until it was taken", || metric(&server, "os_timers") < 0.5);
    assert_eq!(std::fs::read_to_string(&log).expect("a file"), "503\n503\n503\n");
    assert!(metric(&server, "os_timers_lost_total") < 0.5);
    set_timer(&mut client, &json!(422));
    eventually("it is lost", || metric(&server, "os_timers_lost_total") > 0.5);
    eventually("its row is gone", || metric(&server, "os_timers") < 0.5);
    assert!(server.log().contains("capability 'A' failed at X.Due: 422 not now"), "{}", server.log());
}
