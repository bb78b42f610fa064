//! Standard input and output for programs of generation B: the streams that the embedding program hands over.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::sync::{Mutex, PoisonError};

/// Bytes of one line or one read. A longer line is given in parts, as if it had ended there.
pub const INPUT_BYTES_MAX: usize = 1 << 20;

/// A stream to read from, shared by the runs of one host: each read goes to one of them.
pub struct Input {
    reader: Mutex<Box<dyn BufRead + Send>>,
    is_tty: bool,
}

impl Input {
    pub fn new(reader: impl BufRead + Send + 'static, is_tty: bool) -> Input {
        Input { reader: Mutex::new(Box::new(reader)), is_tty }
    }

    pub fn stdin() -> Input {
        Input::new(BufReader::new(io::stdin()), io::stdin().is_terminal())
    }

    pub fn is_tty(&self) -> bool {
        self.is_tty
    }

    /// The next line without its end; `None` when the stream has ended. Blocks.
    pub fn read_line(&self, bytes_max: usize) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = bytes_max.min(INPUT_BYTES_MAX) as u64;
        if reader.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 && limit > 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }

    /// At most `bytes_max` bytes, as soon as there are any; `None` when the stream has ended. Blocks.
    pub fn read_bytes(&self, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        if bytes_max == 0 {
            return Ok(Some(Vec::new()));
        }
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = reader.fill_buf()?;
        let count = ready.len().min(bytes_max).min(INPUT_BYTES_MAX);
        let bytes = ready[..count].to_vec();
        reader.consume(count);
        Ok((count > 0).then_some(bytes))
    }
}

/// Where a program writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Stdout,
    Stderr,
}

impl Target {
    /// Everything but `stderr` means stdout, as programs of this generation expect.
    pub fn named(name: &str) -> Target {
        if name.trim().eq_ignore_ascii_case("stderr") { Target::Stderr } else { Target::Stdout }
    }
}

/// Two streams to write to, shared by the runs of one host.
pub struct Output {
    stdout: Mutex<Box<dyn Write + Send>>,
    stderr: Mutex<Box<dyn Write + Send>>,
    stdout_is_tty: bool,
    stderr_is_tty: bool,
}

impl Output {
    /// Streams that are no terminals.
    pub fn new(stdout: impl Write + Send + 'static, stderr: impl Write + Send + 'static) -> Output {
        Output {
            stdout: Mutex::new(Box::new(stdout)),
            stderr: Mutex::new(Box::new(stderr)),
            stdout_is_tty: false,
            stderr_is_tty: false,
        }
    }

    pub fn of_process() -> Output {
        Output::of_process_through(io::stdout())
    }

    /// The streams of this process, where stdout is reached through a writer that the embedding program watches.
    pub fn of_process_through(stdout: impl Write + Send + 'static) -> Output {
        Output {
            stdout_is_tty: io::stdout().is_terminal(),
            stderr_is_tty: io::stderr().is_terminal(),
            ..Output::new(stdout, io::stderr())
        }
    }

    pub fn is_tty(&self, target: Target) -> bool {
        match target {
            Target::Stdout => self.stdout_is_tty,
            Target::Stderr => self.stderr_is_tty,
        }
    }

    pub fn write(&self, target: Target, bytes: &[u8]) -> io::Result<()> {
        self.stream(target).lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
    }

    pub fn flush(&self, target: Target) -> io::Result<()> {
        self.stream(target).lock().unwrap_or_else(PoisonError::into_inner).flush()
    }

    fn stream(&self, target: Target) -> &Mutex<Box<dyn Write + Send>> {
        match target {
            Target::Stdout => &self.stdout,
            Target::Stderr => &self.stderr,
        }
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("is_tty", &self.is_tty).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("stdout_is_tty", &self.stdout_is_tty).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_without_their_ends_and_the_end_is_none() {
        let input = Input::new(&b"one\r\n\ntwo"[..], false);
        let lines: Vec<_> = (0..4).map(|_| input.read_line(100).unwrap()).collect();
        assert_eq!(lines, [Some("one".into()), Some(String::new()), Some("two".into()), None]);
    }

    #[test]
    fn a_long_line_comes_in_parts() {
        let input = Input::new(&b"abcdef\n"[..], false);
        assert_eq!(input.read_line(4).unwrap().as_deref(), Some("abcd"));
        assert_eq!(input.read_line(4).unwrap().as_deref(), Some("ef"));
    }

    #[test]
    fn bytes_come_as_they_are_ready() {
        let input = Input::new(&b"abc"[..], false);
        assert_eq!(input.read_bytes(0).unwrap(), Some(vec![]));
        assert_eq!(input.read_bytes(2).unwrap(), Some(b"ab".to_vec()));
        assert_eq!(input.read_bytes(9).unwrap(), Some(b"c".to_vec()));
        assert_eq!(input.read_bytes(9).unwrap(), None);
    }
}
