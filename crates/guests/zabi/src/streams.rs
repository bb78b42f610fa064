//! Handles 0, 1 and 2: byte streams that the embedding program provides.

use std::fmt;
use std::io::{self, Read, Write};

use millrace_reactor::ZabiError;

/// Standard input, output and error of a guest. Reads and writes block as the streams do; a stream that blocks for long
/// delays the guest, and an [`crate::Interrupter`] does not end such a wait.
pub struct StandardStreams {
    pub input: Box<dyn Read + Send>,
    pub output: Box<dyn Write + Send>,
    pub error: Box<dyn Write + Send>,
}

impl StandardStreams {
    /// No input, and output that is discarded.
    pub fn none() -> StandardStreams {
        StandardStreams {
            input: Box::new(io::empty()),
            output: Box::new(io::sink()),
            error: Box::new(io::sink()),
        }
    }

    /// Returns the number of bytes read; 0 at the end of the input.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> Result<usize, ZabiError> {
        retry(|| self.input.read(to))
    }

    pub(crate) fn write(&mut self, number: StandardOutput, from: &[u8]) -> Result<usize, ZabiError> {
        let stream = self.stream(number);
        let count = retry(|| stream.write(from))?;
        // Guests have no call that flushes.
        retry(|| stream.flush())?;
        Ok(count)
    }

    fn stream(&mut self, number: StandardOutput) -> &mut (dyn Write + Send) {
        match number {
            StandardOutput::Output => &mut *self.output,
            StandardOutput::Error => &mut *self.error,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandardOutput {
    Output,
    Error,
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> Result<T, ZabiError> {
    loop {
        match call() {
            Ok(value) => return Ok(value),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(ZabiError::Again),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(ZabiError::Closed),
            Err(_) => return Err(ZabiError::Io),
        }
    }
}

impl fmt::Debug for StandardStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandardStreams")
    }
}
