//! `sub` prints what `pub` sends, across restarts too.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::run::{command, finish, run, run_with_stdin};
use crate::server::Server;

#[test]
fn a_round_trip() {
    let server = Server::start();
    let url = server.ws_url();
    let said = run(&["pub", "t", "{\"a\": 1.0}", "--key", "k", "--header", "h=v=w", "--url", &url]).ok();
    assert!(
        said.starts_with("published to t, partition 0, offset 1, id ") && said.ends_with("(fsync)\n"),
        "{said}"
    );
    let confirmed = run(&["pub", "t", "null", "--json", "--url", &url]).json();
    assert_eq!((&confirmed["type"], &confirmed["offset"]), (&json!("PUBLISHED"), &json!(2)));
    let said = run_with_stdin(&["pub", "t", "-", "--url", &url], "\"x\"\n\n[1]\r\n2").ok();
    assert!(said.starts_with("published 3 events to t in "), "{said}");

    let sub = ["sub", "t", "--group", "g", "--from", "earliest", "--url", &url];
    let payloads = run(&[&sub[..], &["--count", "4"]].concat()).ok();
    assert_eq!(payloads, "{\"a\": 1.0}\nnull\n\"x\"\n[1]\n");
    let frame = run(&[&sub[..], &["--count", "1", "--json"]].concat()).json();
    assert_eq!((&frame["type"], &frame["offset"]), (&json!("MESSAGE"), &json!(5)));
    assert_eq!(frame["envelope"].get("attempts"), None, "a counted run takes no more than it prints");
    assert_eq!(server.committed("t", "g", 0), 5);
}

#[test]
fn reading_without_acking_leaves_the_commit_alone_and_counts_no_attempt() {
    let server = Server::start();
    let url = server.ws_url();
    run(&["pub", "t", "7", "--count", "3", "--url", &url]).ok();
    let sub = [
        "sub", "t", "--group", "g", "--from", "earliest", "--no-ack", "--count", "3", "--json", "--url", &url,
    ];
    for _ in 0..3 {
        let frames = run(&sub).ok();
        let frames: Vec<Value> = frames.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(frames.len(), 3);
        assert!(frames.iter().all(|frame| frame["envelope"].get("attempts").is_none()), "{frames:?}");
    }
    assert_eq!(server.committed("t", "g", 0), 0);
}

/// Nothing is acked, so a second event of a key is printed only where the order of keys is not kept.
#[test]
fn the_order_of_a_key_is_kept_if_the_reader_or_the_topic_asks_for_it() {
    let server = Server::start();
    let url = server.ws_url();
    for (payload, key) in [("1", "a"), ("2", "a"), ("3", "b")] {
        run(&["pub", "t", payload, "--key", key, "--url", &url]).ok();
    }
    let printed = |group: &str, more: &[&str]| {
        let sub = ["sub", "t", "--group", group, "--from", "earliest", "--no-ack", "--count", "2"];
        run(&[&sub[..], &["--url", &url], more].concat()).ok()
    };
    assert_eq!(printed("plain", &[]), "1\n2\n");
    assert_eq!(printed("sticky", &["--sticky"]), "1\n3\n");
    let shown = run(&["topics", "set", "t", "--sticky", "--url", &url]).ok();
    assert!(shown.contains("sticky true\n"), "{shown}");
    assert_eq!(printed("by-topic", &[]), "1\n3\n");
    let shown = run(&["topics", "set", "t", "--unset", "sticky", "--url", &url]).ok();
    assert!(shown.contains("sticky false (default)\n"), "{shown}");
    assert_eq!(printed("plain-again", &[]), "1\n2\n");
}

#[test]
fn where_to_begin_and_what_to_take() {
    let server = Server::start();
    let url = server.ws_url();
    for (payload, key, header) in [("1", "a", "h=x"), ("2", "b", "h=x"), ("3", "b", "h=y"), ("4", "b", "h=x")]
    {
        run(&["pub", "t", payload, "--key", key, "--header", header, "--url", &url]).ok();
    }
    let sub = |group: &str, more: &[&str]| {
        run(&[&["sub", "t", "--url", &url, "--group", group], more].concat()).ok()
    };
    assert_eq!(sub("offset", &["--from", "offset:3", "--count", "2"]), "3\n4\n");
    assert_eq!(sub("time", &["--from", "timestamp:0", "--count", "1"]), "1\n");
    let filter = ["--filter-key", "b", "--filter-header", "h=x", "--from", "earliest", "--count", "2"];
    assert_eq!(sub("filter", &filter), "2\n4\n");
    assert_eq!(sub("offset", &["--from", "earliest", "--reset", "--count", "1"]), "1\n");
}

