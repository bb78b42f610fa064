//! Does a server stay healthy over a long time? Fifty consumers in ten groups, half of its peak load, and common
//! trouble: consumers that disconnect, refuse events, or are slow. At the end every confirmed event must have been
//! handled in every group, nothing may wait, the memory must be flat and the store intact.
//!
//! Five groups acknowledge cumulatively and are slow at times. The other five acknowledge one by one, refuse events,
//! and disconnect in the middle of their work. (A cumulative ack also completes events that the connection was sent and
//! has not read yet. A consumer that then disconnects has lost them by its own ack, so nothing could be proved about
//! such a group.)

mod check;
mod consumer;
mod ledger;
mod memory;
mod publisher;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::bus::server::BenchServer;
use crate::error::BenchError;
use crate::{go_on, scratch};

pub use check::SoakCheck;
use ledger::Ledger;
use memory::Memory;

pub(crate) const TOPICS: usize = 4;
pub(crate) const PARTITIONS: usize = 2;
pub(crate) const GROUPS: usize = 10;
const MEMBERS: usize = 5;
/// Old events are deleted, so that a long run fits on the disk. A group that falls this far behind would skip events,
/// which fails the run.
const RETENTION_MS: u64 = 180_000;
/// The load after the peak was measured, as a share of the peak.
const SHARE_OF_PEAK: f64 = 0.5;
const LINE_EVERY: Duration = Duration::from_secs(30);
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Waiting for the groups to catch up ends after this long without progress: twice the ack timeout.
const STALLED_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// Where the temporary folder is made. `None` = the system's place for such folders.
    pub folder: Option<PathBuf>,
    pub minutes: f64,
    /// Seed of the consumers' random decisions; the timing of a run is different every time.
    pub seed: u64,
    pub payload_bytes: usize,
    /// The program whose `serve` and `doctor` are used.
    pub program: PathBuf,
    /// Set by another thread to end a run early.
    pub stop: Arc<AtomicBool>,
}

#[derive(Debug, Serialize)]
pub struct SoakReport {
    pub seed: u64,
    pub minutes: f64,
    /// Events per second that went through all groups without trouble.
    pub peak_per_second: f64,
    pub published: u64,
    pub published_per_second: f64,
    pub handled: u64,
    pub nacks: u64,
    pub disconnects: u64,
    pub slow_spells: u64,
    pub redelivered: u64,
    pub dead_letters: u64,
    pub late_acks: u64,
    pub lag_max: u64,
    pub memory_mb_first: f64,
    pub memory_mb_last: f64,
    pub memory_mb_max: f64,
    pub memory_mb_per_minute: f64,
    pub doctor: String,
    pub checks: Vec<SoakCheck>,
}

impl SoakReport {
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

/// State that all threads share.
pub(crate) struct SoakState {
    url: String,
    payload_bytes: usize,
    ledger: Ledger,
    /// Whether consumers make trouble.
    trouble: AtomicBool,
    /// Consumers go on until this is set.
    done: AtomicBool,
    /// A part has failed: the others end early.
    halt: AtomicBool,
    counts: SoakCounts,
}

impl SoakState {
    fn go_on(&self, stop: &AtomicBool) -> Result<(), BenchError> {
        go_on(stop)?;
        match self.halt.load(Ordering::Relaxed) {
            true => Err(BenchError::Halted),
            false => Ok(()),
        }
    }

