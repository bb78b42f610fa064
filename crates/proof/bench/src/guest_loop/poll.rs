//! A POLL that reports one ready stream, beside idle watches.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use millrace_reactor::PollTimeout;

use super::guest::Guest;
use crate::BenchOptions;
use crate::aim::WATCHES_RATIO;
use crate::cpu::CpuTime;
use crate::error::BenchError;
use crate::report::Collector;

const FEW: u64 = 10;
const SOME: u64 = 1000;
const MANY: u64 = 100_000;
/// Idle streams of a guest. Each stream takes two descriptors of this process, so further watches are second, third,
/// ... watches of the same streams.
const STREAMS_MAX: u64 = 1000;
/// Loads that are compared alternate this often, because a machine's pace changes.
const SLICES: u32 = 10;
/// Polls between two readings of the clock.
const POLLS_TOGETHER: u32 = 100;

struct PollLoad {
    guest: Guest,
    /// The other ends of the guest's streams, kept open.
    _peers: Vec<TcpStream>,
    polls: u64,
    took: Duration,
}

impl PollLoad {
    fn new(watches: u64) -> Result<PollLoad, BenchError> {
        let io = |source| BenchError::io("preparing streams", source);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(io)?;
        let mut guest = Guest::new()?;
        let (mut handles, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..watches.min(STREAMS_MAX) {
            let (handle, peer) = guest.connect(&listener)?;
            handles.push(handle);
            peers.push(peer);
        }
        let (ready, mut its_peer) = guest.connect(&listener)?;
        for (number, handle) in (1..watches).zip(handles.iter().cycle()) {
            guest.watch(*handle, number)?;
        }
        guest.watch(ready, watches)?;
        // Nobody reads these bytes, so the stream stays ready.
        its_peer.write_all(b"ready").map_err(io)?;
        peers.push(its_peer);
        let ready = guest.poll(PollTimeout::Forever)?;
        if ready != 1 {
            return Err(BenchError::Unexpected(format!("{ready} streams are ready where one should be")));
        }
        Ok(PollLoad { guest, _peers: peers, polls: 0, took: Duration::ZERO })
    }

    fn run(&mut self, timeout: PollTimeout, time: Duration) -> Result<(), BenchError> {
        let begun = CpuTime::start();
        while begun.elapsed() < time {
            for _ in 0..POLLS_TOGETHER {
                self.guest.poll(timeout)?;
            }
            self.polls += u64::from(POLLS_TOGETHER);
        }
        self.took += begun.elapsed();
        Ok(())
    }

    fn per_poll_us(&self) -> f64 {
        self.took.as_secs_f64() * 1e6 / self.polls.max(1) as f64
    }
}

pub(super) fn measure(options: &BenchOptions, out: &mut Collector) -> Result<(), BenchError> {
    for (name, timeout) in [("timeout 0", PollTimeout::Ms(0)), ("no timeout", PollTimeout::Forever)] {
        let mut loads = [FEW, SOME, MANY].map(PollLoad::new).into_iter().collect::<Result<Vec<_>, _>>()?;
        let slice = Duration::from_secs_f64(options.seconds) / (SLICES * loads.len() as u32);
        for _ in 0..SLICES {
            options.go_on()?;
            for load in &mut loads {
                load.run(timeout, slice)?;
            }
        }
        let [few, some, many] = [0, 1, 2].map(|at: usize| loads[at].per_poll_us());
        out.add("poll", &format!("10 watches, {name}"), "us", few);
        out.add("poll", &format!("1,000 watches, {name}"), "us", some);
        out.add("poll", &format!("100,000 watches, {name}"), "us", many);
        out.add("poll", &format!("{WATCHES_RATIO}, {name}"), "x", many / few);
    }
    Ok(())
}
