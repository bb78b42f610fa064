//! A TCP proxy before PostgreSQL that can lose requests, lose answers, or swallow everything.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Weather {
    Fine,
    /// The connection is cut when the next request arrives, which the server never sees.
    LosesRequests,
    /// The request is forwarded; the connection is cut when its answer arrives.
    LosesAnswers,
    /// Requests are taken and nothing ever comes back.
    BlackHole,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    weather: Arc<AtomicU8>,
}

impl Proxy {
    /// Starts a proxy to the server of `TEST_POSTGRES`. Its threads end with the connections.
    pub(crate) fn start() -> Proxy {
        let url = std::env::var("TEST_POSTGRES").unwrap();
        let config: postgres::Config = url.parse().unwrap();
        let postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else {
            panic!("the tests need a server that listens on TCP");
        };
        let target = (host.clone(), config.get_ports().first().copied().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let weather = Arc::new(AtomicU8::new(Weather::Fine as u8));
        let shared = weather.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect((target.0.as_str(), target.1)).unwrap();
                let (up, down) = (shared.clone(), shared.clone());
                let (client_in, client_out) = (client.try_clone().unwrap(), client);
                let (server_in, server_out) = (server.try_clone().unwrap(), server);
                thread::spawn(move || pump(client_in, server_out, &up, Weather::LosesRequests));
                thread::spawn(move || pump(server_in, client_out, &down, Weather::LosesAnswers));
            }
        });
        Proxy { address, weather }
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.weather.store(weather as u8, Ordering::SeqCst);
    }
}

/// Copies bytes until an end is closed, or until bytes arrive in the weather that loses them.
fn pump(mut from: TcpStream, mut to: TcpStream, weather: &AtomicU8, cut_in: Weather) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let now = weather.load(Ordering::SeqCst);
        if now == cut_in as u8 {
            break;
        }
        if now == Weather::BlackHole as u8 {
            continue;
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
