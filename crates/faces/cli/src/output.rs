//! Writes data to stdout.

use std::io::{BufWriter, StdoutLock, Write, stdout};

use tokio::io::AsyncWriteExt;

use crate::failure::Failure;

/// The size of the buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// Collects lines and writes them when flushed.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { out: BufWriter::with_capacity(BUFFER_BYTES, stdout().lock()) }
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.write_all(b"\n"))
            .map_err(|e| Failure::output(&e))
    }

    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|error| Failure::Failed(error.to_string()))?;
        self.line(&text)
    }

    /// Writes the whole output of a command at once.
    pub(crate) fn document(&mut self, text: &str) -> Result<(), Failure> {
        self.line(text.trim_end())?;
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))
    }
}

/// Like [`Output`], for commands that listen for signals: when nobody reads stdout, only the printing task waits.
/// [`Output`] would block the thread, and the signals with it.
pub(crate) struct Printer {
    out: tokio::io::Stdout,
    lines: Vec<u8>,
}

impl Printer {
    pub(crate) fn new() -> Printer {
        Printer { out: tokio::io::stdout(), lines: Vec::new() }
    }

    pub(crate) async fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.lines.extend_from_slice(text.as_bytes());
        self.lines.push(b'\n');
        if self.lines.len() < BUFFER_BYTES { Ok(()) } else { self.flush().await }
    }

    pub(crate) async fn flush(&mut self) -> Result<(), Failure> {
        let lines = std::mem::take(&mut self.lines);
        let written = async {
            self.out.write_all(&lines).await?;
            self.out.flush().await
        };
        written.await.map_err(|error| Failure::output(&error))
    }
}

/// Aligns rows of cells in columns; the first row is the head.
pub(crate) fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
