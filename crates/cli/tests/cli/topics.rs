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
