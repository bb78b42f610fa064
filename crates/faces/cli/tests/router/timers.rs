//! Timers through the socket: set, cancel, fire with their lineage, also after SIGKILL.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::client::{Client, metric, serve};
use crate::server::eventually;

fn trace(client: &mut Client, correlation: &str) -> Vec<Value> {
    let page = client.reply("query", "Syscall.Trace", &json!({"correlation": correlation}));
    page["records"].as_array().expect("records").clone()
}

fn template(correlation: &str, key: &str) -> Value {
    json!({
        "kind": "command",
        "type": "Memory.Set",
        "data": {"key": key, "value": "fired"},
        "metadata": {"correlation": correlation},
    })
}

#[test]
fn a_timer_fires_once_not_early_and_with_its_lineage() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let begun = Instant::now();
    let set =
        client.ask("command", "Timer.Set", &json!({"delayMs": 300, "message": template("corr", "/fired")}));
    let set_id = set["metadata"]["causation"].clone();
    assert!(set["data"]["timerId"].is_string(), "{set}");
    eventually("it fires", || client.reply("query", "Memory.Get", &json!({"key": "/fired"})) == "fired");
    assert!(begun.elapsed() >= Duration::from_millis(300), "early: {:?}", begun.elapsed());
    let records = trace(&mut client, "corr");
    let of = |ty: &str, kind: &str| {
        records
            .iter()
            .find(|record| record["type"] == ty && record["kind"] == kind)
            .unwrap_or_else(|| panic!("{ty} in {records:?}"))
    };
    let (fired, command, reply) =
        (of("Timer.Fired", "event"), of("Memory.Set", "command"), of("Memory.Set", "reply"));
    assert_eq!((&fired["causation"], &command["causation"]), (&set_id, &set_id));
    assert_eq!(reply["causation"], command["id"]);
    assert!(fired["number"].as_u64() < command["number"].as_u64(), "Timer.Fired comes first");
    assert!(metric(&server, "os_timers") < 0.5);
}

#[test]
fn a_cancelled_timer_does_not_fire_and_cancelling_twice_is_no_error() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let set =
        client.reply("command", "Timer.Set", &json!({"delayMs": 3_600_000, "message": template("c", "/no")}));
    let cancel = json!({"timerId": set["timerId"]});
    assert_eq!(client.reply("command", "Timer.Cancel", &cancel), json!({"cancelled": true}));
    assert_eq!(client.reply("command", "Timer.Cancel", &cancel), json!({"cancelled": false}));
    assert_eq!(
        client.reply("command", "Timer.Cancel", &json!({"timerId": "none"})),
        json!({"cancelled": false})
    );
    for wrong in [
        json!({"message": template("c", "/no")}),
        json!({"delayMs": 1, "dueAt": 1, "message": template("c", "/no")}),
        json!({"delayMs": -1, "message": template("c", "/no")}),
        json!({"delayMs": 1}),
        json!({"delayMs": 1, "message": {"kind": "reply", "type": "A.B", "data": 1}}),
    ] {
        assert_eq!(client.refused("command", "Timer.Set", &wrong).0, 422, "{wrong}");
    }
    assert_eq!(client.reply("query", "Memory.Get", &json!({"key": "/no"})), Value::Null);
}

#[test]
fn a_timer_outlives_its_client_and_a_kill() {
    let mut server = serve(&[]);
    let mut client = Client::of(&server);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    for n in 0..20 {
        let due = wall + 400 + n * 20;
        client.reply(
            "command",
            "Timer.Set",
            &json!({"dueAt": due, "message": template("k", &format!("/{n}"))}),
        );
    }
    drop(client);
    server.kill_and_restart();
    let mut client = Client::of(&server);
    for n in 0..20 {
        eventually("it fires", || {
            client.reply("query", "Memory.Get", &json!({"key": format!("/{n}")})) == "fired"
        });
    }
    eventually("no timer is left", || metric(&server, "os_timers") < 0.5);
    server.kill_and_restart();
    assert!(metric(&server, "os_timers") < 0.5, "fired timers are gone from the store");
}
