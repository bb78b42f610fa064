//! A process that ends leaves nothing behind. The only test in this file: it counts the descriptors and threads of the
//! whole test program.
#![allow(clippy::unwrap_used)]

mod harness;

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use harness::{FOREVER, Guest, READABLE, open_descriptors, with_files};
use millrace_reactor::zcl1::FieldWriter;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Opens one of every kind of handle and leaves them open.
fn hold_everything(folder: &std::path::Path, port: u16) -> Guest {
    let mut guest = Guest::new(with_files(folder));
    let loops = [guest.open_ok("sys", "loop"), guest.open_ok("sys", "loop")];
    let (listener, own_port) = guest.listen();
    let _peer = TcpStream::connect(("127.0.0.1", own_port)).unwrap();
    assert!(guest.watch(loops[0], listener, READABLE, 1).is_ok);
    assert_eq!(guest.ready(loops[0], FOREVER), [(1, READABLE)]);
    assert_eq!(guest.read_max(listener, 32).unwrap().len(), 32);
    let stream = guest.tcp("127.0.0.1", port, 0);
    assert!(guest.watch(loops[1], stream, READABLE, 1).is_ok);
    for (kind, name) in [("event", "bus"), ("sys", "info"), ("async", "default"), ("proc", "argv")] {
        guest.open_ok(kind, name);
    }
    for file in ["/a", "/b", "/c"] {
        let aio = guest.open_ok("file", "aio");
        guest.put(512 << 10, file.as_bytes());
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u64(512 << 10).u32(2).u32(6).u32(0);
        assert!(guest.request(aio, 1, &payload).is_ok);
        assert!(guest.watch(loops[0], aio, READABLE, aio as u64).is_ok);
        while guest.read(aio).is_err() {
            guest.ready(loops[0], FOREVER);
        }
        assert_eq!(guest.request(aio, 3, &[0; 24]).op, 3, "a request is left in the queue");
    }
    let http = guest.open_ok("net", "http");
    let mut payload = vec![0; 8];
    FieldWriter::new(&mut payload).prefixed(b"127.0.0.1");
    let reply = guest.request(http, 1, &payload);
    let port = u16::from_le_bytes(reply.payload[4..6].try_into().unwrap());
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(guest.watch(loops[1], http, READABLE, 99).is_ok);
    assert_eq!(guest.ready(loops[1], FOREVER), [(99, READABLE)]);
    guest.arm(loops[0], 1, 1 << 40, 0);
    guest
}

#[test]
fn a_process_that_ends_releases_descriptors_and_threads() {
    let folder = tempfile::TempDir::new().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    // tokio keeps two descriptors for signals, once for the whole program.
    drop((hold_everything(folder.path(), port), server.accept().unwrap()));
    let before = (open_descriptors(), threads());
    for _ in 0..20 {
        let guest = hold_everything(folder.path(), port);
        let (mut accepted, _) = server.accept().unwrap();
        assert!(open_descriptors() > before.0 + 10 && threads() > before.1);
        drop(guest);
        // The other side sees the end of the connection.
        let _ = accepted.write_all(b"x");
        assert_eq!(std::io::copy(&mut accepted, &mut std::io::sink()).unwrap_or(0), 0);
    }
    assert_eq!((open_descriptors(), threads()), before);

    // The same, by ending each handle instead of dropping the process.
    let mut guest = hold_everything(folder.path(), port);
    drop(server.accept().unwrap());
    (3..40).for_each(|handle| {
        guest.process.zi_end(handle);
    });
    assert_eq!(guest.process.open_handles(), 0);
    drop(guest);
    assert_eq!((open_descriptors(), threads()), before);
}
