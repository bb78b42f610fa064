//! `net/http`: real clients, and a guest that waits in POLL.
#![allow(clippy::unwrap_used)]

mod harness;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use harness::{FOREVER, Guest, READABLE, Reply, WRITABLE, everything_here};
use millrace_reactor::zcl1::{FieldReader, FieldWriter, Frame, Header};
use millrace_zabi::{Grants, NetAllowList, ProcessOptions};

/// A guest that serves HTTP on one port.
struct Server {
    guest: Guest,
    http: i32,
    sys_loop: i32,
    port: u16,
}

/// The fields of an EV_REQUEST.
#[derive(Debug)]
struct Incoming {
    rid: u32,
    listener: u32,
    method: String,
    path: String,
    authority: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    stream: Option<i32>,
}

fn listen_payload(host: &str, port: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    FieldWriter::new(&mut payload).u32(port).u32(0).prefixed(host.as_bytes());
    payload
}

fn head(code: u32, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut fields = FieldWriter::new(&mut payload);
    fields.u32(code).u32(0).u32(headers.len() as u32);
    headers.iter().for_each(|(name, value)| {
        fields.prefixed(name.as_bytes()).prefixed(value.as_bytes());
    });
    payload
}

/// Sends bytes and returns everything that comes back.
fn client(port: u16, request: impl Into<Vec<u8>>) -> JoinHandle<String> {
    let request = request.into();
    thread::spawn(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(&request).unwrap();
        let mut response = Vec::new();
        // The server may close before it has read everything.
        let _ = stream.read_to_end(&mut response);
        String::from_utf8_lossy(&response).into_owned()
    })
}

impl Server {
    fn new() -> Server {
        Server::with(ProcessOptions::new("test", everything_here()))
    }

    fn with(options: ProcessOptions) -> Server {
        let mut guest = Guest::with(options);
        let http = guest.open_ok("net", "http");
        let sys_loop = guest.open_ok("sys", "loop");
        assert!(guest.watch(sys_loop, http, READABLE, 1).is_ok);
        let reply = guest.request(http, 1, &listen_payload("127.0.0.1", 0));
        assert!(reply.is_ok, "{:?}", reply.error());
        assert_eq!((reply.payload.len(), &reply.payload[..4]), (24, &[1, 0, 0, 0][..]));
        assert_eq!(reply.payload[18..], [0xFF, 0xFF, 127, 0, 0, 1]);
        let port = u16::from_le_bytes(reply.payload[4..6].try_into().unwrap());
        Server { guest, http, sys_loop, port }
    }

    fn next(&mut self) -> Incoming {
        let bytes = loop {
            match self.guest.read_max(self.http, 1 << 17) {
                Ok(bytes) => break bytes,
                Err(code) => assert_eq!(code, -6),
            }
            assert_eq!(self.guest.ready(self.sys_loop, FOREVER), [(1, READABLE)]);
        };
        let frame = Frame::decode(&bytes).unwrap();
        assert_eq!((frame.header.op, frame.header.status), (100, 1));
        let mut fields = FieldReader::new(frame.payload);
        let text = |fields: &mut FieldReader<'_>| fields.text().unwrap().to_owned();
        let (listener, flags) = (fields.u32().unwrap(), fields.u32().unwrap());
        assert_eq!(flags, 0);
        let (method, path, scheme) = (text(&mut fields), text(&mut fields), text(&mut fields));
        assert_eq!(scheme, "http");
        let authority = text(&mut fields);
        let address = [fields.u64().unwrap(), fields.u64().unwrap()].map(u64::to_le_bytes).concat();
        assert_eq!(address[10..], [0xFF, 0xFF, 127, 0, 0, 1]);
        assert!(fields.u32().unwrap() > 0, "the port of the client");
        let count = fields.u32().unwrap();
        let headers = (0..count).map(|_| (text(&mut fields), text(&mut fields))).collect();
        let (body, stream) = match fields.u32().unwrap() {
            0 => (None, None),
            1 => (Some(fields.prefixed().unwrap().to_vec()), None),
            2 => (None, Some(fields.u32().unwrap() as i32)),
            kind => panic!("{kind}"),
        };
        fields.finish().unwrap();
        Incoming { rid: frame.header.rid, listener, method, path, authority, headers, body, stream }
    }

