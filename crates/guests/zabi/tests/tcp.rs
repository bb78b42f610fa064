//! `net/tcp` over real connections of this machine.
#![allow(clippy::unwrap_used)]

mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use harness::{FOREVER, Guest, READABLE, REQUEST, RESPONSE, WRITABLE, everything_here};
use millrace_reactor::PollEvent;
use millrace_reactor::zcl1::FieldWriter;
use millrace_zabi::{Grants, NetAllowList, ProcessOptions, TcpPolicy};

fn shut_down_writing(guest: &mut Guest, handle: i32) -> harness::Reply {
    let mut payload = Vec::new();
    FieldWriter::new(&mut payload).u32(1).u32(handle as u32).u32(1).u32(0);
    let frame = guest.frame(4, &payload);
    guest.put(REQUEST, &frame);
    let (process, memory) = (&mut guest.process, &mut guest.memory);
    let count = process.zi_ctl(memory, REQUEST, frame.len() as u32, RESPONSE, 256);
    harness::Reply::of(&guest.at(RESPONSE, count as usize))
}

/// A client in the test: sends, shuts down its sending direction, and returns everything that came back.
fn client(port: u16, bytes: Vec<u8>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let reading = thread::spawn(move || {
            let mut back = Vec::new();
            reader.read_to_end(&mut back).unwrap();
            back
        });
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        reading.join().unwrap()
    })
}

/// Echoes every byte on `count` connections until each has ended.
fn echo(guest: &mut Guest, sys_loop: i32, listener: i32, count: usize) {
    const ID: u64 = 1;
    assert!(guest.watch(sys_loop, listener, READABLE, ID).is_ok);
    let mut ended = 0;
    let mut unsent: std::collections::BTreeMap<i32, Vec<u8>> = std::collections::BTreeMap::new();
    while ended < count {
        for event in guest.poll(sys_loop, 4, FOREVER) {
            let PollEvent::Ready { handle, .. } = event else { panic!("{event:?}") };
            let handle = handle as i32;
            if handle == listener {
                while let Ok(records) = guest.read_max(listener, 64) {
                    for record in records.chunks(32) {
                        let stream = i32::from_le_bytes(record[..4].try_into().unwrap());
                        assert!(guest.watch(sys_loop, stream, READABLE | WRITABLE, stream as u64).is_ok);
                    }
                }
                continue;
            }
            let rest = unsent.entry(handle).or_default();
            if rest.is_empty() {
                match guest.read_max(handle, 4096) {
                    Ok(bytes) if bytes.is_empty() => {
                        assert_eq!(guest.process.zi_end(handle), 0);
                        assert!(guest.request(sys_loop, 2, &(handle as u64).to_le_bytes()).is_ok);
                        ended += 1;
                        continue;
                    }
                    Ok(bytes) => *rest = bytes,
                    Err(-6) => continue,
                    Err(code) => panic!("{code}"),
                }
            }
            let bytes = std::mem::take(rest);
            match guest.write(handle, &bytes) {
                -6 => *unsent.get_mut(&handle).unwrap() = bytes,
                written if written > 0 => {
                    *unsent.get_mut(&handle).unwrap() = bytes[written as usize..].to_vec();
                }
                code => panic!("{code}"),
            }
        }
    }
}

#[test]
fn an_echo_server_returns_every_byte_of_every_connection() {
    let mut guest = Guest::new(everything_here());
    let (listener, port) = guest.listen();
    let sys_loop = guest.open_ok("sys", "loop");
    let sent: Vec<Vec<u8>> = (0..20u32).map(|n| (0..n * 10_007).map(|at| (at ^ n) as u8).collect()).collect();
    let clients: Vec<_> = sent.iter().map(|bytes| client(port, bytes.clone())).collect();
    echo(&mut guest, sys_loop, listener, clients.len());
    for (client, sent) in clients.into_iter().zip(sent) {
        assert!(client.join().unwrap() == sent, "{} bytes", sent.len());
    }
    assert_eq!(guest.process.open_handles(), 2, "listener and loop");
}

#[test]
fn a_guest_connects_writes_and_shuts_down() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut guest = Guest::new(everything_here());
    let handle = guest.tcp("localhost", listener.local_addr().unwrap().port(), 0x30);
    let sys_loop = guest.open_ok("sys", "loop");
    assert!(guest.watch(sys_loop, handle, WRITABLE, 1).is_ok);
    assert_eq!(guest.ready(sys_loop, FOREVER), [(1, WRITABLE)]);
    assert_eq!(guest.process.zi_handle_hflags(handle), 7);
    assert_eq!(guest.write(handle, b"hello"), 5);
    assert_eq!(guest.read(handle), Err(-6));
    for _ in 0..2 {
        assert!(shut_down_writing(&mut guest, handle).is_ok, "twice is fine");
    }
    assert_eq!(guest.write(handle, b"x"), -5);
    let (mut peer, _) = listener.accept().unwrap();
    let mut text = String::new();
    peer.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    peer.write_all(b"bye").unwrap();
    drop(peer);
    assert!(guest.watch(sys_loop, handle, READABLE, 2).is_ok);
    let mut read = Vec::new();
    loop {
        guest.ready(sys_loop, FOREVER);
        match guest.read(handle) {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(bytes) => read.extend(bytes),
            Err(code) => assert_eq!(code, -6),
        }
    }
    assert_eq!(read, b"bye");
}

