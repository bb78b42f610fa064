//! A wall clock that is wrong for a moment, or is set: which events are kept, which ids are known, and which delays end
//! on time.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::server::{Server, eventually};
use crate::shifted::{DAY_MS, HOUR_MS, ShiftedClock};
use crate::socket::Socket;

fn serve(clock: &ShiftedClock, flags: &[&str]) -> Server {
    let env = clock.env();
    let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_path())).collect();
    Server::with_env(flags, &env)
}

fn publish(server: &Server, topic: &str, event: &Value) -> Value {
    let (status, answer) = server.post(&format!("/topics/{topic}/events"), event);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn events(server: &Server, topic: &str) -> Vec<Value> {
    let (status, page) = server.get(&format!("/topics/{topic}/events?limit=1000"));
    assert_eq!(status, 200, "{page}");
    page["events"].as_array().expect("events").clone()
}

fn payloads(server: &Server, topic: &str) -> Vec<Value> {
    events(server, topic).into_iter().map(|event| event["payload"].clone()).collect()
}

fn steps(server: &Server) -> u64 {
    let (_, text) = server.request("GET", "/metrics", None);
    let line = text.lines().find_map(|line| line.strip_prefix("millrace_clock_steps_total "));
    line.unwrap_or_else(|| panic!("{text}")).parse().expect("a number")
}

/// Shifts the clock while the server runs. Returns when the server has noticed.
fn step(server: &Server, clock: &ShiftedClock, ms: i64) {
    let before = steps(server);
    clock.shift(ms);
    eventually("the step is noticed and counted", || steps(server) > before);
}

/// Waits until retention has checked every topic twice since this call, and its removals are done.
fn retention_has_looked(server: &Server) {
    for _ in 0..3 {
        publish(server, "control", &json!({"payload": 1}));
        eventually("retention works", || events(server, "control").is_empty());
    }
}

fn keeps_a_day(server: &Server) {
    assert_eq!(server.post("/topics", &json!({"topic": "t", "retentionMs": DAY_MS})).0, 201);
    assert_eq!(server.post("/topics", &json!({"topic": "control", "retentionMs": 1})).0, 201);
}

#[test]
fn one_second_two_days_ahead_removes_nothing() {
    for publishes in [false, true] {
        let clock = ShiftedClock::new();
        let mut server = serve(&clock, &["--retention-interval-ms", "20"]);
        keeps_a_day(&server);
        let mut expected = vec![json!(1)];
        publish(&server, "t", &json!({"payload": 1}));
        step(&server, &clock, 2 * DAY_MS);
        if publishes {
            publish(&server, "t", &json!({"payload": 2}));
            expected.push(json!(2));
        }
        retention_has_looked(&server);
        assert_eq!(payloads(&server, "t"), expected, "while the clock is wrong");
        server.kill_and_restart();
        if publishes {
            publish(&server, "t", &json!({"payload": 3}));
            expected.push(json!(3));
        }
        retention_has_looked(&server);
        assert_eq!(payloads(&server, "t"), expected, "by a server that started meanwhile");
        step(&server, &clock, 0);
        retention_has_looked(&server);
        assert_eq!(payloads(&server, "t"), expected, "when it is right again");
    }
}

#[test]
fn events_published_while_the_clock_is_wrong_have_the_right_time() {
    let clock = ShiftedClock::new();
    let server = serve(&clock, &[]);
    publish(&server, "t", &json!({"payload": 1}));
    step(&server, &clock, 31 * DAY_MS);
    publish(&server, "t", &json!({"payload": 2}));
    clock.shift(0);
    publish(&server, "t", &json!({"payload": 3}));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis() as u64;
    let times: Vec<u64> = events(&server, "t").iter().map(|event| event["ts"].as_u64().unwrap()).collect();
    assert!(times.len() == 3 && times.iter().all(|ts| ts.abs_diff(now) < HOUR_MS as u64), "{times:?}");
}

/// Events that the servers with the wrong clock write themselves, mainly their metrics, must not make them believe that
/// clock.
#[test]
fn starts_with_a_clock_two_days_ahead_remove_nothing_and_say_so() {
    let clock = ShiftedClock::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let flags = ["--retention-interval-ms", "20", "--clock-settle-ms", "200", "--metrics-interval-ms", "100"];
    let mut server = serve(&clock, &flags);
    keeps_a_day(&server);
    publish(&server, "t", &json!({"payload": 1}));
    server.kill();
    clock.shift(2 * DAY_MS);
    let mut expected = vec![json!(1)];
    for start in 2..5 {
        server.restart_logging_to(&log);
        publish(&server, "t", &json!({"payload": start}));
        expected.push(json!(start));
        let metrics = || events(&server, "system.metrics").len();
        let before = metrics();
        eventually("the clock has settled, and metrics were written", || metrics() > before + 3);
        retention_has_looked(&server);
        assert_eq!(payloads(&server, "t"), expected, "start {start}");
        server.kill();
    }
    let told = std::fs::read_to_string(&log).expect("a log");
    assert!(
        told.contains("the wall clock is more than a day ahead of when this store was last in use"),
        "{told}"
    );
    clock.shift(0);
    server.restart();
    retention_has_looked(&server);
    assert_eq!(payloads(&server, "t"), expected, "when it is right again");
}

/// The events come from a server that ran two days ago. The servers after it cannot tell that from a wrong clock at
/// once; after each settling time the next one counts an hour more.
#[test]
fn what_is_old_goes_once_the_clock_has_been_steady() {
    let clock = ShiftedClock::new();
    clock.shift(-2 * DAY_MS);
    let mut server = serve(&clock, &["--retention-interval-ms", "20", "--clock-settle-ms", "5"]);
    keeps_a_day(&server);
    publish(&server, "t", &json!({"payload": 1}));
    server.kill();
    clock.shift(0);
    server.restart();
    publish(&server, "t", &json!({"payload": 2}));
    retention_has_looked(&server);
    assert_eq!(payloads(&server, "t"), [json!(1), json!(2)]);
    // Each of these servers runs for several settling times.
    for _ in 0..48 {
        retention_has_looked(&server);
        assert_eq!(server.terminate(), Some(0));
        server.restart();
        retention_has_looked(&server);
        if payloads(&server, "t") == [json!(2)] {
            return;
        }
    }
    panic!("the old one stays: {:?}", payloads(&server, "t"));
}

#[test]
fn an_event_a_month_ahead_makes_no_topic_forget_its_ids() {
    let clock = ShiftedClock::new();
    let mut server = serve(&clock, &[]);
    let event = |id: &str| json!({"payload": id, "id": id});
    for topic in ["a", "b"] {
        assert_eq!(publish(&server, topic, &event("known"))["offset"], 1);
    }
    let known = |server: &Server| {
        for topic in ["a", "b"] {
            assert_eq!(publish(server, topic, &event("known"))["offset"], 1, "{topic}");
        }
    };
    step(&server, &clock, 31 * DAY_MS);
    known(&server);
    assert_eq!(publish(&server, "a", &event("meanwhile"))["offset"], 2);
    known(&server);
    clock.shift(0);
    known(&server);
    // A server that starts with the wrong time must take it for right: its events get that time.
    server.kill();
    clock.shift(31 * DAY_MS);
    server.restart();
    assert_eq!(publish(&server, "a", &event("ahead"))["offset"], 3);
    server.kill();
    clock.shift(0);
    server.restart();
    let ahead =
        events(&server, "a")[2]["ts"].as_u64().unwrap() - events(&server, "a")[1]["ts"].as_u64().unwrap();
    assert!(ahead > 30 * DAY_MS as u64, "{ahead}");
    known(&server);
    for (id, offset) in [("meanwhile", 2), ("ahead", 3)] {
        assert_eq!(publish(&server, "a", &event(id))["offset"], offset);
    }
}

#[test]
fn a_clock_set_back_holds_up_no_delay() {
    let clock = ShiftedClock::new();
    // Steps are believed soon, so that the wall time itself falls.
    let server = serve(&clock, &["--clock-settle-ms", "300"]);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"ack_mode": "individual"}));
    publish(&server, "t", &json!({"payload": "refused"}));
    assert_eq!(socket.message(), 1);
    publish(&server, "t", &json!({"payload": "before", "delay_ms": 2000}));
    socket.send_nack("t", "g", 1, &json!({"delay_ms": 1500}));
    step(&server, &clock, -3 * HOUR_MS);
    publish(&server, "t", &json!({"payload": "after", "delay_ms": 200}));
    let mut came: Vec<Value> =
        (0..3).map(|_| socket.expect("MESSAGE")["envelope"]["payload"].clone()).collect();
    came.sort_by_key(Value::to_string);
    assert_eq!(came, [json!("after"), json!("before"), json!("refused")]);
}

