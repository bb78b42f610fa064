//! Compares Millrace with NATS JetStream, Redis Streams and a queue in PostgreSQL: the same loads, in turn, on the same
//! disk, with disk probes beside each figure and a count of the syncs. `cargo xtask peers` builds the programs and starts this one.
//!
//! No server is tuned. Every server runs with its defaults except for the subject of the comparison: when it syncs.

mod aims;
mod error;
mod install;
mod load_target;
mod loads;
mod millrace;
mod nats;
mod options;
mod plot;
mod postgres;
mod postgres_server;
mod redis_streams;
mod report;
mod rounds;
mod server;
mod system;
mod table;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::error::PeerError;
use crate::install::Programs;
use crate::loads::PAYLOAD_BYTES;
use crate::options::Options;
use crate::report::{PeersReport, Summary};
use crate::rounds::RoundsPlan;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(PeerError::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), PeerError> {
    let mut say = |text: &str| eprintln!("{text}");
    let programs = Programs::ensure(&options.millrace, &options.scratch, &mut say)?;
    let plan = RoundsPlan {
        programs: &programs,
        scratch: &options.scratch,
        systems: &options.systems,
        rounds: options.rounds,
        seconds: options.seconds,
    };
    let load_before = load_average();
    let mut terminated = signal(SignalKind::terminate()).map_err(PeerError::io("listening for signals"))?;
    let work = async {
        let samples = plan.measure(&mut say).await?;
        Ok((samples, plan.count_syncs(&mut say).await?))
    };
    // A signal drops the work, and with it the servers and their folders.
    let (samples, syncs) = tokio::select! {
        done = work => done,
        _ = tokio::signal::ctrl_c() => Err(PeerError::Interrupted),
        _ = terminated.recv() => Err(PeerError::Interrupted),
    }?;
    let report = PeersReport {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        load_before,
        versions: programs.versions(),
        rounds: plan.rounds,
        seconds: plan.seconds,
        payload_bytes: PAYLOAD_BYTES,
        aims: aims::judge(&Summary::of(&samples)),
        samples,
        syncs,
    };
    write(&options.out, &report, options.json)
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|first| !first.is_empty()).unwrap_or("unknown").to_owned()
}

fn write(out: &Path, report: &PeersReport, json: bool) -> Result<(), PeerError> {
    let doing = "writing the report";
    let no_text =
        |_| PeerError::Io { doing: doing.to_owned(), source: std::io::ErrorKind::OutOfMemory.into() };
    let table = table::write(report).map_err(no_text)?;
    let plot = plot::draw(report).map_err(no_text)?;
    let data = serde_json::to_string_pretty(report).map_err(PeerError::client(doing))?;
    std::fs::create_dir_all(out).map_err(PeerError::io(doing))?;
    for (name, text) in [("peers.md", &table), ("peers.svg", &plot), ("peers.json", &format!("{data}\n"))] {
        std::fs::write(out.join(name), text).map_err(PeerError::io(doing))?;
    }
    let shown = if json { &data } else { &table };
    writeln!(std::io::stdout(), "{}", shown.trim_end()).map_err(PeerError::io(doing))
}
