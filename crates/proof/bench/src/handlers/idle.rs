//! Processes that have nothing to do: how often they wake up and how much of a core they take, as `/proc` counts it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::processes::Worker;
use super::stage::{HandlersStage, url_of};
use crate::bus::server::BenchServer;
use crate::error::BenchError;

/// From the start of a process to the measurement: pauses between polls grow until then.
const CALM: Duration = Duration::from_secs(12);
/// A clock tick of `/proc/<pid>/stat`, as Linux reports it on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) fn run(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    let time = Duration::from_secs_f64(stage.options.seconds.max(1.0));
    stage.probe.slice()?;
    let server = BenchServer::start(&stage.options.program, stage.folder)?;
    measure(stage, &[("server alone", server.pid())], time)?;
    let mut worker = start_session(stage)?;
    measure(
        stage,
        &[("server, with a session", server.pid()), ("session, with a server", worker.pid())],
        time,
    )?;
    server.stop()?;
    worker.end();
    let mut worker = start_session(stage)?;
    measure(stage, &[("session alone", worker.pid())], time)?;
    worker.end();
    Ok(())
}

/// Starts a process that runs a session, until it is killed.
fn start_session(stage: &HandlersStage<'_>) -> Result<Worker, BenchError> {
    let store = url_of(&stage.folder.join("bench.db"))?;
    let mut worker = Worker::start(stage.options, &store, stage.folder)?;
    worker.answer(stage.options)?;
    worker.send_line("idle 0")?;
    worker.answer(stage.options)?;
    Ok(worker)
}

fn measure(stage: &mut HandlersStage<'_>, of: &[(&str, u32)], time: Duration) -> Result<(), BenchError> {
    pause(stage, CALM)?;
    let before = of.iter().map(|(_, pid)| Usage::of(*pid)).collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    pause(stage, time)?;
    let seconds = begun.elapsed().as_secs_f64();
    for ((name, pid), before) in of.iter().zip(before) {
        let after = Usage::of(*pid)?;
        let wakes = after.wake_ups.saturating_sub(before.wake_ups) as f64 / seconds;
        let core = after.ticks.saturating_sub(before.ticks) as f64 / TICKS_PER_SECOND / seconds;
        stage.out.add("idle", &format!("{name}, wake-ups"), "/s", wakes);
        stage.out.add("idle", &format!("{name}, of a core"), "%", core * 100.0);
    }
    Ok(())
}

fn pause(stage: &HandlersStage<'_>, time: Duration) -> Result<(), BenchError> {
    const LOOK: Duration = Duration::from_millis(200);
    let end = Instant::now() + time;
    while Instant::now() < end {
        stage.options.go_on()?;
        thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// The processor time and wake-ups of a process so far.
struct Usage {
    /// Voluntary context switches of all its threads: each ends with the thread being woken.
    wake_ups: u64,
    ticks: u64,
}

impl Usage {
    fn of(pid: u32) -> Result<Usage, BenchError> {
        let folder = format!("/proc/{pid}");
        let mut wake_ups = 0;
        let tasks = fs::read_dir(Path::new(&folder).join("task")).map_err(unreadable)?;
        for task in tasks {
            let status = fs::read_to_string(task.map_err(unreadable)?.path().join("status"));
            // A thread that has just ended counts no more.
            let status = status.unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            wake_ups += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        let stat = fs::read_to_string(Path::new(&folder).join("stat")).map_err(unreadable)?;
        // The name, in parentheses, may hold anything. Behind it the 12th and 13th fields are user and system time.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Usage { wake_ups, ticks })
    }
}

fn unreadable(source: std::io::Error) -> BenchError {
    BenchError::io("reading what an idle process uses (Linux only)", source)
}
