//! `millrace groups`, `millrace jobs`, and letters that are edited before they are replayed.

use serde_json::{Value, json};

use crate::run::{run, run_in};
use crate::server::{Server, eventually};

/// A server whose topic `t` has two letters of the group `g`, which is still subscribed.
fn server() -> (Server, crate::socket::Socket) {
    let server = Server::with(&["--max-attempts", "1"]);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"ack_mode": "individual"}));
    for total in ["12345678901234567890", "2"] {
        let body = format!(r#"{{"key":"k","headers":{{"x-shop":"north"}},"payload":{{"total":{total}}}}}"#);
        assert_eq!(server.request("POST", "/topics/t/events", Some(body)).0, 200);
    }
    for offset in 1..=2 {
        socket.message();
        socket.send_nack("t", "g", offset, &json!({"reason": "no \u{1b}[31mmoney"}));
    }
    eventually("both became letters", || server.get("/topics/t.DLQ/events").1["events"][1].is_object());
    (server, socket)
}

#[test]
fn a_group_is_shown_paused_and_resumed() {
    let (server, mut socket) = server();
    let url = server.ws_url();
    let groups = |args: &[&str]| run(&[&["groups"], args, &["--url", &url]].concat());
    assert!(groups(&["list", "t"]).ok().starts_with("GROUP"));
    let shown = groups(&["show", "t", "g"]).ok();
    assert!(shown.starts_with("group g of topic t\nwaiting 0") && shown.contains("127.0.0.1:"), "{shown}");
    assert_eq!(groups(&["inflight", "t", "g"]).ok(), "nothing is in flight\n");
    let paused = groups(&["pause", "t", "g"]).ok();
    assert_eq!(paused, "group g of topic t is paused: nothing is delivered to it\n");
    assert!(groups(&["show", "t", "g"]).ok().starts_with("group g of topic t, paused\n"));
    assert_eq!(groups(&["resume", "t", "g", "--json"]).json()["paused"], false);
    server.post("/topics/t/events", &json!({"payload": 3}));
    socket.message();
    let held = groups(&["inflight", "t", "g", "--limit", "1"]).ok();
    assert!(
        held.lines().nth(1).is_some_and(|line| line.starts_with("0 ") && line.contains("leased")),
        "{held}"
    );
    assert_eq!(groups(&["inflight", "t", "g", "--json"]).json()["inflight"][0]["offset"], 3);
    groups(&["show", "t", "nobody"]).refused(1, &["nobody"]);
    groups(&["show", "t"]).refused(2, &["GROUP"]);
}

#[test]
fn a_job_is_counted_started_and_shown() {
    let (server, _socket) = server();
    let url = server.ws_url();
    let jobs = |args: &[&str]| run(&[&["jobs"], args, &["--url", &url]].concat());
    assert_eq!(jobs(&["list"]).ok(), "there are no jobs\n");
    jobs(&["start", "replay", "t"]).refused(2, &["--group"]);
    let counted = jobs(&["start", "replay", "t", "--group", "g", "--dry-run"]).ok();
    assert_eq!(counted, "2 letters match; nothing was done\n");
    let started = jobs(&["start", "delete", "t", "--group", "g", "--rate", "1000", "--json"]).json();
    assert_eq!((&started["kind"], &started["total"]), (&json!("delete"), &json!(2)), "{started}");
    let job = started["job"].as_str().unwrap().to_owned();
    eventually("it is done", || jobs(&["show", &job, "--json"]).json()["state"] == "done");
    assert_eq!(jobs(&["show", &job]).ok(), format!("job {job}: 2 of 2 letters of t, 2 deleted; done\n"));
    assert!(jobs(&["list"]).ok().lines().nth(1).is_some_and(|line| line.contains("delete")));
    jobs(&["cancel", "99"]).refused(1, &["there is no job 99"]);
}

#[test]
fn a_letter_is_edited_in_the_users_editor_and_replayed() {
    let (server, _socket) = server();
    let url = server.ws_url();
    let folder = tempfile::tempdir().unwrap();
    let edit = |editor: &str, offset: &str| {
        let args = ["dead-letters", "replay", "t", "--edit", "--offset", offset, "--url", &url];
        run_in(folder.path(), &[("EDITOR", editor), ("VISUAL", "")], &args)
    };
    assert_eq!(edit("true", "1").ok(), "nothing was changed, so nothing was replayed\n");
    edit("false", "1").refused(1, &["the editor ended with", "nothing was replayed"]);
    edit("no-such-editor-here", "1").refused(1, &["cannot start the editor no-such-editor-here"]);
    edit("sed -i 's/{/[/'", "1").refused(1, &["the edited letter is not JSON with key, headers and payload"]);
    edit("true", "9").refused(1, &["no dead letter at partition 0, offset 9"]);
    let said = edit("sed -i s/north/south/", "1").ok();
    assert_eq!(said, "replayed the edited letter to t, partition 0, offset 3\n");
    let text = server.request("GET", "/topics/t/events?from=3", None).1;
    let event: Value = serde_json::from_str::<Value>(&text).unwrap()["events"][0].clone();
    assert!(text.contains("12345678901234567890"), "every digit stays: {text}");
    assert_eq!((&event["key"], &event["headers"]["x-shop"]), (&json!("k"), &json!("south")), "{event}");
    assert_eq!(event["headers"]["x-replayed-edited"], "true", "{event}");
    let again = edit("sed -i s/north/south/", "1").ok();
    assert_eq!(again, "the same edit was replayed before: it is at partition 0, offset 3\n");
    run(&["dead-letters", "replay", "t", "--edit", "--url", &url]).refused(2, &["--offset"]);
}
