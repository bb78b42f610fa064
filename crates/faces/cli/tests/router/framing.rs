//! Lines: how the input is split, how long a line may be, and the errors for bad ones.

use serde_json::{Value, json};

use crate::client::{Client, fault, ping, serve};

const LINE_MAX: usize = 16_384;

/// Returns a ping of exactly so many bytes.
fn ping_of(bytes: usize) -> String {
    let empty = ping("x", "\"\"").len();
    ping("x", &format!("\"{}\"", "a".repeat(bytes - empty)))
}

#[test]
fn a_message_may_be_split_at_every_byte() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let line = ping("split", "\"\u{fc}\"") + "\r\n";
    for at in 1..line.len() {
        let (head, tail) = line.as_bytes().split_at(at);
        client.write(head);
        // Another connection's answer in between makes the two halves two reads.
        Client::of(&server).still_works();
        client.write(tail);
        assert_eq!(client.next()["metadata"]["causation"], "split", "split at {at}");
    }
}

#[test]
fn many_messages_may_come_in_one_write_and_blank_lines_are_nothing() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let lines: String = (0..50).map(|n| format!("{}\r\n\n   \n", ping(&n.to_string(), "1"))).collect();
    client.write(lines);
    for n in 0..50 {
        assert_eq!(client.next()["metadata"]["causation"], n.to_string());
    }
    client.still_works();
}

#[test]
fn sixteen_kibibytes_pass_and_one_byte_more_is_413() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    for end in ["\n", "\r\n"] {
        client.write(ping_of(LINE_MAX) + end);
        // The reply is longer than the request by its ids, so it does not fit a line in either case.
        let answer = client.next();
        assert_eq!(fault(&answer).0, 413);
        assert_eq!(answer["metadata"]["causation"], "x", "the request was understood");
        client.write(ping_of(LINE_MAX + 1) + end);
        let answer = client.next();
        assert_eq!(fault(&answer), (413, "Message exceeds maximum line length of 16KB".to_owned()));
        assert_eq!(answer["type"], "Validation.Failed");
        assert_eq!(answer["metadata"].get("causation"), None);
        client.still_works();
    }
    let set = crate::client::message("command", "Memory.Set", r#"{"key":"/a","value":1}"#, "fits");
    let padded = set
        .replace("\"value\":1", &format!("\"value\":1,\"pad\":\"{}\"", "a".repeat(LINE_MAX - set.len() - 9)));
    assert_eq!(padded.len(), LINE_MAX);
    client.write(padded + "\n");
    assert_eq!(client.next()["kind"], "reply", "a line of exactly the bound is carried out");
}

#[test]
fn an_answer_that_is_too_long_is_413_and_a_fault_of_its_author() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    client.write(ping_of(LINE_MAX - 10) + "\n");
    let answer = client.next();
    assert_eq!(fault(&answer), (413, "Message exceeds maximum line length of 16KB".to_owned()));
    assert_eq!((&answer["type"], &answer["metadata"]["causation"]), (&json!("Syscall.Ping"), &json!("x")));
    assert!(crate::client::metric(&server, "os_actor_faults_total") > 0.5);
    client.still_works();
}

#[test]
fn the_bound_of_a_line_can_be_moved() {
    let server = serve(&["--os-line-bytes-max", "100000"]);
    let mut client = Client::of(&server);
    client.write(ping_of(50_000) + "\n");
    assert_eq!(client.next()["kind"], "reply");
    client.write(ping_of(100_001) + "\n");
    assert_eq!(
        fault(&client.next()),
        (413, "Message exceeds maximum line length of 100000 bytes".to_owned())
    );
}

#[test]
fn ten_megabytes_without_a_newline_are_one_error() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..10 {
        client.write(&piece);
    }
    client.write("\n");
    assert_eq!(fault(&client.next()).0, 413);
    client.still_works();
}

#[test]
fn what_is_no_json_is_400_and_what_is_no_message_422() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(4000), "]".repeat(4000));
    let deep_data = ping("deep", &format!("{}{}", "[".repeat(4000), "]".repeat(4000)));
    let cases: Vec<(Vec<u8>, u64, &str)> = vec![
        (b"nonsense".to_vec(), 400, "Invalid JSON: "),
        (b"{\"kind\":".to_vec(), 400, "Invalid JSON: "),
        (b"\xef\xbb\xbf{}".to_vec(), 400, "Invalid JSON: "),
        (b"{\"kind\":\"\xff\"}".to_vec(), 400, "Invalid JSON: "),
        (b"\0\0\0".to_vec(), 400, "Invalid JSON: "),
        (deep.into_bytes(), 400, "Invalid JSON: "),
        (deep_data.into_bytes(), 400, "Invalid JSON: "),
        (b"null".to_vec(), 422, "Schema validation failed: "),
        (b"[]".to_vec(), 422, "Schema validation failed: "),
        (b"5".to_vec(), 422, "Schema validation failed: "),
        (b"{}".to_vec(), 422, "Schema validation failed: "),
    ];
    for (line, code, begins) in cases {
        client.write(&line);
        client.write("\n");
        let answer = client.next();
        let (found, message) = fault(&answer);
        assert_eq!(found, code, "{answer}");
        assert!(message.starts_with(begins), "{message}");
        client.still_works();
    }
}

