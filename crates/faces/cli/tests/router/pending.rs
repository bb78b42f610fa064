//! Pending requests: to a capability that accepts everything and answers nothing.

use serde_json::json;

use crate::client::{Client, fault, message, metric};
use crate::server::{Server, eventually};

/// Starts a server with a capability that prints its manifest and then only reads.
fn with_mute(flags: &[&str]) -> Server {
    let manifest = json!({
        "name": "Mute",
        "description": "Says nothing",
        "inbound": [{"kind": "command", "type": "Mute.Ask", "description": "Waits", "data": true}],
    });
    let config = format!(
        "[[capability]]\nname = \"Mute\"\ncommand = [\"sh\", \"-c\", '''echo '{manifest}'; exec cat > /dev/null''']\n"
    );
    Server::with_config(&config, &[&["--socket", "os.sock"], flags].concat())
}

fn ask(id: &str) -> String {
    message("command", "Mute.Ask", "1", id) + "\n"
}

/// Waits until so many requests are pending.
fn waiting(server: &Server, count: f64) {
    eventually("they wait", || (metric(server, "os_pending") - count).abs() < 0.5);
}

#[test]
fn what_is_not_answered_in_time_is_504_and_a_half_closed_client_is_waited_for() {
    let server = with_mute(&["--request-timeout-ms", "300"]);
    let mut client = Client::of(&server);
    client.write(
        "{\"kind\":\"command\",\"type\":\"Mute.Ask\",\"data\":1,\
         \"metadata\":{\"id\":\"t\",\"timestamp\":1,\"correlation\":\"c\"}}\n",
    );
    client.stops_writing();
    let answer = client.next();
    assert_eq!(fault(&answer), (504, "Request timed out".to_owned()));
    assert_eq!(answer["type"], "Mute.Ask");
    let metadata = &answer["metadata"];
    assert_eq!((&metadata["causation"], &metadata["correlation"]), (&json!("t"), &json!("c")));
    client.ends();
    assert!(metric(&server, "os_outcomes_total{class=\"timeout\"}") > 0.5);
    assert!(metric(&server, "os_pending") < 0.5);
}

#[test]
fn a_client_ends_its_own_request_and_nobody_elses() {
    let server = with_mute(&[]);
    let (mut one, mut other) = (Client::of(&server), Client::of(&server));
    one.write(ask("mine"));
    waiting(&server, 1.0);
    let data = json!({"requestId": "mine"});
    assert_eq!(other.reply("command", "Sys.RequestTimeout", &data)["timedOut"], false);
    one.send("command", "Sys.RequestTimeout", &data);
    let (first, second) = (one.next(), one.next());
    let (timed_out, reply) = if first["kind"] == "error" { (first, second) } else { (second, first) };
    assert_eq!((fault(&timed_out).0, &timed_out["metadata"]["causation"]), (504, &json!("mine")));
    assert_eq!(reply["data"], json!({"requestId": "mine", "timedOut": true}));
}

#[test]
fn an_id_that_waits_on_one_connection_is_taken_on_every_other() {
    let server = with_mute(&[]);
    let (mut one, mut other) = (Client::of(&server), Client::of(&server));
    one.write(ask("same"));
    waiting(&server, 1.0);
    other.write(ask("same"));
    assert_eq!(fault(&other.next()), (409, "Duplicate request id: same".to_owned()));
    one.still_works();
    // Neither that nor a forged reply affects the first request.
    other.write(
        "{\"kind\":\"reply\",\"type\":\"Mute.Ask\",\"data\":1,\
         \"metadata\":{\"id\":\"f\",\"timestamp\":1,\"causation\":\"same\"}}\n",
    );
    other.still_works();
    waiting(&server, 1.0);
    drop(one);
    waiting(&server, 0.0);
    other.write(ask("same"));
    waiting(&server, 1.0);
}

#[test]
fn who_hangs_up_waits_for_nothing_also_after_half_a_close() {
    let server = with_mute(&[]);
    let (mut whole, mut half) = (Client::of(&server), Client::of(&server));
    whole.write(ask("whole"));
    half.write(ask("half"));
    half.stops_writing();
    waiting(&server, 2.0);
    drop(half);
    waiting(&server, 1.0);
    drop(whole);
    waiting(&server, 0.0);
    eventually("both are forgotten", || metric(&server, "os_connections") < 0.5);
}

#[test]
fn a_full_mailbox_is_503_at_once() {
    let server = with_mute(&["--mailbox-max", "2"]);
    let mut client = Client::of(&server);
    for id in ["1", "2", "3"] {
        client.write(ask(id));
    }
    let answer = client.next();
    assert_eq!((fault(&answer).0, &answer["metadata"]["causation"]), (503, &json!("3")));
    client.still_works();
}

#[test]
fn when_the_grace_is_over_whoever_waits_hears_503_and_the_server_ends_well() {
    let mut server = with_mute(&["--grace-ms", "400"]);
    let (mut client, mut shutter) = (Client::of(&server), Client::of(&server));
    for n in 0..10 {
        client.write(ask(&n.to_string()));
    }
    waiting(&server, 10.0);
    shutter.reply("command", "Syscall.Shutdown", &json!({}));
    let mut causes: Vec<String> = (0..10)
        .map(|_| {
            let answer = client.next();
            assert_eq!(fault(&answer), (503, "Kernel shutting down".to_owned()));
            answer["metadata"]["causation"].as_str().expect("an id").to_owned()
        })
        .collect();
    causes.sort();
    assert!(causes.iter().map(String::as_str).eq(["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]));
    client.ends();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_thousand_with_a_request_that_vanish_leave_nothing() {
    let server = with_mute(&[]);
    let clients: Vec<Client> = (0..1000)
        .map(|n| {
            let mut client = Client::of(&server);
            client.write(ask(&n.to_string()));
            client
        })
        .collect();
    waiting(&server, 1000.0);
    drop(clients);
    waiting(&server, 0.0);
    eventually("every connection is forgotten", || metric(&server, "os_connections") < 0.5);
    Client::of(&server).still_works();
}
