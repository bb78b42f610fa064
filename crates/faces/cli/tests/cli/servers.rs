//! `--url` with several servers: those that are away are passed over, and a server that does not lead is left for the
//! one that does.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use serde_json::json;
use tungstenite::Message;
use tungstenite::protocol::CloseFrame;

use crate::run::{run, run_in};
use crate::server::Server;

/// A URL that nothing listens on (port 1).
const NOWHERE: &str = "ws://127.0.0.1:1/";

/// A server that does not lead.
struct Follower(TcpListener);

impl Follower {
    fn start() -> Follower {
        Follower(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn http_url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// Answers one HTTP request for each of these leaders. Returns the requests.
    fn name(&self, leaders: Vec<Option<String>>) -> JoinHandle<Vec<String>> {
        let listener = self.0.try_clone().unwrap();
        std::thread::spawn(move || {
            let answer = |leader: Option<String>| {
                let (mut stream, _) = listener.accept().unwrap();
                let request = read_request(&mut stream);
                let body = json!({
                    "type": "urn:millrace:error:moved", "title": "Another server leads", "status": 503,
                    "detail": "this server does not lead its store", "code": "moved", "leader": leader,
                })
                .to_string();
                let header =
                    leader.map_or(String::new(), |leader| format!("x-millrace-leader: {leader}\r\n"));
                let length = body.len();
                let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n";
                let rest = format!("retry-after: 1\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                stream.write_all(format!("{head}{header}{rest}{body}").as_bytes()).unwrap();
                request
            };
            leaders.into_iter().map(answer).collect()
        })
    }

    /// Returns whether nobody has tried to connect.
    fn is_untouched(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        self.0.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// Returns the head of a request, in lower case, after reading its body.
fn read_request(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "the request breaks off: {head}");
    }
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    head
}

#[test]
fn a_server_that_is_away_is_passed_over() {
    let server = Server::start();
    let urls = format!("{NOWHERE},{}", server.ws_url());
    run(&["pub", "t", "1", "--url", &urls]).ok();
    run(&["topics", "create", "made", "--url", &urls]).ok();
    let env = [("MILLRACE_URL", urls.as_str())];
    let listed = run_in(server.folder(), &env, &["topics", "list"]).ok();
    assert!(listed.contains("made"), "{listed}");
    let args = ["sub", "t", "--group", "g", "--from", "earliest", "--count", "1", "--url", &urls];
    assert_eq!(run(&args).ok(), "1\n");
}

#[test]
fn when_all_are_away_each_is_named() {
    let urls = format!("{NOWHERE},ws://127.0.0.1:2/");
    run(&["pub", "t", "1", "--url", &urls]).refused(3, &["any of 2 servers", NOWHERE, "ws://127.0.0.1:2/"]);
    run(&["topics", "list", "--url", &urls]).refused(3, &["http://127.0.0.1:1", "http://127.0.0.1:2"]);
}

#[test]
fn servers_with_and_without_tls_do_not_mix() {
    let args = ["topics", "list", "--url", "ws://a,wss://b"];
    run(&args).refused(2, &["url", "ws://a,wss://b", "all with TLS or none"]);
}

#[test]
fn requests_over_http_go_to_the_leader_that_is_named() {
    let (server, follower) = (Server::start(), Follower::start());
    let asked = follower.name(vec![Some(server.http_url()); 2]);
    run(&["topics", "create", "made", "--url", &follower.http_url()]).ok();
    run(&["topics", "show", "made", "--url", &follower.http_url()]).ok();
    let asked = asked.join().unwrap();
    assert!(asked[0].starts_with("post /topics") && asked[1].starts_with("get /topics/made"), "{asked:?}");
}

/// The leader is asked for again after a pause, up to `--reconnect-ms`.
#[test]
fn while_no_server_leads_the_command_waits() {
    let (server, follower) = (Server::start(), Follower::start());
    let asked = follower.name(vec![None, Some(server.http_url()), None]);
    run(&["topics", "create", "made", "--url", &follower.http_url()]).ok();
    let args = ["topics", "list", "--url", &follower.http_url(), "--reconnect-ms", "0"];
    run(&args).refused(3, &[&follower.http_url(), "no server does right now"]);
    asked.join().unwrap();
}

#[test]
fn a_token_stays_with_the_servers_of_the_list() {
    let (first, second, other) = (Follower::start(), Follower::start(), Follower::start());
    let asked = first.name(vec![Some(other.http_url())]);
    let asked_too = second.name(vec![Some(first.http_url())]);
    let urls = format!("{},{}", first.http_url(), second.http_url());
    let args = ["topics", "list", "--url", &urls, "--token", "secret", "--reconnect-ms", "0"];
    run(&args).refused(3, &["does not lead its store", "not followed", "token"]);
    for asked in [asked, asked_too] {
        let asked = asked.join().unwrap();
        assert!(asked[0].contains("authorization: bearer secret"), "{asked:?}");
    }
    assert!(other.is_untouched());
    // Unless the user says otherwise.
    let server = Server::start();
    let asked = first.name(vec![Some(server.http_url())]);
    let args =
        ["topics", "list", "--url", &first.http_url(), "--token", "secret", "--follow-leader", "always"];
    run(&args).ok();
    asked.join().unwrap();
}

/// The first server may have carried out the request before it was lost.
#[test]
fn a_change_that_was_sent_is_not_sent_to_another_server() {
    let (first, second) = (Follower::start(), Follower::start());
    let urls = format!("{},{}", first.http_url(), second.http_url());
    let listener = first.0.try_clone().unwrap();
    let lost = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&mut stream);
    });
    run(&["topics", "create", "t", "--url", &urls]).refused(3, &[&first.http_url()]);
    lost.join().unwrap();
    assert!(second.is_untouched());
}

#[test]
fn publishes_go_to_the_leader_that_is_named() {
    let (server, follower) = (Server::start(), Follower::start());
    let (leader, listener) = (server.ws_url(), follower.0.try_clone().unwrap());
    let asked = std::thread::spawn(move || {
        let mut socket = tungstenite::accept(listener.accept().unwrap().0).unwrap();
        let moved = json!({"type": "ERROR", "code": "moved", "message": "elsewhere", "leader": leader});
        socket.send(Message::text(moved.to_string())).unwrap();
        let close = CloseFrame { code: 1012.into(), reason: leader.into() };
        // The client may be gone by now.
        drop(socket.close(Some(close)));
        while socket.read().is_ok() {}
    });
    run(&["pub", "t", "{\"a\":1}", "--url", &follower.http_url()]).ok();
    asked.join().unwrap();
    let args = ["sub", "t", "--group", "g", "--from", "earliest", "--count", "1", "--url", &server.ws_url()];
    assert_eq!(run(&args).ok(), "{\"a\":1}\n");
}
