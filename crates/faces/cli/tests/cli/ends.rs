//! Commands that end before they are done: signals, closed pipes, a server that hangs or is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Ran, command, finish, run};
use crate::server::{Server, eventually};

/// Starts a command with pipes for stdin, stdout and stderr.
fn start(args: &[&str]) -> Child {
    command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").arg(name).arg(pid.to_string()).status().unwrap().success());
}

fn wait(child: Child) -> Ran {
    finish(child.wait_with_output().unwrap())
}

fn next_offset(server: &Server) -> u64 {
    server.get("/topics/t/offsets").1["partitions"][0]["next"].as_u64().unwrap_or(0)
}

/// Waits for this many lines of a `pub --json`, which prints one line for each confirmed event.
fn until_confirmed(child: &mut Child, events: usize) {
    let mut stdout = BufReader::new(child.stdout.as_mut().unwrap());
    for _ in 0..events {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "it has ended");
    }
}

#[test]
fn an_interrupted_sub_is_130() {
    let server = Server::start();
    let url = server.ws_url();
    run(&["pub", "t", "1", "--url", &url]).ok();
    for name in ["-INT", "-TERM"] {
        let mut child = start(&["sub", "t", "--group", &name[1..], "--from", "earliest", "--url", &url]);
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "1\n");
        signal(name, child.id());
        assert_eq!(wait(child).code, Some(130), "{name}");
    }
}

#[test]
fn an_interrupted_pub_says_how_far_it_came() {
    let server = Server::start();
    for name in ["-INT", "-TERM"] {
        let mut child = start(&["pub", "t", "-", "--json", "--rate", "1000", "--url", &server.ws_url()]);
        child.stdin.as_mut().unwrap().write_all(b"1\n2\n").unwrap();
        until_confirmed(&mut child, 2);
        signal(name, child.id());
        let stdin = child.stdin.take();
        let ran = wait(child);
        drop(stdin);
        assert_eq!(ran.code, Some(130));
        assert!(
            ran.stderr.contains("interrupted: 2 events confirmed, what follows line 2"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure_of_sub() {
    let server = Server::start();
    let url = server.ws_url();
    run(&["pub", "t", "1", "--count", "50", "--url", &url]).ok();
    let mut child = start(&["sub", "t", "--group", "g", "--from", "earliest", "--url", &url]);
    let mut first = [0; 2];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    // The next event it prints finds the pipe closed; which event that is depends on its pace.
    let status = loop {
        run(&["pub", "t", "1", "--url", &url]).ok();
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_closed_pipe_does_not_end_a_pub_in_silence() {
    let server = Server::start();
    let mut child = start(&["pub", "t", "1", "--count", "5000", "--json", "--url", &server.ws_url()]);
    drop(child.stdout.take());
    let ran = wait(child);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let said = ran.stderr.split("stdout is closed: ").nth(1).expect(&ran.stderr);
    let confirmed: u64 = said.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(confirmed + 1, next_offset(&server), "{said}");
    assert!(said.contains(" of 5000 events confirmed, ") && said.contains(" not published"), "{said}");
    // A `pub` whose events are all published has succeeded.
    let mut child = start(&["pub", "t", "1", "--url", &server.ws_url()]);
    drop(child.stdout.take());
    assert_eq!(wait(child).code, Some(0));
}

#[test]
fn a_closed_stderr_does_not_end_a_pub() {
    let server = Server::start();
    let mut child = start(&["pub", "t", "1", "--count", "6", "--rate", "1", "--url", &server.ws_url()]);
    drop(child.stderr.take());
    assert_eq!(wait(child).code, Some(0));
    assert_eq!(next_offset(&server), 7);
}

#[test]
fn a_server_that_goes_away_is_three_and_the_rest_is_counted() {
    let mut server = Server::start();
    let url = server.ws_url();
    let mut child =
        start(&["pub", "t", "-", "--json", "--rate", "1000", "--reconnect-ms", "300", "--url", &url]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"1\n2\n").unwrap();
    until_confirmed(&mut child, 2);
    server.kill();
    // The command may have ended before it has read this.
    stdin.write_all(b"3\n4\n").ok();
    let ran = wait(child);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for part in [
        "connection lost",
        "gave up after trying to reconnect for",
        "2 events confirmed, 1 sent and perhaps stored",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}

#[test]
fn a_server_that_hangs_is_three() {
    let server = Server::start();
    signal("-STOP", server.pid());
    let start = Instant::now();
    let ran = run(&["pub", "t", "1", "--url", &server.ws_url()]);
    signal("-CONT", server.pid());
    ran.refused(3, &["cannot reach", "no answer within 10 s"]);
    assert!(start.elapsed() < Duration::from_secs(30));
}

/// Printing waits for the reader of stdout; a signal still ends the command.
#[test]
fn a_signal_ends_a_sub_whose_output_nobody_reads() {
    let server = Server::start();
    let url = server.ws_url();
    // More than any pipe holds.
    let large = format!("\"{}\"\n", "x".repeat(900_000));
    let ran = crate::run::run_with_stdin(&["pub", "t", "-", "--url", &url], &large);
    ran.ok();
    for name in ["-INT", "-TERM"] {
        let mut child = start(&["sub", "t", "--group", &name[1..], "--from", "earliest", "--url", &url]);
        let mut stdout = child.stdout.take().unwrap();
        let mut first = [0];
        stdout.read_exact(&mut first).unwrap();
        signal(name, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}");
        drop(stdout);
    }
    // An event that was never read from stdout is not acknowledged: it is delivered again.
    let again = run(&["sub", "t", "--group", "INT", "--count", "1", "--url", &url]).ok();
    assert_eq!(again, large);
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_a_pub_whose_output_nobody_reads() {
    let server = Server::start();
    for name in ["-INT", "-TERM"] {
        let mut child = start(&["pub", "t", "1", "--count", "100000", "--json", "--url", &server.ws_url()]);
        eventually("it waits for its reader", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
            tasks.filter_map(Result::ok).any(|task| {
                std::fs::read_to_string(task.path().join("wchan")).is_ok_and(|at| at.contains("pipe_write"))
            })
        });
        signal(name, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}");
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("interrupted: ") && said.contains(" of 100000 events confirmed"), "{said}");
    }
}
