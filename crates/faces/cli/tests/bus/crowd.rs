//! Connections that send nothing, or only part of a request: they delay no other client, and answers say whether the
//! connection is closed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::json;

use crate::access_tls::{certificates, run};
use crate::server::Server;

pub fn address(server: &Server) -> String {
    let url = server.http_url();
    url.split_once("://").expect("an address").1.to_owned()
}

/// Opens connections that send `text`, which is no whole request, and then wait.
fn silent(server: &Server, count: usize, text: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(address(server)).expect("the server accepts");
        stream.write_all(text.as_bytes()).expect("bytes are taken");
        stream
    };
    (0..count).map(open).collect()
}

/// A connection can get in only by taking the place of another: the time limit is far beyond the duration of a test.
const LONG: [&str; 4] = ["--http-connections-max", "8", "--request-read-ms-max", "3600000"];

#[test]
fn connections_without_a_request_make_room_for_others() {
    let server = Server::with(&LONG);
    for text in ["", "GET /healthz HTTP/1.1\r\nHost: x"] {
        let crowd = silent(&server, 20, text);
        assert_eq!(server.get("/healthz").0, 200);
        let mut socket = server.socket();
        socket.publish("t", &json!(1));
        drop(crowd);
    }
    // A single request, which anybody may send, does not reserve a place for ever.
    let ask = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", address(&server));
    let crowd = silent(&server, 20, &ask);
    assert_eq!(server.get("/healthz").0, 200);
    drop(crowd);
}

#[test]
fn the_one_that_has_waited_longest_goes_and_others_keep_their_time() {
    // Without patience, connections that have just been opened are closed too.
    let server = Server::with(&[&LONG[..], &["--crowd-patience-ms", "0"]].concat());
    let mut crowd = silent(&server, 8, "GET /healthz HTTP/1.1\r\n");
    assert_eq!(server.get("/healthz").0, 200);
    let mut first = crowd.remove(0);
    let mut rest = Vec::new();
    // The connection is closed: an end or a reset, depending on what was still unread.
    assert!(matches!(first.read_to_end(&mut rest), Ok(0) | Err(_)), "{rest:?}");
    let mut last = crowd.pop().expect("one");
    let more = format!("Host: {}\r\nConnection: close\r\n\r\n", address(&server));
    last.write_all(more.as_bytes()).expect("bytes are taken");
    let mut answer = String::new();
    last.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn handshakes_that_never_end_make_room_too() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let flags = [&LONG[..], &["--tls-cert", &cert, "--tls-key", &key]].concat();
    let server = Server::with(&flags);
    let _crowd = silent(&server, 20, "");
    let ran = run(folder.path(), &["pub", "t", "1", "--url", &server.ws_url(), "--tls-ca", "ca.pem"]);
    assert!(ran.status.success(), "{ran:?}");
}

/// Returns the head of one answer; the body is read and dropped.
fn head(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).expect("an answer") > 0, "it ended after {head:?}");
    }
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    head
}

#[test]
fn an_answer_to_an_unread_body_says_whether_the_connection_goes_on() {
    let server = Server::with(&["--connection-rate", "1", "--connection-burst", "1"]);
    let address = address(&server);
    let post = format!("POST /topics/t/events HTTP/1.1\r\nHost: {address}\r\nContent-Length: 13\r\n\r\n");
    let open = || {
        let mut stream = BufReader::new(TcpStream::connect(&address).expect("the server accepts"));
        stream.get_ref().set_nodelay(true).expect("an option");
        // This request uses up the connection's rate.
        stream.get_mut().write_all(format!("{post}{{\"payload\":1}}").as_bytes()).expect("bytes are taken");
        assert!(head(&mut stream).starts_with("http/1.1 200 "));
        stream.get_mut().write_all(post.as_bytes()).expect("bytes are taken");
        stream
    };
    // The body never comes.
    let mut stream = open();
    let answer = head(&mut stream);
    assert!(answer.starts_with("http/1.1 429 ") && answer.contains("connection: close"), "{answer}");
    assert_eq!(stream.read(&mut [0]).expect("an end"), 0);
    // The body comes in a separate packet. Only on a stalled machine can it come too late.
    let goes_on = (0..20).any(|_| {
        let mut stream = open();
        stream.get_mut().write_all(b"{\"payload\":1}").expect("bytes are taken");
        let answer = head(&mut stream);
        assert!(answer.starts_with("http/1.1 429 "), "{answer}");
        if answer.contains("connection: close") {
            return false;
        }
        let probe = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.get_mut().write_all(probe.as_bytes()).expect("the connection goes on");
        head(&mut stream).starts_with("http/1.1 200 ")
    });
    assert!(goes_on);
}