#[test]
fn namespaces_do_not_meet() {
    let server = Server::start();
    let url = server.ws_url();
    run(&["pub", "t", "1", "--namespace", "a", "--url", &url]).ok();
    run(&["pub", "t", "2", "--namespace", "b", "--url", &url]).ok();
    let sub = ["sub", "t", "--group", "g", "--from", "earliest", "--count", "1", "--url", &url];
    assert_eq!(run(&[&sub[..], &["--namespace", "b"]].concat()).ok(), "2\n");
}

#[test]
fn a_paced_publish_is_confirmed_one_by_one() {
    let server = Server::start();
    let said =
        run(&["pub", "t", "1", "--count", "20", "--rate", "1000", "--json", "--url", &server.ws_url()]).ok();
    let offsets =
        said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["offset"].as_u64().unwrap());
    assert_eq!(offsets.collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
}

#[test]
fn a_delayed_event_says_when_it_is_due() {
    let server = Server::start();
    let args = ["pub", "t", "1", "--delay-ms", "3600000", "--json", "--url", &server.ws_url()];
    let confirmed = run(&args).json();
    assert!(confirmed["due"].is_u64() && confirmed.get("offset").is_none(), "{confirmed}");
}

#[test]
fn publishing_stops_at_a_line_above_the_limit() {
    let server = Server::start();
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    let ran = run_with_stdin(&["pub", "t", "-", "--url", &server.ws_url()], &format!("1\n{large}\n3\n"));
    assert_eq!(ran.code, Some(1));
    for part in ["line 2 of stdin", "bytes", "1 event confirmed", "what follows line 2"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let (_, events) = server.get("/topics/t/events");
    let payloads: Vec<_> =
        events["events"].as_array().unwrap().iter().map(|event| &event["payload"]).collect();
    assert_eq!(payloads, [1]);
    assert!(ran.stdout.starts_with("published 1 event to t"), "{}", ran.stdout);
}

#[test]
fn an_id_makes_a_second_publish_a_duplicate() {
    let server = Server::start();
    let url = server.ws_url();
    let publish =
        |payload: &str| run(&["pub", "t", payload, "--id", "order-1", "--json", "--url", &url]).json();
    let first = publish("1");
    assert_eq!((&first["id"], &first["offset"]), (&json!("order-1"), &json!(1)));
    assert_eq!(publish("2"), first);
    run(&["pub", "t", "1", "--id", "x", "--count", "2", "--url", &url]).refused(2, &["--id", "one event"]);
    run(&["pub", "t", "-", "--id", "x", "--url", &url]).refused(2, &["--id"]);
    run(&["pub", "t", "1", "--id", "", "--url", &url]).refused(2, &["id"]);
}

#[test]
fn a_server_is_named_in_several_ways() {
    let server = Server::start();
    let http = server.http_url();
    let bare = http.replace("http://", "");
    for url in [&http, &bare] {
        run(&["pub", "t", "1", "--url", url]).ok();
        run(&["topics", "list", "--url", url]).ok();
    }
}

#[test]
fn a_subscriber_outlives_the_server() {
    let mut server = Server::with(&["--listen", &free_address()]);
    let url = server.ws_url();
    let mut child =
        command(&["sub", "t", "--group", "g", "--from", "earliest", "--count", "2", "--url", &url])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    run(&["pub", "t", "1", "--url", &url]).ok();
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    server.kill_and_restart();
    run(&["pub", "t", "2", "--url", &url]).ok();
    stdout.read_line(&mut line).unwrap();
    // The first ack may have been lost with the server: then the first event comes again.
    assert!(line == "1\n2\n" || line == "1\n1\n", "{line}");
    drop(stdout);
    let ran = finish(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0));
    for part in ["connection lost", "connected again after"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}

/// Returns an address whose port was free a moment ago: a server that is restarted needs a port known beforehand.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