    /// Reads a body to its end; returns its length.
    fn read_all(&mut self, stream: i32) -> usize {
        assert!(self.guest.watch(self.sys_loop, stream, READABLE, 9).is_ok);
        let mut length = 0;
        loop {
            match self.guest.read(stream) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => length += bytes.len(),
                Err(code) => {
                    assert_eq!(code, -6);
                    assert_eq!(self.guest.ready(self.sys_loop, FOREVER), [(9, READABLE)]);
                }
            }
        }
        assert!(self.guest.request(self.sys_loop, 2, &9u64.to_le_bytes()).is_ok);
        length
    }

    fn send(&mut self, op: u16, rid: u32, payload: &[u8]) -> Reply {
        let frame = Frame::encode(Header::request(op, rid), payload).unwrap();
        assert_eq!(self.guest.write(self.http, &frame), frame.len() as i32);
        let reply = Reply::of(&self.guest.read(self.http).unwrap());
        assert_eq!((reply.op, reply.rid), (op, rid), "replies overtake events");
        reply
    }

    fn respond(&mut self, rid: u32, code: u32, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut payload = head(code, headers);
        FieldWriter::new(&mut payload).prefixed(body);
        self.send(11, rid, &payload)
    }
}

#[test]
fn a_request_becomes_an_event_and_gets_its_response() {
    let mut server = Server::new();
    let request =
        "POST /path?q=1 HTTP/1.1\r\nHost: example.org\r\nX-Thing: a\r\nContent-Length: 4\r\n\r\nbody";
    let client = client(server.port, request);
    let incoming = server.next();
    assert_eq!((incoming.listener, incoming.method.as_str()), (1, "POST"));
    assert_eq!((incoming.path.as_str(), incoming.authority.as_str()), ("/path?q=1", "example.org"));
    assert!(incoming.headers.contains(&("x-thing".to_owned(), "a".to_owned())));
    assert_eq!(incoming.body.as_deref(), Some(&b"body"[..]));
    assert!(
        server.respond(incoming.rid, 201, &[("X-Answer", "42"), ("Content-Length", "1")], b"hello").is_ok
    );
    let response = client.join().unwrap();
    assert!(response.starts_with("HTTP/1.1 201 Created\r\n"), "{response}");
    assert!(
        response.contains("x-answer: 42\r\n") && response.contains("content-length: 5\r\n"),
        "{response}"
    );
    assert!(response.ends_with("\r\n\r\nhello"), "{response}");
    assert_eq!(server.respond(incoming.rid, 200, &[], b"").error().0, "t_http_noent", "once");
}

#[test]
fn many_requests_are_answered_in_any_order() {
    let mut server = Server::new();
    let clients: Vec<_> =
        (0..20).map(|n| client(server.port, format!("GET /{n} HTTP/1.1\r\nHost: x\r\n\r\n"))).collect();
    let mut waiting: Vec<Incoming> = (0..20).map(|_| server.next()).collect();
    waiting.sort_by(|one, other| other.path.cmp(&one.path));
    for incoming in waiting {
        assert_eq!(incoming.body, None);
        assert!(server.respond(incoming.rid, 200, &[], incoming.path.as_bytes()).is_ok);
    }
    for (n, client) in clients.into_iter().enumerate() {
        let response = client.join().unwrap();
        assert!(response.ends_with(&format!("\r\n\r\n/{n}")), "{response}");
    }
}

