//! Malicious and faulty clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use serde_json::json;

use crate::client::{Client, fault, message, metric, nothing_is_left, path, ping, serve};
use crate::server::eventually;

#[test]
fn one_id_on_two_connections_is_409_for_the_second_and_both_hear_their_own() {
    let server = serve(&[]);
    // These requests wait for the disk: sooner or later one connection's request still waits when another's comes.
    let mut clients: Vec<Client> = (0..8).map(|_| Client::of(&server)).collect();
    let mut refused = 0;
    for round in 0..50 {
        for (n, client) in clients.iter_mut().enumerate() {
            let data = format!(r#"{{"key":"/{n}","value":{round}}}"#);
            client.write(message("command", "Memory.Set", &data, "same") + "\n");
        }
        for client in &mut clients {
            let answer = client.next();
            assert_eq!(answer["metadata"]["causation"], "same");
            if answer["kind"] == "error" {
                assert_eq!(fault(&answer), (409, "Duplicate request id: same".to_owned()));
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "none ever met");
    drop(clients);
    nothing_is_left(&server);
}

#[test]
fn a_forged_reply_answers_nobody() {
    let server = serve(&[]);
    let (mut victim, mut forger) = (Client::of(&server), Client::of(&server));
    for n in 0..50 {
        let forged = format!(
            "{{\"kind\":\"reply\",\"type\":\"Memory.Set\",\"data\":\"forged\",\
             \"metadata\":{{\"id\":\"f{n}\",\"timestamp\":1,\"causation\":\"v{n}\"}}}}\n"
        );
        let set = message("command", "Memory.Set", r#"{"key":"/v","value":1}"#, &format!("v{n}"));
        forger.write(&forged);
        victim.write(set + "\n");
        forger.write(&forged);
        let answer = victim.next();
        assert_eq!(answer["data"]["success"], true, "{answer}");
    }
    forger.still_works();
    assert!(metric(&server, "os_orphan_outcomes_total") > 99.5);
}

#[test]
fn a_client_that_never_reads_is_not_read_from_and_then_dropped() {
    let server = serve(&["--os-slow-reader-ms", "200"]);
    let mut deaf = UnixStream::connect(path(&server)).expect("the socket accepts");
    // Each request has its own id: a repeated id gets only a short 409, and the test needs long answers.
    let data = format!("\"{}\"", "x".repeat(10_000));
    let mut lines = (0..).map(|n| ping(&format!("deaf-{n}"), &data) + "\n");
    // Write until the server closes the connection: it reads only as much as it can answer.
    let mut written = 0usize;
    while let Some(line) = lines.next()
        && deaf.write_all(line.as_bytes()).is_ok()
    {
        written += line.len();
        assert!(written < 64 << 20, "the server takes everything and holds it");
    }
    eventually("it is counted", || metric(&server, "os_connections_dropped_slow_total") > 0.5);
    let mut other = Client::of(&server);
    other.still_works();
    drop((deaf, other));
    nothing_is_left(&server);
}

#[test]
fn a_thousand_that_connect_and_vanish_leave_nothing() {
    let server = serve(&[]);
    thread::scope(|scope| {
        for thread in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for n in 0..250 {
                    let mut stream = UnixStream::connect(path(server)).expect("the socket accepts");
                    let whole = ping(&format!("{thread}-{n}"), "1") + "\n";
                    let set = message(
                        "command",
                        "Memory.Set",
                        r#"{"key":"/v","value":1}"#,
                        &format!("s{thread}-{n}"),
                    );
                    // The client may be gone before the server has read anything.
                    match n % 4 {
                        0 => {}
                        1 => stream.write_all(whole.as_bytes()).expect("a write"),
                        2 => stream.write_all(&whole.as_bytes()[..whole.len() / 2]).expect("a write"),
                        _ => stream.write_all(format!("{set}\n{whole}").as_bytes()).expect("a write"),
                    }
                }
            });
        }
    });
    Client::of(&server).still_works();
    nothing_is_left(&server);
    assert!(metric(&server, "os_connections_total") > 999.5);
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = serve(&["--os-connections-max", "2"]);
    let (mut first, mut second) = (Client::of(&server), Client::of(&server));
    first.still_works();
    second.still_works();
    let mut third = Client::of(&server);
    let (code, said) = fault(&third.next());
    assert_eq!((code, said.as_str()), (503, "Too many connections: at most 2 may be open"));
    third.ends();
    drop(first);
    eventually("there is room again", || {
        let mut next = Client::of(&server);
        next.try_write((ping("n", "1") + "\n").as_bytes()) && next.next()["kind"] == "reply"
    });
}

#[test]
fn whoever_sends_more_than_may_wait_is_read_from_later_and_loses_nothing() {
    let server = serve(&["--os-connection-messages-max", "4", "--os-unsent-bytes-max", "1000"]);
    let mut client = Client::of(&server);
    let mut stream = UnixStream::connect(path(&server)).expect("the socket accepts");
    let writer = stream.try_clone().expect("a descriptor");
    let sending = thread::spawn(move || {
        let mut writer = writer;
        for n in 0..20_000 {
            writer
                .write_all(
                    (ping(&n.to_string(), "\"some words to fill the buffers with\"") + "\n").as_bytes(),
                )
                .expect("a write");
        }
        writer.shutdown(std::net::Shutdown::Write).expect("an open socket");
    });
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("lines");
    sending.join().expect("all is sent");
    let causes = text.lines().map(|line| {
        let answer: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(answer["kind"], "reply", "{answer}");
        answer["metadata"]["causation"].as_str().expect("an id").parse::<u32>().expect("a number")
    });
    assert!(causes.eq(0..20_000), "each once, in order");
    client.still_works();
}

#[test]
fn random_bytes_break_nothing() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::new();
    for _ in 0..200_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.push((state >> 32) as u8);
    }
    bytes.push(b'\n');
    let expected =
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace)).count();
    client.write(&bytes);
    for _ in 0..expected {
        let (code, _) = fault(&client.next());
        assert!([400, 422].contains(&code), "{code}");
    }
    assert_eq!(client.reply("query", "Syscall.Ping", &json!({"payload": 1})), json!({"payload": 1}));
}
