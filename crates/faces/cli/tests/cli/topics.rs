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
    assert!(shown.contains("\ncompact false (default)\n"), "{shown}");

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
    topics(&["set", "a", "--group-acl", "billing=bob,!eve", "--group-acl", "*=", "--group-acl", "c=x"]).ok();
    let groups = || config()["groupACL"].clone();
    assert_eq!(groups(), json!({"billing": ["bob", "!eve"], "*": [], "c": ["x"]}));
    topics(&["set", "a", "--group-acl", "c=y", "--unset", "group-acl=*"]).ok();
    assert_eq!(groups(), json!({"billing": ["bob", "!eve"], "c": ["y"]}), "the others stay");
    topics(&["set", "a", "--group-acl", "c=y", "--unset", "group-acl=c"]).refused(2, &["contradict"]);
    topics(&["set", "a", "--group-acl", "c"]).refused(2, &["GROUP=LIST"]);
    topics(&["set", "a", "--group-acl", "c=x", "--group-acl", "c=y"]).refused(2, &["group c twice"]);
    topics(&["set", "a", "--group-acl", "a b=x"]).refused(2, &["--group-acl"]);
    let shown = topics(&["set", "a", "--unset", "group-acl"]).ok();
    assert!(shown.contains("groupACL as subscribeACL says (default)\n"), "{shown}");
    run(&["topics", "list", "--url", &url]).refused(1, &["unauthorized", "--token", "MILLRACE_TOKEN"]);
    run(&["pub", "a", "1", "--url", &url]).refused(1, &["unauthorized", "--token", "MILLRACE_TOKEN"]);
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
    let sub = ["sub", "t", "--group", "g", "--from", "earliest", "--count", "1", "--url", &url];
    run(&[&sub[..], &["--no-ack", "--nack", "x"]].concat()).refused(2, &["--nack"]);
    assert_eq!(run(&[&sub[..], &["--nack", "no such customer"]].concat()).ok(), "{\"n\":1}\n");
    let letters = |args: &[&str]| run(&[&["dead-letters"], args, &["--url", &url]].concat());
    eventually("the event is a dead letter", || letters(&["list"]).ok().contains("t      1        t.DLQ"));
    let shown = letters(&["list", "t"]).ok();
    let row = shown.lines().nth(1).unwrap();
    assert!(
        row.starts_with("1 ")
            && row.contains(" 0/1 ")
            && row.contains("no such customer")
            && row.ends_with("{\"n\":1}"),
        "{shown}"
    );
    assert_eq!(letters(&["list", "t", "--json"]).json()["events"][0]["payload"], json!({"n": 1}));
    let again = "; 1 had been replayed before and was not stored again";
    for (count, more) in [("1 event", ""), ("0 events", again)] {
        let said = letters(&["replay", "t", "--limit", "5", "--offset", "1", "--partition", "0"]).ok();
        assert_eq!(
            said,
            format!("replayed {count} to t{more}\n"),
            "nothing is said of more where there is none"
        );
    }
    assert_eq!(server.get("/topics/t/offsets").1["partitions"][0]["next"], 3, "stored once");
    letters(&["replay", "nope"]).refused(1, &["there is no topic nope:", "bad_topic"]);
    letters(&["list", "nope"]).refused(1, &["there is no topic nope:", "bad_topic"]);
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
    let own = ["system.bus.audit", "system.bus.dlq", "system.metrics"];
    assert_eq!(found, [&names[..], &own].concat());
    let text = list("topics", &[]).ok();
    assert!(
        names.iter().all(|name| text.lines().any(|line| line.starts_with(&format!("{name} ")))),
        "{text}"
    );
    assert_eq!(list("dead-letters", &["--json"]).json()["deadLetters"].as_array().unwrap().len(), 3);
}

