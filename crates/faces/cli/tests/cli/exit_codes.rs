//! Exit codes: 0 done, 1 failed, 2 wrong usage, 3 unreachable, 130 interrupted.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::run::{command, finish, run, run_in, run_with_stdin};
use crate::server::Server;

/// A URL that nothing listens on (port 1).
const NOWHERE: &str = "ws://127.0.0.1:1/";

#[test]
fn wrong_usage_is_two() {
    run(&[]).refused(2, &["Usage"]);
    run(&["serv"]).refused(2, &["serv"]);
    run(&["pub"]).refused(2, &["TOPIC"]);
    run(&["pub", "t", "{"]).refused(2, &["payload", "not valid JSON"]);
    run(&["pub", "t", "hello"]).refused(2, &["a string needs its quotes"]);
    run(&["pub", "a..b", "1"]).refused(2, &["empty dot segment"]);
    run(&["pub", "t", "1", "--header", "x"]).refused(2, &["--header", "\"x\"", "NAME=VALUE"]);
    run(&["pub", "t", "1", "--count", "0"]).refused(2, &["--count"]);
    run(&["pub", "t", "1", "--delay-ms", "-5"]).refused(2, &["invalid value '-5' for '--delay-ms"]);
    run(&["pub", "t", "-", "--count", "2"]).refused(2, &["--count"]);
    run(&["pub", "t", "1", "--url", "nonsense"]).refused(2, &["url", "nonsense", "HOST:PORT"]);
    run(&["sub", "t"]).refused(2, &["--group"]);
    run(&["sub", "t", "--group", "a b"]).refused(2, &["group contains ' '"]);
    run(&["sub", "t", "--group", "g", "--from", "first"]).refused(2, &["--from", "first", "earliest"]);
    run(&["sub", "t", "--group", "g", "--ack-mode", "all"]).refused(2, &["--ack-mode", "cumulative"]);
    run(&["topics", "create", "a/b"]).refused(2, &["topic contains '/'"]);
    run(&["topics", "create", "a", "--partitions", "2000"]).refused(2, &["2000"]);
    run(&["completions", "tcsh"]).refused(2, &["tcsh"]);
    let nobody =
        ["serve", "--require-auth", "--listen", "127.0.0.1:0", "--store", "memory:", "--socket", "none"];
    run(&nobody).refused(2, &["require-auth", "nobody could enter", "[[auth.tokens]]", "scopes = [\"os\"]"]);
}

#[test]
fn a_server_that_is_not_there_is_three() {
    run(&["pub", "t", "1", "--url", NOWHERE]).refused(3, &["cannot reach", NOWHERE]);
    run(&["sub", "t", "--group", "g", "--url", NOWHERE]).refused(3, &["cannot reach"]);
    run(&["topics", "list", "--url", NOWHERE]).refused(3, &["cannot reach"]);
}

#[test]
fn a_server_that_goes_away_is_three() {
    let mut server = Server::start();
    let mut child = command(&["sub", "t", "--group", "g", "--from", "earliest", "--url", &server.ws_url()])
        .args(["--reconnect-ms", "0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    run(&["pub", "t", "1", "--url", &server.ws_url()]).ok();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    server.kill();
    assert_eq!(finish(child.wait_with_output().unwrap()).code, Some(3));
}

#[test]
fn a_refusal_is_one() {
    let server = Server::start();
    let url = server.ws_url();
    run(&["topics", "show", "nope", "--url", &url]).refused(1, &["there is no topic", "bad_topic"]);
    let ran = run_with_stdin(&["pub", "t", "-", "--url", &url], "1\n{\n3\n");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("line 2 of stdin: not valid JSON"), "{}", ran.stderr);
    assert!(ran.stderr.contains("at column 1; 1 event confirmed"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("line 1"), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("published 1 event to t"), "{}", ran.stdout);
}

#[test]
fn serve_refuses_what_it_must_not_do() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |args: &[&str]| run_in(folder.path(), &[], &[&["serve"], args].concat());
    serve(&["--listen", "0.0.0.0:0"]).refused(2, &["0.0.0.0:0", "--insecure"]);
    serve(&["--listen", "[::]:0"]).refused(2, &["--insecure"]);
    serve(&["--store", "memory:", "--durability", "fsync", "--listen", "127.0.0.1:0"])
        .refused(2, &["durability", "fsync", "memory"]);
    let server = Server::start();
    let taken = server.http_url().replace("http://", "");
    serve(&["--listen", &taken]).refused(1, &["cannot listen", &taken]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no store is left behind");
}

#[test]
fn serve_says_one_line_when_it_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let mut child =
        command(&["serve", "--insecure", "--listen", "0.0.0.0:0", "--store", "memory:", "--socket", "none"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let port = ready["http"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    assert_eq!(
        line,
        format!(
            "{{\"ready\":true,\"http\":\"http://0.0.0.0:{port}\",\"ws\":\"ws://0.0.0.0:{port}/\",\"socket\":null,\"store\":\"memory:\"}}\n"
        )
    );
    assert!(Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap().success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