#[test]
fn a_clock_set_forward_ends_no_delay_early() {
    let clock = ShiftedClock::new();
    let server = serve(&clock, &["--clock-settle-ms", "300"]);
    publish(&server, "t", &json!({"payload": "in an hour", "delay_ms": HOUR_MS}));
    let tomorrow = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64 + DAY_MS;
    publish(&server, "t", &json!({"payload": "tomorrow", "deliver_at": tomorrow}));
    step(&server, &clock, 2 * DAY_MS);
    // Once the step is believed, it is tomorrow, but an hour has not passed.
    eventually("the new time is taken over", || payloads(&server, "t") == [json!("tomorrow")]);
    publish(&server, "t", &json!({"payload": "soon", "delay_ms": 50}));
    eventually("a short delay ends", || payloads(&server, "t").len() == 2);
    assert_eq!(payloads(&server, "t"), [json!("tomorrow"), json!("soon")]);
}

#[test]
fn a_clock_set_back_over_a_restart_holds_up_no_delay() {
    let clock = ShiftedClock::new();
    let mut server = serve(&clock, &[]);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"ack_mode": "individual"}));
    publish(&server, "t", &json!({"payload": "refused"}));
    assert_eq!(socket.message(), 1);
    publish(&server, "t", &json!({"payload": "delayed", "delay_ms": 1500}));
    socket.send_nack("t", "g", 1, &json!({"delay_ms": 1000}));
    socket.expect_nothing();
    // A stop stores the state of the deliveries.
    assert_eq!(server.terminate(), Some(0));
    clock.shift(-3 * HOUR_MS);
    server.restart();
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"ack_mode": "individual"}));
    let mut came: Vec<Value> =
        (0..2).map(|_| socket.expect("MESSAGE")["envelope"]["payload"].clone()).collect();
    came.sort_by_key(Value::to_string);
    assert_eq!(came, [json!("delayed"), json!("refused")]);
}

