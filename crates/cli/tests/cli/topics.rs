//! `millrace topics`.

use serde_json::json;

use crate::run::run;
use crate::server::{Server, eventually};

#[test]
fn topics_are_created_shown_listed_and_deleted() {
    let server = Server::start();
    let url = server.ws_url();
    let topics = |args: &[&str]| run(&[&["topics"], args, &["--url", &url]].concat());
    let create = ["create", "orders", "--partitions", "2", "--retention-ms", "60000", "--max-attempts", "3"];
    assert_eq!(
        topics(&[&create[..], &["--durability", "os"]].concat()).ok(),
        "topic orders has 2 partitions\n"
    );
    run(&["pub", "orders", "1", "--count", "10", "--url", &url]).ok();
    run(&["sub", "orders", "--group", "g", "--from", "earliest", "--count", "10", "--url", &url]).ok();

    let shown = topics(&["show", "orders", "--json"]).json();
    let config = json!({"partitions": 2, "retentionMs": 60000, "maxAttempts": 3, "durability": "os"});
    assert_eq!(shown["config"], config);
    let committed = |at: usize| shown["partitions"][at]["groups"]["g"]["committed"].as_u64().unwrap();
    assert_eq!(committed(0) + committed(1), 10);
    let shown = topics(&["show", "orders"]).ok();
    assert!(shown.starts_with("topic orders\n") && shown.contains("\nretentionMs 60000\n"), "{shown}");
    assert!(shown.contains("\nackTimeoutMs 30000 (default)\n"), "{shown}");
    assert!(shown.contains("\nretentionBytes none (default)\n"), "{shown}");

    let list = topics(&["list"]).ok();
    assert!(list.starts_with("TOPIC"), "{list}");
    let row = list.lines().find(|line| line.starts_with("orders ")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["orders", "2", "10", "1"]);
    assert!(
        topics(&["list", "--json"]).json()["topics"]
            .as_array()
            .unwrap()
            .iter()
            .any(|t| t["topic"] == "orders")
    );

    assert_eq!(topics(&["delete", "orders", "--json"]).json(), json!({"deleted": "orders"}));
    topics(&["show", "orders"]).refused(1, &["bad_topic"]);
    topics(&["delete", "orders"]).refused(1, &["bad_topic"]);
}

#[test]
fn create_leaves_a_topic_that_exists_alone_and_set_changes_it() {
    let server = Server::start();
    let url = server.ws_url();
    let topics = |args: &[&str]| run(&[&["topics"], args, &["--url", &url]].concat());
    assert_eq!(topics(&["create", "a", "--max-attempts", "3"]).ok(), "topic a has 1 partition\n");
    topics(&["create", "a"]).refused(1, &["topic a exists already", "topics set a"]);
    let config = |topic| topics(&["show", topic, "--json"]).json()["config"].clone();
    assert_eq!(config("a"), json!({"partitions": 1, "maxAttempts": 3}));

    let set = ["set", "a", "--retention-ms", "5000", "--durability", "os", "--partitions", "2"];
    let shown = topics(&set).ok();
    assert!(shown.contains("retentionMs 5000\n") && shown.contains("maxAttempts 3\n"), "{shown}");
    topics(&["set", "a", "--unset", "max-attempts", "--unset", "durability"]).ok();
    assert_eq!(config("a"), json!({"partitions": 2, "retentionMs": 5000}));
    topics(&["set", "a", "--partitions", "1"]).refused(1, &["may only grow"]);
    topics(&["set", "a"]).refused(2, &["nothing to set"]);
    topics(&["set", "a", "--unset", "colour"]).refused(2, &["colour", "retention-ms"]);
    topics(&["set", "a", "--retention-ms", "1", "--unset", "retention-ms"]).refused(2, &["both given"]);
    topics(&["set", "nope", "--retention-ms", "1"]).refused(1, &["bad_topic"]);
}

#[test]
fn access_lists_are_set_shown_and_taken_back() {
    let tokens = "[[auth.tokens]]\ntoken = \"root-secret\"\nagent = \"root\"\nscopes = [\"admin\"]\n";
    let server = Server::with_config(tokens, &[]);
    let url = server.ws_url();
    let client = ["--url", &url, "--token", "root-secret"];
    let topics = |args: &[&str]| run(&[&["topics"], args, &client].concat());
    topics(&["create", "a", "--publish-acl", "billing, !intern"]).ok();
    let config = || topics(&["show", "a", "--json"]).json()["config"].clone();
    assert_eq!(config(), json!({"partitions": 1, "publishACL": ["billing", "!intern"]}));
    let shown = topics(&["set", "a", "--subscribe-acl", "", "--unset", "publish-acl"]).ok();
    assert!(
        shown.contains("publishACL everybody (default)\n") && shown.contains("subscribeACL []\n"),
        "{shown}"
    );
    assert_eq!(config(), json!({"partitions": 1, "subscribeACL": []}));
    topics(&["set", "a", "--publish-acl", "a b"]).refused(2, &["--publish-acl"]);
    run(&["topics", "list", "--url", &url]).refused(1, &["unauthorized"]);
}

