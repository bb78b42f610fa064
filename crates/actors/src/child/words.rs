//! What a child writes to stderr: into the log, line by line, and the last line kept for whoever asks why it ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrace_wire::os::{Line, LineSplitter};
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

/// A longer line is dropped, and said to be.
const LINE_BYTES_MAX: usize = 8192;
/// For the rest of what a child that has ended had to say.
const LAST_WORDS_MS: u64 = 500;

#[derive(Debug)]
pub(super) struct Words {
    last: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

impl Words {
    pub(super) fn listen(name: &str, stderr: ChildStderr) -> Words {
        let last = Arc::new(Mutex::new(String::new()));
        let task = tokio::spawn(log(name.to_owned(), stderr, last.clone()));
        Words { last, task }
    }

    /// Once it has ended.
    pub(super) async fn last(&mut self) -> String {
        // Whoever inherited its stderr may keep it open: then what came so far is all.
        let _ = tokio::time::timeout(Duration::from_millis(LAST_WORDS_MS), &mut self.task).await;
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn log(name: String, mut stderr: ChildStderr, last: Arc<Mutex<String>>) {
    let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
    let mut buffer = vec![0; 4096];
    let note = |line: Line<'_>| match line {
        Line::Whole(line) => {
            let line = String::from_utf8_lossy(line).into_owned();
            tracing::info!(capability = %name, "{line}");
            *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
        }
        Line::TooLong => tracing::info!(capability = %name, "(a line of more than {LINE_BYTES_MAX} bytes)"),
    };
    // An error reads like the end: there is nothing more to be had.
    while let Ok(bytes @ 1..) = stderr.read(&mut buffer).await {
        let mut input = &buffer[..bytes];
        while let Some(line) = splitter.next(&mut input) {
            note(line);
        }
    }
    if let Some(line) = splitter.finish() {
        note(line);
    }
}
