//! The cost of a Unix socket by itself: a thread that sends back what it reads.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use crate::error::BenchError;

/// An echo server for one connection, with which its thread ends.
pub(super) struct Echo(PathBuf);

impl Echo {
    /// Starts the thread, which serves one connection.
    pub(super) fn start(path: &Path) -> Result<Echo, BenchError> {
        let wrong = |source| BenchError::io("starting the echo", source);
        let listener = UnixListener::bind(path).map_err(wrong)?;
        thread::Builder::new()
            .name("echo".into())
            .spawn(move || {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let mut buffer = vec![0; 64 << 10];
                while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..bytes]).is_err() {
                        return;
                    }
                }
            })
            .map_err(wrong)?;
        Ok(Echo(path.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // An error does not matter: the folder of the socket is removed anyway.
        let _ = std::fs::remove_file(&self.0);
    }
}
