//! The last lines of the log, for `GET /log`: an operator who looks at the server over HTTP need not have a shell on its
//! machine.

use std::collections::{BTreeMap, VecDeque};

use millrace_model::Timestamp;
use parking_lot::Mutex;

/// Lines that are kept, and their bytes.
const LINES_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;
/// Bytes that are kept of one line: of its message and fields together.
const LINE_BYTES_MAX: usize = 4096;

/// The weight of a line. Finer lines are not kept: one request can write hundreds of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Info,
    Warn,
    Error,
}

impl LogLevel {
    pub(crate) const ALL: [LogLevel; 3] = [LogLevel::Info, LogLevel::Warn, LogLevel::Error];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }
}

#[derive(Clone, Debug)]
pub struct LogLine {
    pub ts: Timestamp,
    pub level: LogLevel,
    pub target: String,
    pub message: String,
    pub fields: BTreeMap<String, String>,
}

/// Bounded in lines and bytes: the oldest lines go first.
#[derive(Debug, Default)]
pub struct LogRing(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<KeptLine>,
    bytes: usize,
    forgotten: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct KeptLine {
    pub(crate) line: LogLine,
    pub(crate) is_cut: bool,
    bytes: usize,
}

impl LogRing {
    pub fn put(&self, line: LogLine) {
        let kept = cut(line);
        let mut ring = self.0.lock();
        ring.bytes += kept.bytes;
        ring.lines.push_back(kept);
        while ring.lines.len() > LINES_MAX || ring.bytes > BYTES_MAX {
            let Some(oldest) = ring.lines.pop_front() else { break };
            ring.bytes -= oldest.bytes;
            ring.forgotten += 1;
        }
    }

    /// At most `max` lines of at least this level, the newest first; and how many lines are kept no longer.
    pub(crate) fn newest(&self, level: LogLevel, max: usize) -> (Vec<KeptLine>, u64) {
        let ring = self.0.lock();
        let wanted = ring.lines.iter().rev().filter(|kept| kept.line.level >= level);
        (wanted.take(max).cloned().collect(), ring.forgotten)
    }
}

/// Leaves out what is beyond the bound of one line: the ends of the message and of the fields.
fn cut(mut line: LogLine) -> KeptLine {
    let mut left = LINE_BYTES_MAX;
    let mut is_cut = false;
    let mut keep = |text: &mut String| {
        if text.len() > left {
            let end = (0..=left).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            is_cut = true;
        }
        left -= text.len();
    };
    keep(&mut line.target);
    keep(&mut line.message);
    line.fields = std::mem::take(&mut line.fields)
        .into_iter()
        .map(|(mut name, mut value)| {
            keep(&mut name);
            keep(&mut value);
            (name, value)
        })
        .filter(|(name, _)| !name.is_empty())
        .collect();
    KeptLine { line, is_cut, bytes: LINE_BYTES_MAX - left }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(level: LogLevel, message: &str) -> LogLine {
        let fields = BTreeMap::from([("who".to_owned(), "x".repeat(LINE_BYTES_MAX))]);
        LogLine { ts: Timestamp(1), level, target: "t".to_owned(), message: message.to_owned(), fields }
    }

    #[test]
    fn the_oldest_lines_go_first_and_are_counted() {
        let ring = LogRing::default();
        for at in 0..LINES_MAX + 5 {
            ring.put(LogLine { fields: BTreeMap::new(), ..line(LogLevel::Info, &at.to_string()) });
        }
        let (lines, forgotten) = ring.newest(LogLevel::Info, usize::MAX);
        assert_eq!((lines.len(), forgotten), (LINES_MAX, 5));
        assert_eq!((lines[0].line.message.as_str(), lines[999].line.message.as_str()), ("1004", "5"));
    }

    #[test]
    fn a_line_and_all_lines_have_a_bound_in_bytes() {
        let ring = LogRing::default();
        for _ in 0..LINES_MAX {
            ring.put(line(LogLevel::Warn, "ä".repeat(LINE_BYTES_MAX).as_str()));
            ring.put(line(LogLevel::Error, "short"));
        }
        let (lines, _) = ring.newest(LogLevel::Warn, usize::MAX);
        assert!(lines.iter().all(|kept| kept.is_cut && kept.bytes <= LINE_BYTES_MAX));
        assert!(lines.iter().map(|kept| kept.bytes).sum::<usize>() <= BYTES_MAX);
        assert!(lines.len() >= BYTES_MAX / LINE_BYTES_MAX, "{}", lines.len());
        let (errors, _) = ring.newest(LogLevel::Error, 3);
        assert_eq!(errors.len(), 3);
        assert!(errors.iter().all(|kept| kept.line.message == "short"));
    }
}
