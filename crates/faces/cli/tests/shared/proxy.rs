//! A TCP proxy between a server and the engine of its store, which can be cut, go silent, or slow down.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The state of the line between a server and the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Open = 0,
    /// New and open connections are closed at once.
    Cut = 1,
    /// Connections stay open and nothing passes: like a router that drops packets.
    Silent = 2,
    /// Every piece is delayed by 30 ms.
    Slow = 3,
    /// Requests reach the engine, and nothing comes back. When the line opens again, the answers are lost.
    HalfOpen = 4,
}

pub struct Proxy {
    addr: SocketAddr,
    line: Arc<AtomicU8>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let line = Arc::new(AtomicU8::new(Line::Open as u8));
        let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let (state, open) = (line.clone(), streams.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if state.load(Relaxed) == Line::Cut as u8 {
                    continue;
                }
                let Ok(server) = TcpStream::connect(target) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                    open.lock().unwrap().push(stream.try_clone().unwrap());
                }
                for (from, to, held) in [
                    (&client, &server, &[Line::Silent][..]),
                    (&server, &client, &[Line::Silent, Line::HalfOpen]),
                ] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = state.clone();
                    thread::spawn(move || pass(from, to, held, &state));
                }
            }
        });
        Proxy { addr, line, streams }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn set(&self, line: Line) {
        let before = self.line.swap(line as u8, Relaxed);
        if line == Line::Cut || before == Line::HalfOpen as u8 {
            for stream in self.streams.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Passes bytes on; in the states `held` they wait.
fn pass(mut from: TcpStream, mut to: TcpStream, held: &[Line], line: &AtomicU8) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while held.iter().any(|held| *held as u8 == line.load(Relaxed)) {
            thread::sleep(Duration::from_millis(10));
        }
        if line.load(Relaxed) == Line::Slow as u8 {
            thread::sleep(Duration::from_millis(30));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
