//! The CQRS loop over its Unix socket: one request at a time compared with a raw echo of the same bytes, many at once,
//! and whether memory stays constant.
//!
//! The probe of these figures is that echo, not the disk: a Ping touches no disk.

mod echo;
mod load;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::BenchOptions;
use crate::aim::MEMORY_GROWTH;
use crate::bus::server::BenchServer;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::report::{BenchReport, Collector};
use crate::router::echo::Echo;
use crate::router::load::{Pipeline, Wire};

/// Name, and whether the scenario runs by default.
pub const ROUTER_SCENARIOS: &[(&str, bool)] = &[("ping", true), ("pipelined", true), ("memory", false)];

const SOCKET: &str = "os.sock";
/// Connections of `memory`.
const MEMORY_CONNECTIONS: usize = 4;
/// Echo and loop alternate this often, because a machine's pace changes.
const SLICES: u32 = 10;

pub fn bench_router(
    options: &BenchOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport, BenchError> {
    options.check(ROUTER_SCENARIOS)?;
    let mut out = Collector::default();
    for round in 1..=options.rounds {
        progress(&format!("round {round} of {}", options.rounds));
        let folder = options.scratch()?;
        let server = BenchServer::with_socket(&options.program, folder.path(), SOCKET)?;
        let socket = folder.path().join(SOCKET);
        if options.wants(ROUTER_SCENARIOS, "ping") {
            progress("ping");
            ping(options, folder.path(), &socket, &mut out)?;
        }
        if options.wants(ROUTER_SCENARIOS, "pipelined") {
            for connections in [1, 8] {
                progress(&format!("pipelined on {connections}"));
                pipelined(options, &socket, connections, &mut out)?;
            }
        }
        if options.wants(ROUTER_SCENARIOS, "memory") && round == 1 {
            progress("memory");
            memory(options, &server, &socket, &mut out)?;
        }
        server.stop()?;
    }
    let title = format!(
        "router: Syscall.Ping with {} B payloads over the Unix socket, {} rounds, medians; probe = a raw echo of the same \
         bytes",
        options.payload_bytes, options.rounds
    );
    Ok(out.report(&title))
}

fn ping(options: &BenchOptions, folder: &Path, socket: &Path, out: &mut Collector) -> Result<(), BenchError> {
    let echo = Echo::start(&folder.join("echo.sock"))?;
    let (mut raw, mut wire) = (Wire::open(echo.path())?, Wire::open(socket)?);
    let line = load::ping("one", options.payload_bytes);
    let (mut echoed, mut answered) = (Latencies::default(), Latencies::default());
    // The echo gets a fifth of the time.
    let slice = Duration::from_secs_f64(options.seconds) / SLICES;
    for _ in 0..SLICES {
        options.go_on()?;
        turn(&mut raw, &line, slice / 5, &mut echoed)?;
        turn(&mut wire, &line, slice * 4 / 5, &mut answered)?;
    }
    let (raw_ms, p50) = (echoed.quantile_ms(0.5), answered.quantile_ms(0.5));
    out.add("ping", "one in flight p50", "ms", p50);
    out.add("ping", "one in flight p99", "ms", answered.quantile_ms(0.99));
    out.add("ping", "raw echo p50", "ms", raw_ms);
    out.add("ping", "raw echo p99", "ms", echoed.quantile_ms(0.99));
    out.add_probe("ping", raw_ms);
    Ok(())
}

fn turn(wire: &mut Wire, line: &[u8], time: Duration, into: &mut Latencies) -> Result<(), BenchError> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let sent = Instant::now();
        wire.write(line)?;
        wire.lines(1)?;
        into.push(sent.elapsed());
    }
    Ok(())
}

fn pipelined(
    options: &BenchOptions,
    socket: &Path,
    connections: usize,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let time = Duration::from_secs_f64(options.seconds);
    let begun = Instant::now();
    let pipeline = Pipeline { socket, payload_bytes: options.payload_bytes, stop: &options.stop };
    let replies = pipeline.run(connections, |so_far| so_far == 0 || begun.elapsed() < time)?;
    let rate = replies as f64 / begun.elapsed().as_secs_f64();
    let name = if connections == 1 { "1 connection" } else { "8 connections" };
    out.add("pipelined", name, "replies/s", rate);
    Ok(())
}

/// The first tenth of the requests fills buffers and caches; the rest must not add to them.
fn memory(
    options: &BenchOptions,
    server: &BenchServer,
    socket: &Path,
    out: &mut Collector,
) -> Result<(), BenchError> {
    let pipeline = Pipeline { socket, payload_bytes: options.payload_bytes, stop: &options.stop };
    let some = |requests: u64| {
        let each = requests / MEMORY_CONNECTIONS as u64;
        pipeline.run(MEMORY_CONNECTIONS, |so_far| so_far < each)
    };
    let begun = Instant::now();
    let mut replies = some(options.log_events / 10)?;
    let before = server.memory_mb().unwrap_or_default();
    replies += some(options.log_events - options.log_events / 10)?;
    let after = server.memory_mb().unwrap_or_default();
    out.add("memory", "requests", "requests", replies as f64);
    out.add("memory", "rate", "replies/s", replies as f64 / begun.elapsed().as_secs_f64());
    out.add("memory", "before", "MB", before);
    out.add("memory", "after", "MB", after);
    out.add("memory", MEMORY_GROWTH, "ratio", if before > 0.0 { after / before } else { 0.0 });
    Ok(())
}
