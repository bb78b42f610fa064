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

#[test]
fn waiting_timers_are_listed_and_cancelled_over_http() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let set = |client: &mut Client, hours: u64| {
        let data = json!({"delayMs": hours * 3_600_000, "message": template("c", "/no")});
        client.reply("command", "Timer.Set", &data)["timerId"].as_str().expect("an id").to_owned()
    };
    let (late, soon) = (set(&mut client, 2), set(&mut client, 1));
    let (status, list) = server.get("/timers");
    assert_eq!(status, 200, "{list}");
    let timers: Vec<&Value> = list["timers"].as_array().expect("timers").iter().collect();
    assert_eq!([&timers[0]["timer"], &timers[1]["timer"]], [&json!(soon), &json!(late)], "{list}");
    assert_eq!((&timers[0]["type"], &timers[0]["kind"]), (&json!("Memory.Set"), &json!("command")));
    assert_eq!((&timers[0]["durable"], timers[0].get("capability")), (&json!(true), None));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as u64;
    let in_ms = timers[0]["due"].as_u64().expect("a time").saturating_sub(now);
    assert!((3_000_000..=3_600_100).contains(&in_ms), "{in_ms}");
    let (_, page) = server.get("/timers?limit=1");
    let next = page["next"].as_str().expect("there is more");
    let (_, rest) = server.get(&format!("/timers?limit=1&after={next}"));
    assert_eq!((&rest["timers"][0]["timer"], rest.get("next")), (&json!(late), None));

    let (status, done) = server.send_json("DELETE", &format!("/timers/{soon}"), &json!(null));
    assert_eq!((status, &done["timer"]), (200, &json!(soon)), "{done}");
    assert_eq!(server.send_json("DELETE", &format!("/timers/{soon}"), &json!(null)).0, 404);
    assert_eq!(server.get("/timers").1["timers"].as_array().map(Vec::len), Some(1));
    assert!((metric(&server, "os_timers") - 1.0).abs() < 0.5);
    assert_eq!(server.get("/timers?after=x").0, 400);
}