#[test]
fn a_group_is_moved() {
    let server = Server::start();
    let url = server.ws_url();
    run(&["pub", "t", "1", "--count", "3", "--url", &url]).ok();
    run(&["sub", "t", "--group", "g", "--from", "earliest", "--count", "3", "--url", &url]).ok();
    let seek = |args: &[&str]| run(&[&["topics", "seek", "t", "g", "--url", &url], args].concat());
    let said = seek(&["--from", "offset:2"]).ok();
    assert_eq!(said, "group g of topic t goes on at\nPARTITION  NEXT\n0          2\n");
    assert_eq!(server.committed("t", "g", 0), 1);
    let sought = seek(&["--from", "earliest", "--partition", "0", "--json"]).json();
    assert_eq!(sought["partitions"], json!([{"partition": 0, "next": 1}]));
    seek(&["--from", "offset:1", "--partition", "7"]).refused(1, &[]);
    seek(&["--from", "first"]).refused(2, &["earliest"]);
}

#[test]
fn dead_letters_are_listed_and_replayed_once() {
    let server = Server::start();
    let url = server.ws_url();
    run(&["topics", "create", "t", "--max-attempts", "1", "--url", &url]).ok();
    run(&["pub", "t", "{\"n\":1}", "--url", &url]).ok();
    run(&["sub", "t", "--group", "g", "--from", "earliest", "--no-ack", "--count", "1", "--url", &url]).ok();
    let letters = |args: &[&str]| run(&[&["dead-letters"], args, &["--url", &url]].concat());
    eventually("the event is a dead letter", || letters(&["list"]).ok().contains("t      1        t.DLQ"));
    let shown = letters(&["list", "t"]).ok();
    let row = shown.lines().nth(1).unwrap();
    assert!(row.starts_with("1 ") && row.contains(" 0/1 ") && row.ends_with("{\"n\":1}"), "{shown}");
    assert_eq!(letters(&["list", "t", "--json"]).json()["events"][0]["payload"], json!({"n": 1}));
    for _ in 0..2 {
        let said = letters(&["replay", "t", "--limit", "5", "--offset", "1", "--partition", "0"]).ok();
        assert_eq!(said, "replayed 1 event to t; more begin at offset 2\n");
    }
    assert_eq!(server.get("/topics/t/offsets").1["partitions"][0]["next"], 3, "stored once");
    letters(&["replay", "nope"]).refused(1, &["bad_topic"]);
    letters(&["list", "--limit", "1"]).refused(2, &["TOPIC"]);
}

#[test]
fn groups_are_listed_and_deleted() {
    let server = Server::start();
    let url = server.ws_url();
    let topics = |args: &[&str]| run(&[&["topics"], args, &["--url", &url]].concat());
    run(&["pub", "t", "1", "--count", "6", "--url", &url]).ok();
    run(&["sub", "t", "--group", "g", "--from", "earliest", "--count", "4", "--url", &url]).ok();
    eventually("its member has left", || {
        topics(&["groups", "t", "--json"]).json()["groups"][0]["members"] == 0
    });
    let list = topics(&["groups", "t"]).ok();
    let row: Vec<_> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["g", "0", "0", "4", "2", "0"], "{list}");
    assert_eq!(topics(&["groups", "t", "--json"]).json()["groups"][0]["partitions"][0]["committed"], 4);
    assert_eq!(topics(&["delete-group", "t", "g"]).ok(), "group g of topic t is deleted\n");
    topics(&["delete-group", "t", "g"]).refused(1, &["no group g", "bad_group"]);
    topics(&["create", "c", "--compact"]).ok();
    assert_eq!(topics(&["show", "c", "--json"]).json()["config"]["compact"], true);
    topics(&["set", "c", "--compact=false"]).ok();
    assert_eq!(topics(&["show", "c", "--json"]).json()["config"], json!({"partitions": 1}));
}

#[test]
fn lists_go_on_until_there_is_no_next_page() {
    let server = Server::with(&["--list-max", "2"]);
    let names = ["a", "a.DLQ", "b", "b.DLQ", "c.DLQ"];
    for topic in names {
        assert_eq!(server.post("/topics", &serde_json::json!({"topic": topic})).0, 201);
    }
    let url = server.ws_url();
    let list = |verb: &'static str, more: &[&str]| run(&[&[verb, "list", "--url", &url], more].concat());
    let found = list("topics", &["--json"]).json();
    let found: Vec<&str> =
        found["topics"].as_array().unwrap().iter().filter_map(|topic| topic["topic"].as_str()).collect();
    assert_eq!(found, names);
    let text = list("topics", &[]).ok();
    assert!(
        names.iter().all(|name| text.lines().any(|line| line.starts_with(&format!("{name} ")))),
        "{text}"
    );
    assert_eq!(list("dead-letters", &["--json"]).json()["deadLetters"].as_array().unwrap().len(), 3);
}
