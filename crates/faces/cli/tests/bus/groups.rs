//! `GET /topics/{topic}/groups` and `DELETE /topics/{topic}/groups/{group}`.

use serde_json::json;

use crate::server::Server;

#[test]
fn groups_are_listed_with_members_filter_and_positions() {
    let server = Server::start();
    let mut socket = server.socket();
    for n in 1..=5 {
        socket.publish("t", &json!(n));
    }
    socket.subscribe("t", "work", &json!({"from": {"kind": "earliest"}, "max_inflight": 2}));
    assert_eq!(socket.message(), 1);
    socket.ack("t", "work", 1);
    let mut other = server.socket();
    other.subscribe("t", "audit", &json!({"filter": {"key": "k"}}));
    drop(other);
    let (status, list) = server.get("/topics/t/groups");
    assert_eq!((status, &list["topic"]), (200, &json!("t")));
    let groups = list["groups"].as_array().expect("a value");
    let names: Vec<_> = groups.iter().map(|group| group["group"].as_str().expect("a value")).collect();
    assert_eq!(names, ["audit", "work"]);
    assert_eq!(groups[0]["filter"], json!({"key": "k"}));
    assert!(groups[0]["created"].as_u64().expect("a value") > 0);
    assert_eq!((&groups[1]["members"], &groups[1]["filter"]), (&json!(1), &json!(null)));
    let mut partitions = groups[1]["partitions"].clone();
    assert!(partitions[0]["updatedTs"].take().as_u64().is_some());
    assert_eq!(
        partitions,
        json!([{"partition": 0, "committed": 1, "updatedTs": null, "lag": 4, "inflight": 2}])
    );
    assert_eq!(server.get("/topics/none/groups").0, 404);
    assert_eq!(server.get("/topics/t/groups?namespace=elsewhere").0, 404);
}

#[test]
fn a_group_is_deleted_for_good_once_it_has_no_members() {
    let mut server = Server::start();
    let mut socket = server.socket();
    for n in 1..=3 {
        socket.publish("t", &json!(n));
    }
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}, "ack_mode": "individual"}));
    for _ in 0..3 {
        socket.message();
    }
    socket.ack("t", "g", 1);
    let delete = |server: &Server, group: &str| {
        server.send_json("DELETE", &format!("/topics/t/groups/{group}"), &json!(null))
    };
    let (status, problem) = delete(&server, "g");
    assert_eq!((status, &problem["code"]), (409, &json!("group_busy")), "{problem}");
    assert_eq!(problem["group"], "g");
    socket.send_nack("t", "g", 2, &json!({"delay_ms": 3_600_000}));
    socket.send(&json!({"type": "UNSUBSCRIBE", "topic": "t", "group": "g"}));
    socket.expect("OK");
    assert_eq!(delete(&server, "g").0, 204);
    assert_eq!(server.get("/topics/t/groups").1["groups"], json!([]));
    let (status, problem) = delete(&server, "g");
    assert_eq!((status, &problem["code"]), (404, &json!("bad_group")));
    assert_eq!(server.send_json("DELETE", "/topics/none/groups/g", &json!(null)).0, 404);

    // A group of the same name is a new group: no position, no count of attempts, no delay, also after a crash.
    server.kill_and_restart();
    assert_eq!(server.get("/topics/t/groups").1["groups"], json!([]));
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    for offset in 1..=3 {
        let frame = socket.next();
        assert_eq!((&frame["offset"], &frame["envelope"]["attempts"]), (&json!(offset), &json!(null)));
    }
}
