//! The output of `millrace run`: results on stdout, the trace on stderr, the recording in its file. A separate thread
//! writes them, so that only this thread waits for slow readers.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use millrace_wasm::record::Recorder;
use millrace_wasm::replay::ReplayEnd;
use millrace_wasm::trace::{TraceEvent, TraceKind};
use millrace_wasm::{TrapReport, Value};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;

use crate::commands::run::events::{EventReceiver, ReportMessage};
use crate::failure::Failure;

pub(super) struct RunReport {
    pub(super) trace: bool,
    pub(super) recorder: Option<Recorder<BufWriter<File>>>,
    /// Whether the program's last output on stdout did not end with a newline.
    pub(super) line_is_open: Arc<AtomicBool>,
    /// How many runs have not ended; `None` for a replay, which sends a message when it is over.
    pub(super) runs_left: Option<usize>,
    pub(super) results: Results,
}

/// The results, which are printed in the order of the runs.
#[derive(Default)]
pub(super) struct Results {
    /// Results that wait for the results of earlier runs, by the number of the run.
    waiting: BTreeMap<u64, ResultLine>,
    printed: u64,
    /// Whether a run has failed or was cancelled.
    has_failed: bool,
}

impl RunReport {
    /// Starts the thread, which writes all messages of the queue until the runs or the replay have ended.
    pub(super) fn start(
        mut self,
        events: EventReceiver,
    ) -> Result<oneshot::Receiver<Result<(), Failure>>, Failure> {
        let (done, ended) = oneshot::channel();
        let write = move || {
            let written = self.write_all(&events);
            // Fails if the command was interrupted and no longer waits, which is fine.
            let _ = done.send(written);
        };
        let started = thread::Builder::new().name("millrace-report".into()).spawn(write);
        started.map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(ended)
    }

    fn write_all(&mut self, events: &EventReceiver) -> Result<(), Failure> {
        while self.runs_left != Some(0) {
            let told = events.receive();
            if told.is_empty() {
                return Err(Failure::Failed(
                    "the host has stopped: this is a defect, please report it".into(),
                ));
            }
            if let Some(end) = self.write(told)? {
                return self.replay_result(end);
            }
        }
        self.results.failure()
    }

    /// Writes these events. The recording is written first: it must contain every event that a user has seen, even
    /// after a crash. Returns how the replay ended, if it did.
    fn write(&mut self, told: VecDeque<ReportMessage>) -> Result<Option<ReplayEnd>, Failure> {
        if let Some(recorder) = &mut self.recorder {
            let unwritten =
                |error: std::io::Error| Failure::Failed(format!("cannot write the recording: {error}"));
            for told in &told {
                if let ReportMessage::Event { event, .. } = told {
                    recorder.add(event).map_err(unwritten)?;
                }
            }
            recorder.flush().map_err(unwritten)?;
        }
        let mut trace = String::new();
        let mut ended = None;
        for told in told {
            let (event, trap) = match told {
                ReportMessage::Event { event, trap } => (event, trap),
                ReportMessage::ReplayEnded(end) => {
                    ended = Some(end);
                    continue;
                }
            };
            if self.trace
                && let Some(line) = event.trace_line()
            {
                trace.push_str(&line.to_string());
                trace.push('\n');
            }
            if let Some(result) = ResultLine::of(event, trap) {
                print_trace(&mut trace);
                self.runs_left = self.runs_left.map(|runs| runs.saturating_sub(1));
                self.results.print(result, &self.line_is_open)?;
            }
        }
        print_trace(&mut trace);
        Ok(ended)
    }

    fn replay_result(&self, end: ReplayEnd) -> Result<(), Failure> {
        match end {
            ReplayEnd::Whole => self.results.failure(),
            ReplayEnd::CutOff { line, runs } => Err(Failure::Failed(format!(
                "the recording ends at line {line}, before {} ended: the replay agrees with it so far",
                runs.join(", ")
            ))),
            ReplayEnd::Diverged(divergence) => Err(Failure::Failed(divergence.to_string())),
        }
    }
}

/// Prints and empties the text.
fn print_trace(trace: &mut String) {
    if trace.is_empty() {
        // Without a trace, results must not wait for stderr, which the program's own output may have blocked.
        return;
    }
    // A failed write is ignored, because the results tell the outcome too.
    let _ = std::io::stderr().write_all(trace.as_bytes());
    trace.clear();
}

impl Results {
    /// Prints the results in the order of the runs, each as soon as all earlier ones are printed.
    fn print(&mut self, result: ResultLine, line_is_open: &AtomicBool) -> Result<(), Failure> {
        self.has_failed |= result.kind != "value";
        let number = result.run.strip_prefix("run_").and_then(|number| number.parse().ok()).unwrap_or(0);
        self.waiting.insert(number, result);
        while let Some(result) = self.waiting.remove(&(self.printed + 1)) {
            self.printed += 1;
            let text = serde_json::to_string(&result).map_err(|error| Failure::Failed(error.to_string()))?;
            let before = if line_is_open.swap(false, Ordering::SeqCst) { "\n" } else { "" };
            // The lock is released after each line, because modules write to stdout too.
            let mut out = std::io::stdout().lock();
            let written = writeln!(out, "{before}{text}").and_then(|()| out.flush());
            written.map_err(|error| Failure::output(&error))?;
        }
        Ok(())
    }

    fn failure(&self) -> Result<(), Failure> {
        if self.has_failed { Err(Failure::Reported) } else { Ok(()) }
    }
}

/// A result in the documented format, with its fields in this order.
#[derive(Serialize)]
struct ResultLine {
    run: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Json>,
}

impl ResultLine {
    /// Returns the result of the run that this event ends, or `None` if it ends none.
    fn of(event: TraceEvent, trap: Option<TrapReport>) -> Option<ResultLine> {
        let TraceKind::Outcome { kind, value: told, .. } = event.what else { return None };
        let (mut value, mut error, mut reason) = (None, None, None);
        match kind.as_str() {
            "value" => value = Some(told.to_json()),
            "failed" => {
                let message = told.as_str().map_or_else(|| told.to_string(), str::to_owned);
                let mut json = json!({ "message": message });
                if let Some(trap) = trap {
                    json["trap"] = trap.to_json();
                }
                error = Some(json);
            }
            _ => reason = Some(Value::to_json(&told)),
        }
        Some(ResultLine { run: event.run, kind, value, error, reason })
    }
}
