//! `millrace trace`: from a server, and from the store of a server that has ended.

use std::process::{Command, Output};

use serde_json::json;

use crate::client::{Client, path, serve};
use crate::server::{Server, eventually};

fn trace(server: &Server, flags: &[&str]) -> Output {
    let socket = path(server);
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .current_dir(server.folder())
        .arg("trace")
        .args(flags)
        .args(["--socket", &socket.to_string_lossy()])
        .output()
        .expect("the binary runs")
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_tree_of_causes_is_shown_from_memory_and_from_the_store() {
    let mut server = serve(&["--trace-store"]);
    let mut client = Client::of(&server);
    let template = json!({"kind": "command", "type": "Memory.Set", "data": {"key": "/a", "value": 1}});
    let set = client.send("command", "Timer.Set", &json!({"delayMs": 1, "message": template}));
    client.next();
    let shown = |flags: &[&str]| text(&trace(&server, &[&["--id", set.as_str()], flags].concat()));
    eventually("the command it sent is answered", || shown(&[]).contains("reply Memory.Set"));
    let lines: Vec<String> = shown(&[]).lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with(&format!("command Timer.Set {set}  client ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("─ event Timer.Fired")), "{lines:?}");
    let command = lines.iter().position(|line| line.contains("─ command Memory.Set")).expect("the command");
    assert!(lines[command + 1].contains("   ├─ event Memory.Changed"), "below the command: {lines:?}");
    assert!(lines[command + 2].contains("   └─ reply Memory.Set"), "below the command: {lines:?}");
    assert!(lines[command].ends_with(r#"  {"key":"/a","value":1}"#), "with its data: {lines:?}");
    let records = shown(&["--json"]).lines().count();
    assert_eq!(records, lines.len());
    let store = server.store_url();
    let stored = ["--stored", "--store", store.as_str()];
    eventually("the records are in the store", || shown(&stored).lines().count() == lines.len());
    server.kill();
    let kept = text(&trace(&server, &[&["--id", set.as_str()][..], &stored].concat()));
    assert_eq!(kept.lines().collect::<Vec<_>>(), lines, "without a server, the same");
    let gone = trace(&server, &["--id", "x"]);
    assert_eq!(gone.status.code(), Some(3), "{gone:?}");
}

#[test]
fn what_was_never_seen_is_said_so_and_one_question_is_asked_at_a_time() {
    let server = serve(&[]);
    let store = server.store_url();
    for (args, said) in [
        (&["--correlation", "nothing"][..], "nothing was seen of it, or it is forgotten by now"),
        (&["--id", "nothing", "--json"], "nothing was seen of it, or it is forgotten by now"),
        (&["--id", "nothing", "--stored", "--store", &store], "no trace was kept"),
    ] {
        let ran = trace(&server, args);
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0), "{ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains(said), "{ran:?}");
    }
    assert_eq!(trace(&server, &[]).status.code(), Some(2));
    assert_eq!(trace(&server, &["--id", "a", "--correlation", "b"]).status.code(), Some(2));
}

#[test]
fn codes_and_the_beginning_of_data_are_shown_and_tokens_are_not() {
    let server = serve(&["--trace-data-bytes-max", "20"]);
    let mut client = Client::of(&server);
    let wrong = client.send("query", "Memory.Get", &json!({"key": "no path at all"}));
    client.next();
    let shown = text(&trace(&server, &["--id", &wrong]));
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].ends_with(r#"  {"key":"no path at a..."#), "{lines:?}");
    assert!(lines[1].contains("error Memory.Get") && lines[1].contains(" 422 -> client "), "{lines:?}");
    let token = client.send("command", "Syscall.Authenticate", &json!({"token": "secret"}));
    client.next();
    assert!(!text(&trace(&server, &["--id", &token, "--json"])).contains("secret"));
}
