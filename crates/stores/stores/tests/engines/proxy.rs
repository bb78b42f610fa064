//! A TCP proxy before an engine that loses requests and answers, cuts them in the middle, and delays them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Among so many pieces one has a fault. A handshake takes several pieces and must get through at times.
const FAULT_EVERY: u32 = 25;
const DELAY: Duration = Duration::from_millis(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceFault {
    /// The piece does not arrive, and the connection is cut: a lost request, or a lost answer.
    Lose,
    /// Half of the piece arrives, then the connection is cut.
    Halve,
    /// The piece arrives, then the connection is cut: nobody learns what came of it.
    CutAfter,
    Delay,
}

const FAULTS: [PieceFault; 4] =
    [PieceFault::Lose, PieceFault::Halve, PieceFault::CutAfter, PieceFault::Delay];

/// The threads of its connections end with the connections.
pub(crate) struct LossyProxy {
    addr: SocketAddr,
    state: Arc<ProxyState>,
    acceptor: Option<JoinHandle<()>>,
}

struct ProxyState {
    target: SocketAddr,
    seed: u64,
    faults: AtomicU64,
    is_over: AtomicBool,
}

impl LossyProxy {
    pub(crate) fn start(target: SocketAddr, seed: u64) -> LossyProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (faults, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let state = Arc::new(ProxyState { target, seed, faults, is_over });
        let shared = state.clone();
        let acceptor = thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                if shared.is_over.load(SeqCst) {
                    return;
                }
                if let Ok(client) = client {
                    connect(&shared, &client, number as u64);
                }
            }
        });
        LossyProxy { addr, state, acceptor: Some(acceptor) }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn faults(&self) -> u64 {
        self.state.faults.load(SeqCst)
    }
}

impl Drop for LossyProxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, SeqCst);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.addr);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Connects a client with the engine. A client whose engine is away is cut.
fn connect(state: &Arc<ProxyState>, client: &TcpStream, number: u64) {
    let Ok(server) = TcpStream::connect(state.target) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    for (direction, from, to) in [(0, client, &server), (1, &server, client)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
        let draws = SmallRng::seed_from_u64(state.seed ^ (number << 1 | direction).rotate_left(40));
        let state = state.clone();
        thread::spawn(move || pass(from, to, draws, &state));
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut draws: SmallRng, state: &ProxyState) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut piece = &bytes[..count];
        let is_faulty = draws.random_range(0..FAULT_EVERY) == 0;
        let fault = is_faulty.then(|| FAULTS[draws.random_range(0..FAULTS.len())]);
        state.faults.fetch_add(u64::from(is_faulty), SeqCst);
        match fault {
            Some(PieceFault::Lose) => break,
            Some(PieceFault::Halve) => piece = &piece[..count / 2],
            Some(PieceFault::Delay) => thread::sleep(DELAY),
            Some(PieceFault::CutAfter) | None => {}
        }
        let is_cut = matches!(fault, Some(PieceFault::Halve | PieceFault::CutAfter));
        if to.write_all(piece).is_err() || is_cut {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