#[test]
fn each_missing_or_wrong_member_is_named() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let good =
        json!({"kind": "query", "type": "Syscall.Ping", "data": {}, "metadata": {"id": "i", "timestamp": 1}});
    let wrong: Vec<(&str, Option<Value>)> = vec![
        ("kind", None),
        ("kind", Some(json!("ask"))),
        ("kind", Some(json!(5))),
        ("type", None),
        ("type", Some(json!("Echo"))),
        ("type", Some(json!("Syscall.Ping.Now"))),
        ("type", Some(json!("toString"))),
        ("data", None),
        ("metadata", None),
        ("metadata", Some(json!("x"))),
        ("metadata.id", None),
        ("metadata.id", Some(json!(""))),
        ("metadata.id", Some(json!(7))),
        ("metadata.id", Some(json!("x".repeat(257)))),
        ("metadata.timestamp", None),
        ("metadata.timestamp", Some(json!(-1))),
        ("metadata.timestamp", Some(json!(1.5))),
        ("metadata.timestamp", Some(json!("1"))),
        ("metadata.correlation", Some(json!(""))),
        ("metadata.causation", Some(json!(5))),
    ];
    for (member, value) in wrong {
        let mut message = good.clone();
        let (place, name) = match member.split_once('.') {
            Some((outer, inner)) => (&mut message[outer], inner),
            None => (&mut message, member),
        };
        let object = place.as_object_mut().expect("an object");
        match value {
            Some(value) => drop(object.insert(name.to_owned(), value)),
            None => drop(object.remove(name)),
        }
        client.write(format!("{message}\n"));
        let answer = client.next();
        let (code, said) = fault(&answer);
        assert_eq!(code, 422, "{message}: {answer}");
        assert!(said.starts_with("Schema validation failed: ") && said.contains(member), "{member}: {said}");
        if member == "kind" {
            assert_eq!(
                (&answer["type"], &answer["metadata"]["causation"]),
                (&json!("Syscall.Ping"), &json!("i"))
            );
        }
    }
    client.still_works();
    assert!(crate::client::metric(&server, "os_lines_refused_total") > 19.5);
}

#[test]
fn lenient_metadata_gives_what_is_missing() {
    let server = serve(&["--lenient-metadata"]);
    let mut client = Client::of(&server);
    for metadata in ["", ",\"metadata\":{}", ",\"metadata\":null", ",\"metadata\":{\"timestamp\":3}"] {
        client.write(format!("{{\"kind\":\"query\",\"type\":\"Syscall.Ping\",\"data\":{{}}{metadata}}}\n"));
        let answer = client.next();
        assert_eq!(answer["kind"], "reply", "{metadata}: {answer}");
        assert!(answer["metadata"]["causation"].is_string());
    }
    client.write("{\"kind\":\"query\",\"type\":\"Syscall.Ping\",\"data\":{},\"metadata\":{\"id\":5}}\n");
    assert_eq!(fault(&client.next()).0, 422, "wrong is still wrong");
}

#[test]
fn numbers_and_escapes_come_back_as_they_were() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    for payload in
        ["1e400", "12345678901234567890", "1.0", "-0", "\"\\ud800\"", "[1 ,  2]", "{\"b\":1,\"a\":2,\"b\":3}"]
    {
        client.write(ping("n", payload) + "\n");
        let line = client.line().expect("a line");
        assert!(line.contains(&format!("\"data\":{{\"payload\":{payload}}},")), "{line}");
    }
}

#[test]
fn half_a_close_is_answered_fully_and_a_last_line_needs_no_newline() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    for n in 0..100 {
        client.write(ping(&n.to_string(), "1") + "\n");
    }
    client.write(ping("last", "1"));
    client.stops_writing();
    for n in 0..100 {
        assert_eq!(client.next()["metadata"]["causation"], n.to_string());
    }
    assert_eq!(client.next()["metadata"]["causation"], "last");
    client.ends();
    let mut silent = Client::of(&server);
    silent.stops_writing();
    silent.ends();
    let mut cut = Client::of(&server);
    cut.write("{\"kind\":");
    cut.stops_writing();
    assert_eq!(fault(&cut.next()).0, 400);
    cut.ends();
}
