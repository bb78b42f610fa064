//! The echo server in C, with real sockets.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;

use crate::run::run;
use crate::stage::{Running, compiled, connect};

const NET: [&str; 2] = ["--net", "loopback"];

#[test]
fn several_clients_are_served_at_once() {
    let (guest, address) = Running::listening("echo", &NET);
    let mut clients: Vec<_> = (0..20).map(|_| connect(&address)).collect();
    for round in 0..10 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(format!("client {number:02} round {round}").as_bytes()).unwrap();
        }
        for (number, client) in clients.iter_mut().enumerate().rev() {
            let mut bytes = [0; 17];
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, format!("client {number:02} round {round}").as_bytes());
        }
    }
    assert_eq!(guest.interrupt("TERM").code, Some(130));
}

#[test]
fn a_client_that_has_said_everything_still_gets_everything() {
    let (_guest, address) = Running::listening("echo", &NET);
    let mut client = connect(&address);
    client.write_all(b"the last words").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut echoed = String::new();
    client.read_to_string(&mut echoed).unwrap();
    assert_eq!(echoed, "the last words");
}

#[test]
fn a_client_that_does_not_read_delays_nobody() {
    let (_guest, address) = Running::listening("echo", &NET);
    let mut slow = connect(&address);
    let sent: Vec<u8> = (0..8 << 20).map(|at: u32| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let mut writer = slow.try_clone().unwrap();
    let bytes = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    for _ in 0..50 {
        let mut quick = connect(&address);
        quick.write_all(b"quick").unwrap();
        let mut bytes = [0; 5];
        quick.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"quick");
    }
    let mut echoed = Vec::new();
    slow.read_to_end(&mut echoed).unwrap();
    writing.join().unwrap();
    assert!(echoed == sent, "{} of {} bytes", echoed.len(), sent.len());
}

#[test]
fn more_clients_than_places_wait_for_one() {
    let (_guest, address) = Running::listening("echo", &NET);
    let mut clients: Vec<_> = (0..70).map(|_| connect(&address)).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"x").unwrap());
    // The first 64 clients have a place; each one that leaves makes room for the next.
    for client in &mut clients {
        let mut byte = [0; 1];
        client.read_exact(&mut byte).unwrap();
        client.shutdown(Shutdown::Both).unwrap();
    }
}

#[test]
fn a_client_that_vanishes_is_forgotten() {
    let (_guest, address) = Running::listening("echo", &NET);
    for _ in 0..200 {
        let mut client = connect(&address);
        client.write_all(&[7; 5000]).unwrap();
        // Closing with unread bytes makes the system send a reset.
        drop(client);
    }
    let mut client = connect(&address);
    client.write_all(b"still there").unwrap();
    let mut bytes = [0; 11];
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"still there");
}

#[test]
fn its_timers_tick_and_report() {
    let (mut guest, address) = Running::listening("echo", &NET);
    let mut client = connect(&address);
    client.write_all(b"12345").unwrap();
    let report = guest.line_with(" 5 bytes echoed");
    assert!(report.starts_with("now: 1 clients, 1 accepted, "), "{report}");
    assert_ne!(ticks(&report), 0);
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 5);
    // When the guest ends, all its sockets are closed.
    assert_eq!(guest.interrupt("TERM").code, Some(130));
    assert!(matches!(client.read(&mut [0; 8]), Ok(0) | Err(_)));
}

#[test]
fn its_last_timer_ends_it() {
    let (mut guest, _) = Running::listening("echo", &["--net", "loopback", "--", "0", "100"]);
    let report = guest.line();
    assert!(report.starts_with("end: 0 clients, 0 accepted, 0 bytes echoed, "), "{report}");
    // The timer fires every 10 ms, and never more often: missed ticks count as one.
    assert!((1..=10).contains(&ticks(&report)), "{report}");
    let ended = guest.end();
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
}

fn ticks(report: &str) -> u32 {
    let last = report.trim_end().rsplit(", ").next().unwrap();
    last.strip_suffix(" ticks").unwrap().parse().unwrap()
}

#[test]
fn without_a_grant_it_cannot_listen() {
    let ran = run(&["guest", &compiled("echo")]);
    ran.refused(1, &["echo: listening failed with -4", "the guest trapped"]);
    let ran = run(&["guest", &compiled("echo"), "--net", "example.org:80"]);
    ran.refused(1, &["echo: listening failed with -4"]);
}