/// A machine boots with a clock three hours behind, the clock is corrected, and the server ends before it believes the
/// correction.
#[test]
fn an_hour_stays_an_hour_when_the_clock_is_corrected_before_a_restart() {
    let clock = ShiftedClock::new();
    clock.shift(-3 * HOUR_MS);
    let mut server = serve(&clock, &[]);
    publish(&server, "t", &json!({"payload": "an hour", "delay_ms": HOUR_MS}));
    let mut os = Socket::open(&format!("{}os", server.ws_url()));
    let mut set = |delay_ms: i64, payload: &str| {
        let publish =
            json!({"kind": "command", "type": "Bus.Publish", "data": {"topic": "t", "payload": payload}});
        os.send(&json!({
            "kind": "command", "type": "Timer.Set", "data": {"delayMs": delay_ms, "message": publish},
            "metadata": {"id": payload, "timestamp": 1},
        }));
        assert_eq!(os.next()["kind"], "reply");
    };
    set(HOUR_MS, "a timer of an hour");
    set(300, "a timer of 300 ms");
    step(&server, &clock, 0);
    server.kill_and_restart();
    publish(&server, "t", &json!({"payload": "100 ms", "delay_ms": 100}));
    eventually("short ones come", || payloads(&server, "t").len() >= 2);
    let mut came = payloads(&server, "t");
    came.sort_by_key(Value::to_string);
    assert_eq!(came, [json!("100 ms"), json!("a timer of 300 ms")]);
}

#[test]
fn steps_are_told_and_small_corrections_are_not() {
    let clock = ShiftedClock::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let mut server = serve(&clock, &["--clock-settle-ms", "300"]);
    server.kill();
    server.restart_logging_to(&log);
    let log = || std::fs::read_to_string(&log).expect("a log");
    clock.shift(50_000);
    publish(&server, "t", &json!({"payload": 1}));
    assert_eq!((steps(&server), log()), (0, String::new()));
    step(&server, &clock, 2 * DAY_MS);
    eventually("the step is told", || log().contains("the wall clock stepped"));
    eventually("it is taken over", || log().contains("its new time is taken over"));
    let ahead = |event: &Value| event["ts"].as_u64().unwrap();
    publish(&server, "t", &json!({"payload": 2}));
    let events = events(&server, "t");
    assert!(ahead(&events[1]) - ahead(&events[0]) > DAY_MS as u64, "{events:?}");
    assert_eq!(steps(&server), 1);
}

#[test]
fn no_token_expires_by_a_clock_that_is_wrong_for_a_moment() {
    let clock = ShiftedClock::new();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let config = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "[[auth.tokens]]\ntoken = \"brief-secret\"\nagent = \"brief\"\nscopes = [\"*\"]\nexpires = {}\n",
        now_ms + u128::from(DAY_MS.unsigned_abs())
    );
    std::fs::write(config.path(), text).expect("a file");
    let env = clock.env();
    let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_path())).collect();
    let path = config.path().to_str().expect("a plain path");
    let server = Server::with_log_and_env(&["--config", path], &env);
    let url = format!("{}os", server.ws_url());
    let (mut bus, mut os) =
        (Socket::open_as(&server.ws_url(), "brief-secret"), Socket::open_as(&url, "brief-secret"));
    let (bus, os) = (bus.as_mut().expect("a token"), os.as_mut().expect("a token"));
    bus.publish("t", &json!(1));
    let send = json!({"kind": "command", "type": "Bus.Publish", "data": {"topic": "t", "payload": "timer"}});
    let set = json!({
        "kind": "command", "type": "Timer.Set", "data": {"delayMs": 1000, "message": send},
        "metadata": {"id": "1", "timestamp": 1},
    });
    os.send(&set);
    assert_eq!(os.next()["kind"], "reply");
    clock.shift(2 * DAY_MS);
    eventually("the step is noticed", || server.log().contains("the wall clock stepped"));
    bus.publish("t", &json!(2));
    assert!(Socket::open_as(&server.ws_url(), "brief-secret").is_ok(), "others may come in");
    eventually("the timer is sent", || {
        let (status, page) = server.request_as("brief-secret", "GET", "/topics/t/events", &json!(null));
        assert_eq!(status, 200, "{page}");
        page.to_string().contains("\"timer\"")
    });
    bus.publish("t", &json!(3));
}
