//! The loop's reports about itself: to subscribers, to the log, to the metrics.

use serde_json::{Value, json};

use crate::children::{Scripts, serve};
use crate::client::{Client, metric};
use crate::server::{Server, eventually};

/// A child that keeps every event and returns them when asked.
const WATCH: &str = "if message['kind'] == 'event':\n    globals().setdefault('SEEN', []).append(message)\n\
                     else:\n    answer('reply', globals().get('SEEN', []))";

fn seen(client: &mut Client, ty: &str) -> Vec<Value> {
    let seen = client.reply("query", "Watch.Do", &json!({}));
    seen.as_array().expect("a list").iter().filter(|event| event["type"] == ty).cloned().collect()
}

fn watched(scripts: &Scripts, types: &[&str]) -> Server {
    serve(&scripts.write("Watch", &json!({ "subscribes": types }), WATCH), &[])
}

#[test]
fn the_end_of_boot_reaches_whoever_subscribed_and_the_log() {
    let scripts = Scripts::new();
    let mut server = watched(&scripts, &["Sys.BootComplete"]);
    let mut client = Client::of(&server);
    eventually("it is told", || seen(&mut client, "Sys.BootComplete").len() == 1);
    let told = seen(&mut client, "Sys.BootComplete")[0]["data"].clone();
    assert_eq!(told["timers"], 0, "{told}");
    assert!(told["capabilities"].as_u64() >= Some(4), "{told}");
    assert!(server.log().contains("Sys.BootComplete"));
    let far = json!({"kind": "event", "type": "No.Body", "data": 1});
    client.reply("command", "Timer.Set", &json!({"delayMs": 3_600_000, "message": far}));
    server.kill_and_restart();
    let mut client = Client::of(&server);
    eventually("it is told again", || seen(&mut client, "Sys.BootComplete").len() == 1);
    assert_eq!(seen(&mut client, "Sys.BootComplete")[0]["data"]["timers"], 1);
}

#[test]
fn what_goes_astray_is_an_event_a_warning_a_figure_and_in_the_trace() {
    let scripts = Scripts::new();
    let server = watched(&scripts, &["Sys.RoutingError", "Sys.OrphanOutcome"]);
    let mut client = Client::of(&server);
    let lost = client.send("command", "No.Where", &json!(1));
    client.next();
    client.send("reply", "Any.Thing", &json!(1));
    eventually("both are told", || {
        seen(&mut client, "Sys.RoutingError").len() == 1 && seen(&mut client, "Sys.OrphanOutcome").len() == 1
    });
    let error = seen(&mut client, "Sys.RoutingError")[0].clone();
    assert_eq!(error["data"], json!({"kind": "command", "type": "No.Where", "id": lost}));
    assert_eq!(error["metadata"]["causation"], lost);
    for series in ["os_routing_errors_total", "os_orphan_outcomes_total"] {
        assert!((metric(&server, series) - 1.0).abs() < 0.1, "{series}");
    }
    let log = server.log();
    for ty in ["Sys.RoutingError", "Sys.OrphanOutcome"] {
        assert!(log.lines().any(|line| line.contains("WARN") && line.contains(ty)), "{ty} in {log}");
    }
    let found = client.reply("query", "Syscall.Trace", &json!({"id": lost}));
    let steps: Vec<&str> =
        found["records"].as_array().expect("records").iter().filter_map(|one| one["type"].as_str()).collect();
    assert!(steps.contains(&"No.Where") && steps.contains(&"Sys.RoutingError"), "{found}");
}

#[test]
fn a_client_that_asks_for_nothing_sensible_does_not_fill_the_log() {
    let server = serve("", &[]);
    let mut client = Client::of(&server);
    for _ in 0..500 {
        assert_eq!(client.refused("command", "No.Where", &json!(1)).0, 404);
    }
    let lines = server.log().lines().filter(|line| line.contains("Sys.RoutingError")).count();
    assert!((1..=200).contains(&lines), "{lines} lines for 500 mistakes");
    assert!((metric(&server, "os_routing_errors_total") - 500.0).abs() < 0.1);
}
