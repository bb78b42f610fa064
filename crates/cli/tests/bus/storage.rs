//! A disk that fails: nothing pretends.

use serde_json::json;

use crate::server::Server;

#[test]
fn a_full_disk_is_told_to_publishers_and_readiness_and_loses_nothing_confirmed() {
    // Room for about 8 MiB per file, in blocks of 512 bytes or 1 KiB as the shell counts them.
    let mut server = Server::with_file_blocks(8 << 10);
    let mut socket = server.socket();
    let payload = json!("x".repeat(64 << 10));
    let mut confirmed = 0;
    let refused = loop {
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": payload}));
        let answer = socket.next();
        match answer["type"].as_str() {
            Some("PUBLISHED") => confirmed = answer["offset"].as_u64().expect("an offset"),
            _ => break answer,
        }
    };
    assert_eq!((&refused["type"], &refused["code"]), (&json!("ERROR"), &json!("storage_failed")));
    assert!(confirmed > 0);
    // It stays refused, readiness is red, the process lives, and what is there can be read.
    socket.send(&json!({"type": "PUBLISH", "topic": "u", "payload": 1}));
    socket.refused("storage_failed");
    assert_eq!(server.post("/topics/t/events", &json!({"payload": 1})).0, 503);
    assert_eq!(server.get("/readyz").0, 503);
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.get("/topics/t/events?limit=1").1["events"][0]["offset"], 1);
    server.kill();
    // With room again, everything that was confirmed is there.
    server.restart();
    let next = server.get("/topics/t/offsets").1["partitions"][0]["next"].as_u64().expect("a number");
    assert!(next > confirmed, "confirmed {confirmed}, next is {next}");
    let (_, page) = server.get(&format!("/topics/t/events?from={confirmed}&limit=1"));
    assert_eq!(page["events"][0]["offset"], confirmed);
    assert_eq!(server.socket().publish("t", &json!(1)), next);
}