#[test]
fn a_refused_connection_is_an_error_of_every_call() {
    // Bound but not listening: nobody else gets the port meanwhile.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    let mut guest = Guest::new(everything_here());
    let handle = guest.tcp("127.0.0.1", port, 0);
    let sys_loop = guest.open_ok("sys", "loop");
    assert!(guest.watch(sys_loop, handle, 0xF, 1).is_ok);
    assert_eq!(guest.ready(sys_loop, FOREVER), [(1, 0xF)]);
    for _ in 0..2 {
        assert_eq!((guest.read(handle), guest.write(handle, b"x")), (Err(-9), -9));
    }
    let error = shut_down_writing(&mut guest, handle).error();
    assert_eq!(error, ("t_ctl_handle_op_failed".to_owned(), "handle op failed: -9".to_owned()));
}

#[test]
fn accept_records_name_handle_and_addresses() {
    let mut guest = Guest::new(everything_here());
    let (listener, port) = guest.listen();
    assert_eq!(guest.process.zi_handle_hflags(listener), 5);
    assert_eq!(guest.read_max(listener, 31), Err(-2));
    assert_eq!(guest.read_max(listener, 32), Err(-6));
    assert_eq!(guest.write(listener, b"x"), -7);
    let peers: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let sys_loop = guest.open_ok("sys", "loop");
    assert!(guest.watch(sys_loop, listener, READABLE, 1).is_ok);
    let mut records = Vec::new();
    while records.len() < 3 * 32 {
        assert_eq!(guest.ready(sys_loop, FOREVER), [(1, READABLE)]);
        records.extend(guest.read_max(listener, 90).unwrap());
    }
    let mut expected: Vec<u32> = peers.iter().map(|peer| peer.local_addr().unwrap().port().into()).collect();
    let word = |record: &[u8], at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
    let mut ports: Vec<u32> = records.chunks(32).map(|record| word(record, 4)).collect();
    expected.sort_unstable();
    ports.sort_unstable();
    assert_eq!(ports, expected);
    for record in records.chunks(32) {
        assert_eq!(guest.process.zi_handle_hflags(word(record, 0) as i32), 7);
        assert_eq!(record[8..24], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1]);
        assert_eq!((word(record, 24), word(record, 28)), (port.into(), 0));
    }
    assert_eq!(guest.ready(sys_loop, 0), []);
}

#[test]
fn what_the_lists_do_not_allow_is_denied() {
    let policy = TcpPolicy { connect: "10.1.2.3:80".parse().unwrap(), listen: NetAllowList::default() };
    let mut guest = Guest::new(Grants::none().net_tcp(policy));
    for (host, port) in [("127.0.0.1", 80), ("10.1.2.3", 81), ("10.1.2.4", 80), ("localhost", 1)] {
        assert_eq!(guest.tcp(host, port, 0), -4, "{host}:{port}");
    }
    assert_eq!(guest.tcp("127.0.0.1", 0, 1), -4, "listening is another list");
    let mut guest = Guest::new(Grants::none().net_tcp(TcpPolicy::nothing()));
    assert_eq!(guest.tcp("localhost", 1, 0), -4);
}

#[test]
fn parameters_are_checked() {
    let mut guest = Guest::new(everything_here());
    for (host, port, flags) in [("127.0.0.1", 0, 0), ("127.0.0.1", 80, 0x40), ("", 80, 0), ("a\0b", 80, 0)] {
        assert_eq!(guest.tcp(host, port, flags), -1, "{host:?}:{port} {flags}");
    }
    let mut params = Vec::new();
    FieldWriter::new(&mut params).u64(u64::MAX).u32(9).u32(80).u32(0);
    assert_eq!(guest.open("net", "tcp", &params), -2);
    for length in 0..20 {
        assert_eq!(guest.open("net", "tcp", &params[..length]), -1, "{length} bytes");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(guest.tcp("127.0.0.1", taken.local_addr().unwrap().port(), 1), -6, "the address is in use");
    assert_eq!(guest.process.open_handles(), 0);
}

#[test]
fn sockets_are_bounded_and_a_listener_waits_for_room() {
    let mut options = ProcessOptions::new("test", everything_here());
    options.limits.sockets_max = 2;
    let mut guest = Guest::with(options);
    let (listener, port) = guest.listen();
    let _peers: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let sys_loop = guest.open_ok("sys", "loop");
    assert!(guest.watch(sys_loop, listener, READABLE, 1).is_ok);
    assert_eq!(guest.ready(sys_loop, FOREVER), [(1, READABLE)]);
    let record = guest.read_max(listener, 320).unwrap();
    assert_eq!(record.len(), 32, "there is room for one more socket");
    assert_eq!(guest.read_max(listener, 320), Err(-8));
    assert_eq!(guest.tcp("127.0.0.1", port, 0), -8);
    let first = i32::from_le_bytes(record[..4].try_into().unwrap());
    assert_eq!(guest.process.zi_end(first), 0);
    assert_eq!(guest.ready(sys_loop, FOREVER), [(1, READABLE)], "the second connection still waits");
    assert_eq!(guest.read_max(listener, 320).unwrap().len(), 32);
}
