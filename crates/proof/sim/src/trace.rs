//! The trace: every step as a line, folded into one hash. Two runs of a seed are the same if their hashes are.

use std::collections::VecDeque;

/// How many of the last steps are shown when an invariant is violated.
const TAIL_LINES_MAX: usize = 60;

#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: VecDeque<String>,
    print: bool,
}

impl Trace {
    pub(crate) fn new(print: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new(), print }
    }

    pub(crate) fn note(&mut self, world_ms: u64, line: &str) {
        let line = format!("{world_ms:>8} {line}");
        for byte in line.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if self.print {
            println!("{line}");
        }
        if self.lines.len() == TAIL_LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn tail(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}
