//! The loop's own commands.

use serde_json::{Value, json};

use crate::client::{Client, fault, serve};

#[test]
fn ping_answers_with_lineage() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    client.write(
        "{\"kind\":\"query\",\"type\":\"Syscall.Ping\",\"data\":{\"payload\":[1]},\
         \"metadata\":{\"id\":\"p\",\"timestamp\":5,\"correlation\":\"c\",\"causation\":\"before\",\"extra\":1}}\n",
    );
    let answer = client.next();
    assert_eq!((&answer["kind"], &answer["type"]), (&json!("reply"), &json!("Syscall.Ping")));
    assert_eq!(answer["data"], json!({"payload": [1]}));
    let metadata = &answer["metadata"];
    assert_eq!((&metadata["causation"], &metadata["correlation"]), (&json!("p"), &json!("c")));
    assert!(metadata["timestamp"].as_u64().expect("a time") > 1_700_000_000_000);
    assert!(metadata["id"].as_str().is_some_and(|id| id != "p" && !id.is_empty()));
}

#[test]
fn describe_knows_both_shapes() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let one = client.reply("query", "Syscall.Describe", &json!({"name": "Memory.Set"}));
    assert_eq!((&one["name"], &one["kind"]), (&json!("Memory.Set"), &json!("command")));
    assert_eq!(one["input"]["required"], json!(["key", "value"]));
    assert!(one["input"]["description"].is_string() && one["output"].is_object(), "{one}");
    let unknown = client.refused("query", "Syscall.Describe", &json!({"name": "No.One"}));
    assert_eq!(unknown, (404, "Capability 'No.One' not found in registry.".to_owned()));
    let asked = json!({"capabilities": ["Syscall.Ping", "No.One"]});
    let some = client.reply("query", "Syscall.Describe", &asked);
    let schemas = some["schemas"].as_object().expect("an object");
    assert_eq!(schemas.keys().collect::<Vec<_>>(), ["Syscall.Ping"]);
    assert!(schemas["Syscall.Ping"]["description"].is_string());
    let all = client.reply("query", "Syscall.Describe", &json!({"capabilities": ["*"]}));
    let listed = client.reply("query", "Syscall.List", &json!({}));
    let names: Vec<Value> =
        all["schemas"].as_object().expect("an object").keys().map(|name| json!(name)).collect();
    assert_eq!(Value::from(names), listed["syscalls"]);
    for name in ["Timer.Set", "Sys.RequestTimeout", "Memory.Get", "Syscall.Shutdown"] {
        assert!(listed["syscalls"].as_array().expect("a list").contains(&json!(name)), "{listed}");
    }
    let itself = &all["schemas"]["Syscall.Describe"];
    assert_eq!(itself["description"], "Introspects the kernel capabilities.");
    assert_eq!(client.refused("query", "Syscall.Describe", &json!({})).0, 422);
}

#[test]
fn what_nobody_handles_is_404_and_names_the_other_kind() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let refused = client.refused("command", "No.One", &json!(null));
    assert_eq!(refused, (404, "Capability 'No.One' not found in registry.".to_owned()));
    let (code, message) = client.refused("command", "Syscall.Ping", &json!({}));
    assert_eq!(code, 404);
    assert!(message.contains("query"), "{message}");
    client.still_works();
}

#[test]
fn data_that_does_not_fit_is_422_and_says_where() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let (code, message) = client.refused("command", "Memory.Set", &json!({"key": 5, "value": 1}));
    assert_eq!(code, 422);
    assert!(message.starts_with("Schema validation failed: ") && message.contains("key"), "{message}");
    client.still_works();
}

#[test]
fn events_and_outcomes_of_clients_are_taken_and_answered_by_nobody() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    client.send("event", "User.Created", &json!({}));
    client.send("event", "Sys.RoutingError", &json!({}));
    client.send("reply", "Syscall.Ping", &json!({}));
    client.send("error", "Syscall.Ping", &json!({"code": 500, "message": "x"}));
    client.still_works();
    assert!(crate::client::metric(&server, "os_orphan_outcomes_total") > 1.5);
}

#[test]
fn a_client_may_time_out_nobody_elses_request() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let reply = client.reply("command", "Sys.RequestTimeout", &json!({"requestId": "of somebody else"}));
    assert_eq!(reply, json!({"requestId": "of somebody else", "timedOut": false}));
}

#[test]
fn authenticate_is_answered_where_nothing_is_asked_for() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let reply = client.reply("command", "Syscall.Authenticate", &json!({}));
    assert_eq!(reply["authenticated"], true);
    assert!(reply["message"].is_string());
    client.still_works();
}

#[test]
fn the_trace_tells_what_became_of_a_message() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    for n in 0..300 {
        let id = format!("{n}");
        client.write(format!(
            "{{\"kind\":\"query\",\"type\":\"Syscall.Ping\",\"data\":{{}},\
             \"metadata\":{{\"id\":\"{id}\",\"timestamp\":1,\"correlation\":\"many\"}}}}\n"
        ));
        assert_eq!(client.next()["metadata"]["causation"], *id);
    }
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = client.reply("query", "Syscall.Trace", &json!({"correlation": "many", "after": after}));
        seen.extend(page["records"].as_array().expect("records").iter().cloned());
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seen.len(), 600, "a request and a reply each");
    assert_eq!(
        (&seen[0]["id"], &seen[0]["step"], &seen[0]["to"]),
        (&json!("0"), &json!("routed"), &json!(["Syscall"]))
    );
    assert_eq!((&seen[1]["causation"], &seen[1]["step"]), (&json!("0"), &json!("answered")));
    let one = client.reply("query", "Syscall.Trace", &json!({"id": "7"}));
    assert_eq!(one["records"].as_array().map(Vec::len), Some(2), "{one}");
    for wrong in [json!({}), json!({"id": "a", "correlation": "b"}), json!({"id": ""})] {
        assert_eq!(client.refused("query", "Syscall.Trace", &wrong).0, 422);
    }
}

#[test]
fn a_second_request_with_the_same_id_is_409_while_the_first_waits() {
    // Both come in one write, so both are queued before the first is answered.
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let set = |value: u32| {
        crate::client::message("command", "Memory.Set", &format!(r#"{{"key":"/k","value":{value}}}"#), "same")
    };
    client.write(format!("{}\n{}\n", set(1), set(2)));
    let first = client.next();
    assert_eq!(fault(&first), (409, "Duplicate request id: same".to_owned()));
    assert_eq!(client.next()["kind"], "reply");
    assert_eq!(client.reply("query", "Memory.Get", &json!({"key": "/k"})), 1);
    client.write(set(3) + "\n");
    assert_eq!(client.next()["kind"], "reply", "the id is free again");
}

#[test]
fn a_branch_without_a_description_has_that_of_its_capability() {
    let scripts = crate::children::Scripts::new();
    let config = scripts.write("A", &json!({"description": "Does what it is told"}), "answer('reply', None)");
    let server = crate::children::serve(&config, &[]);
    let one = Client::of(&server).reply("query", "Syscall.Describe", &json!({"name": "A.Do"}));
    assert_eq!((&one["description"], &one["capability"]), (&json!("Does what it is told"), &json!("A")));
    assert_eq!(one["input"]["description"], "Does what it is told");
}