    /// Returns the outcome of one part, and halts the others if it is an error.
    fn part<T>(&self, outcome: Result<T, BenchError>) -> Result<T, BenchError> {
        if outcome.is_err() {
            self.halt.store(true, Ordering::Relaxed);
        }
        outcome
    }
}

#[derive(Default)]
pub(crate) struct SoakCounts {
    published: AtomicU64,
    handled: AtomicU64,
    nacks: AtomicU64,
    disconnects: AtomicU64,
    slow_spells: AtomicU64,
    late_acks: AtomicU64,
}

pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

fn value(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

pub(crate) fn topic(number: usize) -> String {
    format!("soak.{number}")
}

pub(crate) fn group(number: usize) -> String {
    format!("group-{number}")
}

pub fn bench_soak(options: &SoakOptions, line: &mut dyn FnMut(&str)) -> Result<SoakReport, BenchError> {
    let folder = scratch(options.folder.as_deref())?;
    let server = BenchServer::start(&options.program, folder.path())?;
    for number in 0..TOPICS {
        let (topic, partitions) = (topic(number), PARTITIONS);
        server.post(
            "/topics",
            &format!("{{\"topic\":\"{topic}\",\"partitions\":{partitions},\"retentionMs\":{RETENTION_MS}}}"),
        )?;
    }
    let shared = SoakState {
        url: server.ws().to_owned(),
        payload_bytes: options.payload_bytes,
        ledger: Ledger::new(),
        trouble: AtomicBool::new(false),
        done: AtomicBool::new(false),
        halt: AtomicBool::new(false),
        counts: SoakCounts::default(),
    };
    let ran = thread::scope(|scope| {
        let consumers: Vec<_> = (0..GROUPS * MEMBERS)
            .map(|number| {
                let shared = &shared;
                scope.spawn(move || {
                    shared.part(consumer::run(shared, number / MEMBERS, options.seed, number as u64))
                })
            })
            .collect();
        let ran = phases(options, &server, &shared, line);
        // Set on every path: otherwise the consumers would go on and the scope would not end.
        shared.done.store(true, Ordering::Relaxed);
        let mut ended = Ok(());
        for consumer in consumers {
            let one = consumer.join().unwrap_or(Err(BenchError::Panicked));
            ended = ended.and(one);
        }
        match (ran, ended) {
            (Ok(ran), Ok(())) => Ok(ran),
            (Err(BenchError::Halted) | Ok(_), Err(error)) => Err(error),
            // The error of the phases says more than that of a consumer that it caused.
            (Err(error), _) => Err(error),
        }
    })?;
    line("stopping the server and examining its store");
    check::conclude(options, server, &shared, &ran)
}

/// The results of the phases, for the final checks.
pub(crate) struct Ran {
    peak_per_second: f64,
    paced: Duration,
    published_paced: u64,
    lag_max: u64,
    memory: Memory,
    drained: bool,
    redelivered: u64,
    dead_letters: u64,
    skipped: u64,
    /// Lag and events in flight that the server still reports, summed over groups.
    left: (u64, u64),
    stranded: ledger::Stranded,
}

fn phases(
    options: &SoakOptions,
    server: &BenchServer,
    shared: &SoakState,
    line: &mut dyn FnMut(&str),
) -> Result<Ran, BenchError> {
    let seconds = options.minutes * 60.0;
    consumer::wait_for_all(server, shared, GROUPS * MEMBERS * TOPICS, &options.stop)?;
    let begun = Instant::now();
    let probing = Duration::from_secs_f64((seconds / 40.0).clamp(0.5, 15.0));
    publisher::run(shared, None, probing, &options.stop)?;
    let drained = drain(server, shared, options)?;
    let peak_per_second = value(&shared.counts.published) as f64 / begun.elapsed().as_secs_f64();
    line(&format!("peak of this topology: {peak_per_second:.0} events/s, each to {GROUPS} groups"));
    if !drained {
        return Err(BenchError::Unexpected(
            "the groups did not catch up while nothing went wrong".to_owned(),
        ));
    }

    shared.trouble.store(true, Ordering::Relaxed);
    let (before, paced) = (value(&shared.counts.published), Instant::now());
    let mut memory = Memory::default();
    let mut lag_max = 0;
    let whole = Duration::from_secs_f64(seconds);
    let rate = peak_per_second * SHARE_OF_PEAK;
    thread::scope(|scope| {
        let publishers = scope.spawn(|| publisher::run(shared, Some(rate), whole, &options.stop));
        let watched =
            watch(server, shared, whole, &mut memory, &mut lag_max, line, || publishers.is_finished());
        let watched = shared.part(watched);
        match (publishers.join().unwrap_or(Err(BenchError::Panicked)), watched) {
            (Err(BenchError::Halted), Err(error)) => Err(error),
            (published, watched) => published.and(watched),
        }
    })?;
    let paced = paced.elapsed();
    let published_paced = value(&shared.counts.published) - before;

    shared.trouble.store(false, Ordering::Relaxed);
    line("publishing has stopped; the groups catch up");
    let drained = drain(server, shared, options)?;
    let stats = server.document("/stats")?;
    let number = |name: &str| stats[name].as_u64().unwrap_or(0);
    shared.ledger.read_dead_letters(server)?;
    Ok(Ran {
        peak_per_second,
        paced,
        published_paced,
        lag_max,
        memory,
        drained,
        redelivered: number("redeliveries"),
        dead_letters: number("deadLetters"),
        skipped: number("skipped"),
        left: ledger::left(server)?,
        stranded: shared.ledger.stranded(),
    })
}

/// Samples memory and prints a line every 30 s, until the publishers are done.
fn watch(
    server: &BenchServer,
    shared: &SoakState,
    whole: Duration,
    memory: &mut Memory,
    lag_max: &mut u64,
    line: &mut dyn FnMut(&str),
    is_over: impl Fn() -> bool,
) -> Result<(), BenchError> {
    let begun = Instant::now();
    // A short run gets a few lines, too.
    let every = LINE_EVERY.min(whole / 4);
    let (mut next, mut last) = (every, (Duration::ZERO, value(&shared.counts.published)));
    while !is_over() {
        thread::sleep(SAMPLE_EVERY.min(every));
        if let Some(megabytes) = server.memory_mb() {
            memory.push(begun.elapsed(), megabytes);
        }
        if begun.elapsed() < next {
            continue;
        }
        next += every;
        let stats = server.document("/stats")?;
        let number = |name: &str| stats[name].as_u64().unwrap_or(0);
        *lag_max = (*lag_max).max(number("lag"));
        let now = (begun.elapsed(), value(&shared.counts.published));
        let rate = (now.1 - last.1) as f64 / (now.0 - last.0).as_secs_f64();
        last = now;
        line(&format!(
            "{:>5.0} s  {rate:>7.0}/s  lag {:>6}  in flight {:>5}  memory {:>6.1} MB  redelivered {:>7}  dead letters {:>5}  \
             disconnects {:>5}",
            now.0.as_secs_f64(),
            number("lag"),
            number("inflight"),
            memory.last(),
            number("redeliveries"),
            number("deadLetters"),
            value(&shared.counts.disconnects),
        ));
    }
    Ok(())
}

/// Waits until no group has anything left. Returns false if there is no more progress.
fn drain(server: &BenchServer, shared: &SoakState, options: &SoakOptions) -> Result<bool, BenchError> {
    let (mut least, mut moved) = (u64::MAX, Instant::now());
    loop {
        shared.go_on(&options.stop)?;
        let (lag, inflight) = ledger::left(server)?;
        if lag + inflight == 0 {
            return Ok(true);
        }
        if lag + inflight < least {
            (least, moved) = (lag + inflight, Instant::now());
        }
        if moved.elapsed() > STALLED_AFTER {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(50));
    }
}
