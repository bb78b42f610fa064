//! The stderr of a child: logged line by line. The last line is kept and reported when the child has ended.

use std::sync::Arc;
use std::time::Duration;

use millrace_wire::os::{Line, LineSplitter};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// A longer line is dropped, and the log says so.
const LINE_BYTES_MAX: usize = 8192;
/// The interval in which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Time to read the rest of stderr after the child has ended.
const STDERR_REST_MS: u64 = 500;

#[derive(Debug)]
pub(crate) struct StderrLog {
    last: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

impl StderrLog {
    /// Logs at most `lines_max` lines a second and counts the rest.
    pub(crate) fn listen(name: &str, lines_max: usize, stderr: ChildStderr) -> StderrLog {
        let last = Arc::new(Mutex::new(String::new()));
        let task = tokio::spawn(log(name.to_owned(), lines_max, stderr, last.clone()));
        StderrLog { last, task }
    }

    /// The last line, once the child has ended.
    pub(crate) async fn last(&mut self) -> String {
        // A process that inherited the child's stderr may keep it open: after the timeout the last line so far is
        // returned.
        let _ = tokio::time::timeout(Duration::from_millis(STDERR_REST_MS), &mut self.task).await;
        self.last.lock().clone()
    }
}

/// Limits how much is logged: a child in a loop must not fill the disk with its messages.
struct Meter {
    lines_max: usize,
    until: Instant,
    lines: usize,
    left_out: u64,
}

impl Meter {
    fn new(lines_max: usize) -> Meter {
        Meter { lines_max, until: Instant::now() + WINDOW, lines: 0, left_out: 0 }
    }

    /// Whether one more line may be logged.
    fn takes(&mut self, name: &str) -> bool {
        if Instant::now() >= self.until {
            self.turn(name);
        }
        let takes = self.lines < self.lines_max;
        match takes {
            true => self.lines += 1,
            false => self.left_out += 1,
        }
        takes
    }

    /// Starts the next window.
    fn turn(&mut self, name: &str) {
        let Meter { lines_max, left_out, .. } = *self;
        if left_out > 0 {
            tracing::warn!(
                capability = %name,
                left_out,
                "lines of its stderr were left out: it said more than {lines_max} in {} ms (capability-log-lines-max)",
                WINDOW.as_millis()
            );
        }
        *self = Meter::new(lines_max);
    }
}

async fn log(name: String, lines_max: usize, mut stderr: ChildStderr, last: Arc<Mutex<String>>) {
    let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
    let mut buffer = vec![0; 4096];
    let mut meter = Meter::new(lines_max);
    let note = |line: Line<'_>, meter: &mut Meter| {
        let logged = meter.takes(&name);
        match line {
            Line::Whole(line) => {
                let line = String::from_utf8_lossy(line).into_owned();
                if logged {
                    tracing::info!(capability = %name, "{line}");
                }
                *last.lock() = line;
            }
            Line::TooLong if logged => {
                tracing::info!(capability = %name, "(a line of more than {LINE_BYTES_MAX} bytes)");
            }
            Line::TooLong => {}
        }
    };
    loop {
        let read = tokio::select! {
            read = stderr.read(&mut buffer) => read,
            // Reports the lines left out even if the child writes nothing more.
            () = sleep_until(meter.until), if meter.left_out > 0 => {
                meter.turn(&name);
                continue;
            }
        };
        // An error is treated like the end: nothing more can be read.
        let Ok(bytes @ 1..) = read else { break };
        let mut input = &buffer[..bytes];
        while let Some(line) = splitter.next(&mut input) {
            note(line, &mut meter);
        }
    }
    if let Some(line) = splitter.finish() {
        note(line, &mut meter);
    }
    meter.turn(&name);
}
