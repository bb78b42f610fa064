//! Splits a byte stream into lines, however it was split into reads.

use std::fmt;

/// The bound of RFC 0024: a line's bytes without its LF and one CR before it.
pub const LINE_BYTES_MAX: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line without its LF and one CR before it; never only whitespace.
    Whole(&'a [u8]),
    /// A line of more than `line_bytes_max`. Returned once, as soon as that is certain; the rest up to the LF is
    /// discarded.
    TooLong,
}

/// Buffers at most one unfinished line of `line_bytes_max` bytes and a CR. A line that lies within one read is returned
/// as a slice of it, without a copy.
pub struct LineSplitter {
    line_bytes_max: usize,
    /// The beginning of a line whose LF has not arrived yet.
    begun: Vec<u8>,
    /// `begun` was returned as a line: the next call clears it.
    spent: bool,
    /// Inside a line that was too long.
    skipping: bool,
}

impl LineSplitter {
    pub fn new(line_bytes_max: usize) -> LineSplitter {
        LineSplitter { line_bytes_max, begun: Vec::new(), spent: false, skipping: false }
    }

    /// Returns the next line and removes what it used from the front of `input`. `None`: all input was used, read more.
    pub fn next<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Option<Line<'s>> {
        self.forget_spent();
        while !input.is_empty() {
            let Some(end) = memchr::memchr(b'\n', input) else {
                return self.keep(std::mem::take(input)).then_some(Line::TooLong);
            };
            let (piece, rest) = (&input[..end], &input[end + 1..]);
            *input = rest;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.begun.is_empty() {
                match self.judge(piece) {
                    Judged::Blank => continue,
                    Judged::TooLong => return Some(Line::TooLong),
                    Judged::Line(bytes) => return Some(Line::Whole(&piece[..bytes])),
                }
            }
            if self.keep(piece) {
                self.skipping = false;
                return Some(Line::TooLong);
            }
            match self.judge(&self.begun) {
                Judged::Blank => self.begun.clear(),
                Judged::TooLong => {
                    self.begun.clear();
                    return Some(Line::TooLong);
                }
                Judged::Line(bytes) => {
                    self.spent = true;
                    return Some(Line::Whole(&self.begun[..bytes]));
                }
            }
        }
        None
    }

    /// Called when the stream has ended: returns its last line, if that had no LF.
    pub fn finish(&mut self) -> Option<Line<'_>> {
        self.forget_spent();
        self.skipping = false;
        self.spent = true;
        match self.judge(&self.begun) {
            Judged::Blank => None,
            Judged::TooLong => Some(Line::TooLong),
            Judged::Line(bytes) => Some(Line::Whole(&self.begun[..bytes])),
        }
    }

    fn forget_spent(&mut self) {
        if std::mem::take(&mut self.spent) {
            self.begun.clear();
        }
    }

    /// Adds to the unfinished line; returns true if the line has just become too long. The line may be one byte longer
    /// than the bound as long as its last byte is a CR, which does not count if the LF follows.
    fn keep(&mut self, piece: &[u8]) -> bool {
        if self.skipping {
            return false;
        }
        let bytes = self.begun.len() + piece.len();
        let cr_last = piece.last().or(self.begun.last()) == Some(&b'\r');
        if bytes > self.line_bytes_max + usize::from(cr_last) {
            self.begun.clear();
            self.skipping = true;
            return true;
        }
        self.begun.extend_from_slice(piece);
        false
    }

    fn judge(&self, line: &[u8]) -> Judged {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line {
            _ if line.len() > self.line_bytes_max => Judged::TooLong,
            _ if line.iter().all(u8::is_ascii_whitespace) => Judged::Blank,
            _ => Judged::Line(line.len()),
        }
    }
}

enum Judged {
    Blank,
    TooLong,
    /// A line of this many bytes from the front.
    Line(usize),
}

impl fmt::Debug for LineSplitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineSplitter")
            .field("line_bytes_max", &self.line_bytes_max)
            .field("begun", &self.begun.len())
            .field("skipping", &self.skipping)
            .finish_non_exhaustive()
    }
}
