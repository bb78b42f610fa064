//! Standard input and output for programs of generation B: the streams that the embedding program provides.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};

use parking_lot::Mutex;

/// Bytes of one line or one read. A longer line is given in parts, as if it had ended after each.
pub const INPUT_BYTES_MAX: usize = 1 << 20;

/// A stream to read from, shared by the runs of one host: each read goes to one of them.
pub struct Input {
    reader: Mutex<InputReader>,
    is_tty: bool,
}

struct InputReader {
    stream: Box<dyn BufRead + Send>,
    /// Bytes that were read from the stream and not given to a program yet. At most [`INPUT_BYTES_MAX`].
    held: Vec<u8>,
}

impl Input {
    pub fn new(reader: impl BufRead + Send + 'static, is_tty: bool) -> Input {
        Input { reader: Mutex::new(InputReader { stream: Box::new(reader), held: Vec::new() }), is_tty }
    }

    pub fn stdin() -> Input {
        Input::new(BufReader::new(io::stdin()), io::stdin().is_terminal())
    }

    pub fn is_tty(&self) -> bool {
        self.is_tty
    }

    /// Reads the next line without its end; `None` when the stream has ended. Bytes that are not UTF-8 become U+FFFD,
    /// which takes three bytes; the text has at most `bytes_max` bytes all the same. Blocks.
    pub fn read_line(&self, bytes_max: usize) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let mut reader = self.reader.lock();
        let InputReader { stream, held } = &mut *reader;
        let limit = bytes_max.min(INPUT_BYTES_MAX);
        let before = std::mem::take(held);
        let read = before.as_slice().chain(stream).take(limit as u64).read_until(b'\n', &mut line);
        let unread = before.get(line.len()..).unwrap_or_default();
        let given = if read.is_ok() { text_that_fits(&line, limit) } else { 0 };
        held.extend_from_slice(&line[given..]);
        held.extend_from_slice(unread);
        if read? == 0 && limit > 0 {
            return Ok(None);
        }
        line.truncate(given);
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }

    /// Reads at most `bytes_max` bytes, as soon as there are any; `None` when the stream has ended. Blocks.
    pub fn read_bytes(&self, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        if bytes_max == 0 {
            return Ok(Some(Vec::new()));
        }
        let mut reader = self.reader.lock();
        let InputReader { stream, held } = &mut *reader;
        if !held.is_empty() {
            let count = held.len().min(bytes_max);
            return Ok(Some(held.drain(..count).collect()));
        }
        let ready = stream.fill_buf()?;
        let count = ready.len().min(bytes_max).min(INPUT_BYTES_MAX);
        let bytes = ready[..count].to_vec();
        stream.consume(count);
        Ok((count > 0).then_some(bytes))
    }
}

/// How many of these bytes become a text of at most `text_bytes_max` bytes. At least one byte if there is any, so that
/// a program that reads makes progress.
fn text_that_fits(bytes: &[u8], text_bytes_max: usize) -> usize {
    let (mut given, mut text) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        let room = text_bytes_max - text;
        if chunk.valid().len() > room {
            given += chunk.valid().floor_char_boundary(room);
            break;
        }
        given += chunk.valid().len();
        text += chunk.valid().len();
        let replaced = if chunk.invalid().is_empty() { 0 } else { char::REPLACEMENT_CHARACTER.len_utf8() };
        if text + replaced > text_bytes_max {
            break;
        }
        given += chunk.invalid().len();
        text += replaced;
    }
    given.max(bytes.len().min(1))
}

/// The stream that a program writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    /// Every name but `stderr` means stdout, as programs of this generation expect.
    pub fn named(name: &str) -> OutputStream {
        if name.trim().eq_ignore_ascii_case("stderr") { OutputStream::Stderr } else { OutputStream::Stdout }
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
    /// Streams that are not terminals.
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

    /// The streams of this process; stdout is reached through a writer that the embedding program observes.
    pub fn of_process_through(stdout: impl Write + Send + 'static) -> Output {
        Output {
            stdout_is_tty: io::stdout().is_terminal(),
            stderr_is_tty: io::stderr().is_terminal(),
            ..Output::new(stdout, io::stderr())
        }
    }

    pub fn is_tty(&self, target: OutputStream) -> bool {
        match target {
            OutputStream::Stdout => self.stdout_is_tty,
            OutputStream::Stderr => self.stderr_is_tty,
        }
    }

    pub fn write(&self, target: OutputStream, bytes: &[u8]) -> io::Result<()> {
        self.stream(target).lock().write_all(bytes)
    }

    pub fn flush(&self, target: OutputStream) -> io::Result<()> {
        self.stream(target).lock().flush()
    }

    fn stream(&self, target: OutputStream) -> &Mutex<Box<dyn Write + Send>> {
        match target {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
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
    fn a_line_that_is_not_utf_8_comes_in_parts_that_fit() {
        let input = Input::new(&b"ab\xff\xfe\xfdc\nrest"[..], false);
        let parts: Vec<String> = (0..4).map(|_| input.read_line(6).unwrap().unwrap()).collect();
        assert_eq!(parts, ["ab\u{fffd}", "\u{fffd}\u{fffd}", "c", "rest"]);
        assert_eq!(input.read_line(6).unwrap(), None);
        let input = Input::new(&b"\xff\xff\xff\nmore"[..], false);
        assert_eq!(input.read_line(3).unwrap().as_deref(), Some("\u{fffd}"));
        assert_eq!(input.read_bytes(1).unwrap(), Some(b"\xff".to_vec()), "what is held comes first");
        assert_eq!(input.read_bytes(9).unwrap(), Some(b"\xff".to_vec()));
        assert_eq!(input.read_line(9).unwrap().as_deref(), Some(""));
        assert_eq!(input.read_line(1).unwrap().as_deref(), Some("m"));
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
