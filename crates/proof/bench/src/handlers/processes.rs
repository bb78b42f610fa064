//! Eight processes on one file, each with a session of its own: first all publish one event after the other, then all
//! handle the backlog. Measures the rate and how evenly the processes share the work.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::load::publish;
use super::stage::{HandlersStage, url_of};
use crate::BenchOptions;
use crate::error::BenchError;

const PROCESSES: usize = 8;
const LOOK: Duration = Duration::from_millis(20);
/// Backlog for each second of a slice: it does not run out even on a fast disk.
const JOBS_PER_SECOND: f64 = 40_000.0;

pub(crate) fn run(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    let session = stage.open()?;
    let options = stage.options;
    let (store, folder) = (url_of(&stage.folder.join("bench.db"))?, stage.folder);
    let mut workers =
        (0..PROCESSES).map(|_| Worker::start(options, &store, folder)).collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        worker.answer(options)?;
    }
    for (verb, name) in [("publish", "publishing"), ("handle", "handling")] {
        let mut counts = [0; PROCESSES];
        let busy = stage.slices(|time| {
            if verb == "handle" {
                let jobs = time.as_secs_f64() * JOBS_PER_SECOND;
                publish(&session, (jobs as u64).max(PROCESSES as u64), options.payload_bytes)?;
            }
            let begun = Instant::now();
            for worker in &mut workers {
                worker.send_line(&format!("{verb} {}", time.as_secs_f64()))?;
            }
            for (worker, count) in workers.iter_mut().zip(&mut counts) {
                let answer = worker.answer(options)?;
                *count += answer.parse::<u64>().map_err(|_| BenchError::Unexpected(answer))?;
            }
            Ok(begun.elapsed())
        })?;
        let total: u64 = counts.iter().sum();
        let (least, most) = (counts.iter().min().copied(), counts.iter().max().copied());
        let share = least.unwrap_or(0) as f64 / most.unwrap_or(0).max(1) as f64;
        let rate = total as f64 / busy.as_secs_f64();
        stage.out.add("processes", &format!("8 {name}, rate"), "events/s", rate);
        stage.out.add("processes", &format!("slowest / fastest, {name}"), "ratio", share);
    }
    Ok(())
}

/// This program, started again as a worker. Killed when dropped.
pub(crate) struct Worker {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Worker {
    /// `folder` is where the copy of a shared store is kept.
    pub(crate) fn start(options: &BenchOptions, store: &str, folder: &Path) -> Result<Worker, BenchError> {
        let wrong = |source| BenchError::io("starting a process of the bench", source);
        let mut child = Command::new(&options.program)
            .args(["bench", "handlers-worker", "--payload-bytes", &options.payload_bytes.to_string()])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(wrong)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(BenchError::Unexpected("a process without pipes".into()));
        };
        let (said, lines) = channel();
        // Ends with the process, or when nobody receives its lines any more.
        std::thread::spawn(move || {
            let read = BufReader::new(stdout).lines().map_while(Result::ok);
            for line in read {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        let mut worker = Worker { child, stdin, lines };
        worker.send_line(store)?;
        Ok(worker)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process and waits for its end.
    pub(crate) fn end(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn send_line(&mut self, line: &str) -> Result<(), BenchError> {
        let wrong = |source| BenchError::io("telling a process of the bench", source);
        writeln!(self.stdin, "{line}").map_err(wrong)
    }

    pub(crate) fn answer(&mut self, options: &BenchOptions) -> Result<String, BenchError> {
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => options.go_on()?,
                Err(RecvTimeoutError::Disconnected) => {
                    options.go_on()?;
                    return Err(BenchError::Unexpected(
                        "a process of the bench ended before its load".into(),
                    ));
                }
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}
