//! What `millrace run` tells: results on stdout, the trace on stderr, the recording in its file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_wasm::record::Recorder;
use millrace_wasm::trace::TraceKind;
use millrace_wasm::{EffectOutcome, Value};
use serde::Serialize;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::commands::run::Heard;
use crate::commands::run::plan::{Answers, Plan};
use crate::failure::Failure;

pub(super) struct Report {
    trace: bool,
    recorder: Option<Recorder<BufWriter<File>>>,
    /// The arguments of the runs, by the order of their start.
    args: Vec<Vec<Value>>,
    started: usize,
    /// Results that wait for those of runs before them, by the number of the run.
    results: BTreeMap<u64, ResultLine>,
    printed: u64,
    all_are_values: bool,
    line_is_open: Arc<AtomicBool>,
}

impl Report {
    pub(super) fn new(plan: &Plan, line_is_open: Arc<AtomicBool>) -> Result<Report, Failure> {
        let sha256: String = Sha256::digest(&plan.module).iter().map(|byte| format!("{byte:02x}")).collect();
        if let Answers::Replay(recording) = &plan.answers
            && recording.module_sha256 != sha256
        {
            tracing::warn!("the recording is of another module: it may differ from this one's replay");
        }
        let recorder = plan.record.as_ref().map(|path| {
            let failed =
                |error: std::io::Error| Failure::Usage(format!("cannot write {}: {error}", path.display()));
            let file = File::create(path).map_err(failed)?;
            Recorder::new(BufWriter::new(file), &sha256).map_err(failed)
        });
        Ok(Report {
            trace: plan.trace,
            recorder: recorder.transpose()?,
            args: plan.starts.iter().map(|(_, args)| args.clone()).collect(),
            started: 0,
            results: BTreeMap::new(),
            printed: 0,
            all_are_values: true,
            line_is_open,
        })
    }

    /// Hears what happens until this many runs have ended.
    pub(super) async fn hear_all(
        &mut self,
        heard: &mut mpsc::UnboundedReceiver<Heard>,
        mut runs: usize,
    ) -> Result<(), Failure> {
        while runs > 0 {
            let Some(next) = heard.recv().await else {
                return Err(Failure::Failed(
                    "the host has stopped: this is a defect, please report it".into(),
                ));
            };
            runs -= usize::from(next.outcome.is_some());
            self.hear(next)?;
        }
        Ok(())
    }

    fn hear(&mut self, heard: Heard) -> Result<(), Failure> {
        let Heard { mut event, outcome } = heard;
        if let TraceKind::Start { args, .. } = &mut event.what {
            *args = self.args.get(self.started).cloned().unwrap_or_default();
            self.started += 1;
        }
        if self.trace
            && let Some(line) = event.trace_line()
        {
            // The results tell it too, should nobody be able to read this.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.add(&event).map_err(|error| unwritten(&error))?;
        }
        match outcome {
            Some(outcome) => self.result(&event.run, &outcome),
            None => Ok(()),
        }
    }

    /// Prints the results in the order of the runs, each as soon as those before it are there.
    fn result(&mut self, run: &str, outcome: &EffectOutcome) -> Result<(), Failure> {
        self.all_are_values &= matches!(outcome, EffectOutcome::Value(_));
        let number = run.strip_prefix("run_").and_then(|number| number.parse().ok()).unwrap_or(0);
        self.results.insert(number, line(run, outcome));
        while let Some(result) = self.results.remove(&(self.printed + 1)) {
            self.printed += 1;
            let text = serde_json::to_string(&result).map_err(|error| Failure::Failed(error.to_string()))?;
            let before = if self.line_is_open.swap(false, Ordering::SeqCst) { "\n" } else { "" };
            // The lock is not kept: modules write to stdout, too.
            let mut out = std::io::stdout().lock();
            let written = writeln!(out, "{before}{text}").and_then(|()| out.flush());
            written.map_err(|error| Failure::output(&error))?;
        }
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<(), Failure> {
        if let Some(recorder) = &mut self.recorder {
            recorder.finish().map_err(|error| unwritten(&error))?;
        }
        if self.all_are_values { Ok(()) } else { Err(Failure::Reported) }
    }
}

fn unwritten(error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot write the recording: {error}"))
}

/// A result as the contract writes it, its fields in this order.
#[derive(Serialize)]
struct ResultLine {
    run: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Json>,
}

fn line(run: &str, outcome: &EffectOutcome) -> ResultLine {
    let (mut value, mut error, mut reason) = (None, None, None);
    match outcome {
        EffectOutcome::Value(result) => value = Some(result.to_json()),
        EffectOutcome::Failed(failure) => {
            let mut told = json!({ "message": failure.to_string() });
            if let Some(trap) = failure.trap() {
                told["trap"] = trap.to_json();
            }
            error = Some(told);
        }
        EffectOutcome::Cancelled { reason: given } => {
            reason = Some(given.as_ref().map_or(Json::Null, Value::to_json));
        }
    }
    ResultLine { run: run.to_owned(), kind: outcome.kind(), value, error, reason }
}
