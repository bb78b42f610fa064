//! A disk that refuses a write for another reason than being full: the server reports the failure.

use serde_json::json;

use crate::server::Server;

#[test]
fn a_failed_write_is_told_to_publishers_and_ends_the_server_and_loses_nothing_confirmed() {
    // Room for about 8 MiB per file, in blocks of 512 bytes or 1 KiB as the shell counts them: EFBIG, not ENOSPC.
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
    assert_eq!(server.wait(), Some(1));
    // With room again, everything that was confirmed is there.
    server.restart();
    let next = server.get("/topics/t/offsets").1["partitions"][0]["next"].as_u64().expect("a number");
    assert!(next > confirmed, "confirmed {confirmed}, next is {next}");
    let (_, page) = server.get(&format!("/topics/t/events?from={confirmed}&limit=1"));
    assert_eq!(page["events"][0]["offset"], confirmed);
    assert_eq!(server.socket().publish("t", &json!(1)), next);
}