#[test]
fn a_body_may_be_a_stream() {
    let mut server = Server::new();
    let client = client(server.port, "GET / HTTP/1.0\r\n\r\n");
    let incoming = server.next();
    let reply = server.send(12, incoming.rid, &head(200, &[("content-type", "text/plain")]));
    let body = i32::from_le_bytes(reply.payload.try_into().unwrap());
    assert_eq!(server.guest.process.zi_handle_hflags(body), 6);
    assert!(server.guest.watch(server.sys_loop, body, WRITABLE, 2).is_ok);
    let mut expected = String::new();
    for n in 0..200u8 {
        let chunk = [b'a' + n % 26; 10_000];
        let mut rest = &chunk[..];
        while !rest.is_empty() {
            match server.guest.write(body, rest) {
                -6 => assert_eq!(server.guest.ready(server.sys_loop, FOREVER), [(2, WRITABLE)]),
                count => rest = &rest[usize::try_from(count).unwrap()..],
            }
        }
        expected.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert_eq!(server.guest.read(body), Err(-7));
    assert_eq!(server.guest.process.zi_end(body), 0);
    let response = client.join().unwrap();
    assert!(response.split_once("\r\n\r\n").unwrap().1 == expected);
}

#[test]
fn a_long_body_of_a_request_is_a_stream() {
    let mut options = ProcessOptions::new("test", everything_here());
    options.limits.http_body_bytes_max = 1000;
    let mut server = Server::with(options);
    let body: String = (0..500_000).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    let announced = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let in_chunks: String =
        body.as_bytes().chunks(700).fold(
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            |all, part| format!("{all}{:x}\r\n{}\r\n", part.len(), std::str::from_utf8(part).unwrap()),
        ) + "0\r\n\r\n";
    for request in [announced, in_chunks] {
        let client = client(server.port, request);
        let incoming = server.next();
        let stream = incoming.stream.unwrap();
        assert_eq!(server.guest.process.zi_handle_hflags(stream), 5);
        assert!(server.guest.watch(server.sys_loop, stream, READABLE, 9).is_ok);
        let mut read = Vec::new();
        loop {
            match server.guest.read_max(stream, 10_000) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => read.extend(bytes),
                Err(code) => {
                    assert_eq!((code, server.guest.ready(server.sys_loop, FOREVER)), (-6, vec![(9, 1)]));
                }
            }
        }
        assert!(read == body.as_bytes(), "{} bytes", read.len());
        assert_eq!(server.guest.write(stream, b"x"), -7);
        assert_eq!(server.guest.process.zi_end(stream), 0);
        assert!(server.guest.request(server.sys_loop, 2, &9u64.to_le_bytes()).is_ok);
        assert!(server.respond(incoming.rid, 200, &[], b"read").is_ok);
        assert!(client.join().unwrap().ends_with("read"));
    }
    let short = client(server.port, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    let incoming = server.next();
    assert_eq!(incoming.body.as_deref(), Some(&b"abc"[..]));
    assert!(server.respond(incoming.rid, 200, &[], b"").is_ok);
    short.join().unwrap();
}

#[test]
fn a_client_that_breaks_its_body_off_is_an_error_of_the_stream() {
    let mut server = Server::new();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\nabc").unwrap();
    let body = server.next().stream.unwrap();
    assert!(server.guest.watch(server.sys_loop, body, READABLE, 9).is_ok);
    drop(stream);
    let mut read = Vec::new();
    let code = loop {
        match server.guest.read(body) {
            Ok(bytes) => read.extend(bytes),
            Err(-6) => assert_eq!(server.guest.ready(server.sys_loop, FOREVER), [(9, READABLE)]),
            Err(code) => break code,
        }
    };
    assert_eq!((code, read.as_slice()), (-9, &b"abc"[..]));
}

#[test]
fn a_client_that_leaves_is_noticed() {
    let mut server = Server::new();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let incoming = server.next();
    let reply = server.send(12, incoming.rid, &head(200, &[]));
    let body = i32::from_le_bytes(reply.payload.try_into().unwrap());
    const HUP: u32 = 4;
    assert!(server.guest.watch(server.sys_loop, body, HUP, 2).is_ok);
    drop(stream);
    // The host notices the closed connection when it cannot write.
    while server.guest.ready(server.sys_loop, 1) != [(2, HUP)] {
        server.guest.write(body, &[0; 65_536]);
    }
    assert_eq!(server.guest.write(body, b"x"), -5);
}

#[test]
fn requests_are_bounded() {
    let mut options = ProcessOptions::new("test", everything_here());
    options.limits.http_requests_max = 1;
    let mut server = Server::with(options);
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(9000));
    assert!(client(server.port, long).join().unwrap().starts_with("HTTP/1.1 414 "));
    let first = client(server.port, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    let incoming = server.next();
    let second = client(server.port, "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(second.join().unwrap().starts_with("HTTP/1.1 503 "), "one request waits already");
    assert!(server.respond(incoming.rid, 204, &[], b"").is_ok);
    assert!(first.join().unwrap().starts_with("HTTP/1.1 204 "));
}

#[test]
fn listeners_are_closed_and_requests_of_an_ended_handle_get_503() {
    let mut server = Server::new();
    let waiting = client(server.port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    server.next();
    assert!(server.send(2, 0, &1u32.to_le_bytes()).is_ok);
    assert_eq!(server.send(2, 0, &1u32.to_le_bytes()).error().0, "t_http_noent");
    assert_eq!(server.guest.process.zi_end(server.http), 0);
    assert!(waiting.join().unwrap().starts_with("HTTP/1.1 503 "));
}

#[test]
fn requests_of_the_guest_are_checked() {
    let mut server = Server::new();
    let cases: [(u16, Vec<u8>, &str); 9] = [
        (1, listen_payload("0.0.0.0", 0), "t_http_denied"),
        (1, listen_payload("127.0.0.1", 65_536), "t_http_invalid"),
        (1, listen_payload("", 0), "t_http_invalid"),
        (1, vec![0; 5], "t_http_invalid"),
        (3, vec![], "t_http_nosys"),
        (20, vec![], "t_http_nosys"),
        (10, head(99, &[]), "t_http_invalid"),
        (10, head(200, &[("bad name", "x")]), "t_http_invalid"),
        (10, head(200, &[]), "t_http_noent"),
    ];
    for (op, payload, trace) in cases {
        assert_eq!(server.send(op, 9999, &payload).error().0, trace, "op {op}");
    }
    for _ in 1..16 {
        assert!(server.send(1, 0, &listen_payload("127.0.0.1", 0)).is_ok);
    }
    assert_eq!(server.send(1, 0, &listen_payload("127.0.0.1", 0)).error().0, "t_http_oom");
    let mut guest = Guest::new(Grants::none().net_http(NetAllowList::default()));
    let http = guest.open_ok("net", "http");
    assert_eq!(guest.request(http, 1, &listen_payload("127.0.0.1", 0)).error().0, "t_http_denied");
}

#[test]
fn no_event_is_longer_than_a_frame() {
    let mut server = Server::new();
    let head = "POST / HTTP/1.1\r\nHost: h\r\n";
    for length in [65_000_usize, 65_400, 65_536, 190_000] {
        let body = "b".repeat(length);
        let client = client(server.port, format!("{head}Content-Length: {length}\r\n\r\n{body}"));
        // `next` reads more at once than a frame may hold.
        let incoming = server.next();
        let read = match (incoming.body, incoming.stream) {
            (Some(body), _) => body.len(),
            (None, Some(stream)) => server.read_all(stream),
            (None, None) => 0,
        };
        assert_eq!((read, length <= 65_400), (length, incoming.stream.is_none()));
        assert!(server.respond(incoming.rid, 200, &[], b"").is_ok);
        assert!(client.join().unwrap().starts_with("HTTP/1.1 200"));
    }
    let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(65_500));
    assert!(client(server.port, long).join().unwrap().starts_with("HTTP/1.1 431"), "headers alone");
}

#[test]
fn a_client_that_has_closed_its_direction_gets_its_response() {
    let mut server = Server::new();
    let port = server.port;
    let client = thread::spawn(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    });
    let incoming = server.next();
    // Long enough for the host to see the end of the client's direction.
    assert_eq!(server.guest.ready(server.sys_loop, 50), []);
    assert!(server.respond(incoming.rid, 200, &[], b"hello").is_ok);
    assert!(client.join().unwrap().ends_with("hello"));
}

#[test]
fn a_response_outlives_the_guest_that_gave_it() {
    for body_bytes in [5, 60_000] {
        let mut server = Server::new();
        let (first, second) = (
            client(server.port, "GET /whole HTTP/1.1\r\nHost: h\r\n\r\n"),
            client(server.port, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"),
        );
        for _ in 0..2 {
            let incoming = server.next();
            match incoming.path.as_str() {
                "/whole" => assert!(server.respond(incoming.rid, 200, &[], &vec![b'x'; body_bytes]).is_ok),
                _ => {
                    let reply = server.send(12, incoming.rid, &head(200, &[]));
                    let body = i32::from_le_bytes(reply.payload.try_into().unwrap());
                    assert_eq!(server.guest.write(body, b"streamed"), 8);
                }
            }
        }
        drop(server);
        assert_eq!(first.join().unwrap().matches('x').count(), body_bytes);
        assert!(second.join().unwrap().ends_with("8\r\nstreamed\r\n0\r\n\r\n"));
    }
}

#[test]
fn a_response_to_head_tells_the_length_of_the_body_it_does_not_have() {
    let mut server = Server::new();
    let client = client(server.port, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    let incoming = server.next();
    assert!(server.send(10, incoming.rid, &head(200, &[("content-length", "12345")])).is_ok);
    let response = client.join().unwrap();
    assert!(response.contains("content-length: 12345\r\n") && response.ends_with("\r\n\r\n"), "{response}");
}

#[test]
fn a_body_that_was_cut_is_an_error_for_its_watch() {
    const ERROR: u32 = 8;
    let mut server = Server::new();
    let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nbegin").unwrap();
    let body = server.next().stream.unwrap();
    assert!(server.guest.watch(server.sys_loop, body, ERROR, 2).is_ok);
    drop(client);
    assert_eq!(server.guest.ready(server.sys_loop, FOREVER), [(2, ERROR)]);
    assert_eq!(server.guest.read(body).unwrap(), b"begin");
    assert_eq!(server.guest.read(body), Err(-9));
}