#[test]
fn a_topic_without_dead_letters_has_none() {
    let server = Server::start();
    let url = server.ws_url();
    let letters = |args: &[&str]| run(&[&["dead-letters"], args, &["--url", &url]].concat());
    assert_eq!(letters(&["list"]).ok(), "no topic has dead letters\n");
    run(&["topics", "create", "orders", "--url", &url]).ok();
    assert_eq!(letters(&["list", "orders"]).ok(), "topic orders has no dead letters\n");
    let page = json!({"topic": "orders.DLQ", "partition": 0, "events": [], "next": 1});
    assert_eq!(letters(&["list", "orders", "--json"]).json(), page);
    assert_eq!(letters(&["replay", "orders"]).ok(), "replayed 0 events to orders\n");
    assert_eq!(server.get("/topics/orders.DLQ/events").0, 404, "which does not make it a topic");
}

#[test]
fn a_replay_says_where_more_letters_begin() {
    let server = Server::start();
    let url = server.ws_url();
    run(&["pub", "t.DLQ", "1", "--count", "3", "--url", &url]).ok();
    let replay = |args: &[&str]| run(&[&["dead-letters", "replay", "t", "--url", &url], args].concat()).ok();
    assert_eq!(replay(&["--limit", "2"]), "replayed 2 events to t; more begin at offset 3\n");
    let rest = "replayed 1 event to t; 1 had been replayed before and was not stored again\n";
    assert_eq!(replay(&["--limit", "2", "--offset", "2"]), rest);
    assert_eq!(server.get("/topics/t/offsets").1["partitions"][0]["next"], 4);
}

#[test]
fn the_defaults_shown_are_the_servers() {
    let server =
        Server::with(&["--max-attempts", "9", "--ack-timeout-ms", "1000", "--dedupe-window-ms", "7"]);
    let url = server.ws_url();
    run(&["topics", "create", "d", "--url", &url]).ok();
    for verb in [
        &["topics", "show", "d", "--url", &url][..],
        &["topics", "set", "d", "--compact=false", "--url", &url],
    ] {
        let shown = run(verb).ok();
        for line in ["maxAttempts 9", "ackTimeoutMs 1000", "dedupeWindowMs 7", "durability fsync"] {
            assert!(shown.contains(&format!("\n{line} (default)\n")), "{line}: {shown}");
        }
    }
    let told = run(&["topics", "show", "d", "--json", "--url", &url]).json();
    assert_eq!((&told["config"], &told["defaults"]["maxAttempts"]), (&json!({"partitions": 1}), &json!(9)));
}

#[test]
fn of_a_compacted_topic_the_list_tells_the_most_there_can_be() {
    let server =
        Server::with(&["--compact-interval-ms", "50", "--tombstone-ms", "0", "--maintain-interval-ms", "1"]);
    let url = server.ws_url();
    run(&["topics", "create", "c", "--compact", "--url", &url]).ok();
    run(&["pub", "c", "1", "--key", "first", "--url", &url]).ok();
    run(&["pub", "c", "1", "--key", "k", "--count", "20", "--url", &url]).ok();
    eventually("it is compacted", || {
        server.get("/topics/c/events").1["events"].as_array().is_some_and(|events| events.len() == 2)
    });
    let list = run(&["topics", "list", "--url", &url]).ok();
    let row = list.lines().find(|line| line.starts_with("c ")).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["c", "1", "<=21", "0"],
        "not all of them are there"
    );
}

#[test]
fn making_a_topic_is_no_refusal_and_only_a_new_one_is_made() {
    let server = Server::with_log_level("", &[], "info");
    let url = server.ws_url();
    run(&["topics", "create", "new", "--url", &url]).ok();
    assert!(!server.log().contains("refused"), "{}", server.log());
    let body = json!({"topic": "new", "maxAttempts": 9}).to_string().into_bytes();
    let only_new = [("if-none-match", "*".to_owned())];
    let mut refused = server.send("POST", "/topics", &only_new, body.clone());
    let problem = refused.body_mut().read_to_string().unwrap();
    assert_eq!(refused.status(), 412, "{problem}");
    assert!(problem.contains("topic new exists already"), "{problem}");
    assert_eq!(server.get("/topics/new").1.get("maxAttempts"), None, "it was left alone");
    assert_eq!(
        server.send("POST", "/topics", &[], body).status(),
        200,
        "asked for without it, it is changed"
    );
}
