//! Records per second of a server that has nothing to do, and of one whose clients never rest: what a provider of object
//! storage is paid for.

use std::thread;
use std::time::{Duration, Instant};

use super::place::EngineKind;
use super::stage::EngineStage;
use crate::aim::Aim;
use crate::bus::link::WsLink;
use crate::bus::server::BenchServer;
use crate::error::BenchError;

/// Records of an idle leader that are waited for. Every 10 s one of them is the server's own metrics.
const BEATS: f64 = 4.0;
const LOOK: Duration = Duration::from_millis(10);
const IN_FLIGHT: usize = 64;
const TOPIC: &str = "bench.puts";

pub(super) fn run(stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
    let server = stage.leader("server", &[])?;
    stage.probe_slice()?;
    let busy = busy(stage, &server)?;
    stage.probe_slice()?;
    let idle = idle(stage, &server)?;
    match stage.kind {
        EngineKind::Object => {
            stage.add_with_aim("busy, records", "1/s", busy, Aim::AtMost(10.0));
            stage.add_with_aim("idle, records", "1/s", idle, Aim::AtMost(0.2));
        }
        _ => {
            stage.add("busy, records", "1/s", busy);
            stage.add("idle, records", "1/s", idle);
        }
    }
    Ok(())
}

fn busy(stage: &mut EngineStage<'_>, server: &BenchServer) -> Result<f64, BenchError> {
    let mut link = WsLink::open(server.ws())?;
    for _ in 0..IN_FLIGHT {
        link.feed(stage.payloads.frame(TOPIC))?;
    }
    link.flush()?;
    let (began, before) = (Instant::now(), stage.records(server)?);
    while began.elapsed().as_secs_f64() < stage.options.seconds {
        stage.options.go_on()?;
        link.published()?;
        link.feed(stage.payloads.frame(TOPIC))?;
        link.flush()?;
    }
    let (records, took) = (stage.records(server)? - before, began.elapsed());
    for _ in 0..IN_FLIGHT {
        link.published()?;
    }
    // As many intervals fit between so many records.
    Ok((records - 1.0).max(0.0) / took.as_secs_f64())
}

/// Measures from one record to another, so that a short look is exact.
fn idle(stage: &mut EngineStage<'_>, server: &BenchServer) -> Result<f64, BenchError> {
    let until_changed = |known: f64| -> Result<(f64, Instant), BenchError> {
        loop {
            let found = stage.records(server)?;
            if found > known {
                return Ok((found, Instant::now()));
            }
            stage.options.go_on()?;
            thread::sleep(LOOK);
        }
    };
    // The first record after a load may be followed by the metrics at once; from then on they take turns with beats.
    let (settled, _) = until_changed(stage.records(server)?)?;
    let (first, began) = until_changed(settled)?;
    let (mut last, mut ended) = (first, began);
    while last < first + BEATS {
        (last, ended) = until_changed(last)?;
    }
    // To two places: the clock of the looks is no better.
    Ok(((last - first) / (ended - began).as_secs_f64() * 100.0).round() / 100.0)
}
