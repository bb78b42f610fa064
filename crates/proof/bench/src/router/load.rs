//! Clients of the socket: write lines of requests, read lines of replies.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;

use crate::error::BenchError;
use crate::go_on;

/// Requests sent together. Two such chunks are under way on a connection, below the bound at which the server stops
/// reading.
const CHUNK: usize = 256;
const READ_BYTES: usize = 256 << 10;

pub(super) fn ping(id: &str, payload_bytes: usize) -> Vec<u8> {
    let payload = "x".repeat(payload_bytes);
    let line = format!(
        "{{\"kind\":\"query\",\"type\":\"Syscall.Ping\",\"data\":{{\"payload\":\"{payload}\"}},\
         \"metadata\":{{\"id\":\"{id}\",\"timestamp\":1}}}}\n"
    );
    line.into_bytes()
}

pub(super) struct Wire {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// Lines received and not yet counted by [`Wire::lines`].
    early: usize,
}

impl Wire {
    pub(super) fn open(path: &Path) -> Result<Wire, BenchError> {
        let stream = UnixStream::connect(path).map_err(wrong)?;
        Ok(Wire { stream, buffer: vec![0; READ_BYTES], early: 0 })
    }

    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), BenchError> {
        self.stream.write_all(lines).map_err(wrong)
    }

    /// Waits for so many lines.
    pub(super) fn lines(&mut self, count: usize) -> Result<(), BenchError> {
        while self.early < count {
            let bytes = self.stream.read(&mut self.buffer).map_err(wrong)?;
            if bytes == 0 {
                return Err(BenchError::Unexpected("the end of the connection".to_owned()));
            }
            self.early += self.buffer[..bytes].iter().filter(|byte| **byte == b'\n').count();
        }
        self.early -= count;
        Ok(())
    }
}

pub(super) struct Pipeline<'a> {
    pub(super) socket: &'a Path,
    pub(super) payload_bytes: usize,
    pub(super) stop: &'a AtomicBool,
}

impl Pipeline<'_> {
    /// Runs a thread for each connection, which goes on while `more` returns true for the number of its replies.
    /// Returns the number of all replies.
    pub(super) fn run(
        &self,
        connections: usize,
        more: impl Fn(u64) -> bool + Sync,
    ) -> Result<u64, BenchError> {
        let more = &more;
        let results = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..connections).map(|at| scope.spawn(move || self.connection(at, more))).collect();
            let join =
                |thread: thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or(Err(BenchError::Panicked));
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        results.into_iter().sum()
    }

    fn connection(&self, at: usize, more: impl Fn(u64) -> bool) -> Result<u64, BenchError> {
        let mut wire = Wire::open(self.socket)?;
        // An id may be used again once it is answered; the two chunks under way have different ids.
        let chunk = |of: &str| -> Vec<u8> {
            (0..CHUNK).flat_map(|n| ping(&format!("{at}-{of}-{n}"), self.payload_bytes)).collect()
        };
        let chunks = [chunk("a"), chunk("b")];
        let mut replies = 0;
        wire.write(&chunks[0])?;
        for next in chunks.iter().rev().cycle() {
            go_on(self.stop)?;
            if !more(replies) {
                break;
            }
            wire.write(next)?;
            wire.lines(CHUNK)?;
            replies += CHUNK as u64;
        }
        wire.lines(CHUNK)?;
        Ok(replies + CHUNK as u64)
    }
}

fn wrong(source: std::io::Error) -> BenchError {
    BenchError::io("talking to the socket", source)
}
