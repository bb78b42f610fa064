//! `millrace topics`.

use serde_json::json;

use crate::run::run;
use crate::server::Server;

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
    assert!(shown.starts_with("topic orders\n") && shown.contains("retentionMs 60000"), "{shown}");

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
fn groups_are_listed_moved_and_deleted() {
    let server = Server::start();
    let url = server.ws_url();
    let topics = |args: &[&str]| run(&[&["topics"], args, &["--url", &url]].concat());
    run(&["pub", "t", "1", "--count", "6", "--url", &url]).ok();
    run(&["sub", "t", "--group", "g", "--from", "earliest", "--count", "4", "--url", &url]).ok();
    let list = topics(&["groups", "t"]).ok();
    let row: Vec<_> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["g", "0", "0", "4", "2", "0"], "{list}");
    assert_eq!(
        topics(&["seek", "t", "g", "--from", "offset:2"]).ok(),
        "group g goes on at offset 2 of partition 0\n"
    );
    let sought = topics(&["seek", "t", "g", "--from", "earliest", "--partition", "0", "--json"]).json();
    assert_eq!(sought["partitions"], json!([{"partition": 0, "next": 1}]));
    assert_eq!(topics(&["groups", "t", "--json"]).json()["groups"][0]["partitions"][0]["committed"], 0);
    topics(&["seek", "t", "g", "--from", "middle"]).refused(2, &["--from", "middle"]);
    topics(&["seek", "t", "g"]).refused(2, &["--from"]);
    topics(&["seek", "t", "h", "--from", "latest"]).refused(1, &["no group h", "bad_group"]);
    assert_eq!(topics(&["delete-group", "t", "g"]).ok(), "group g of topic t is deleted\n");
    topics(&["delete-group", "t", "g"]).refused(1, &["no group g", "bad_group"]);
}
