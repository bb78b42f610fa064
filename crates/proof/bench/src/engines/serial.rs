//! A single client with one confirmed publish at a time.
//!
//! Object storage has a least time between commits by default, because each costs money. An idle store commits at once,
//! but whoever publishes one event after the other meets that time. So there it is measured three times: by default with
//! a pause between publishes, by default without a pause, and with the shortest interval.

use std::thread;
use std::time::{Duration, Instant};

use super::place::EngineKind;
use super::stage::EngineStage;
use crate::aim::Aim;
use crate::bus::link::WsLink;
use crate::bus::server::BenchServer;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::probe::{Probe, slice_time};

/// The shortest interval that can be set: shorter than any put.
pub(super) const INTERVAL_NONE: [&str; 2] = ["--commit-interval-ms", "1"];
const TOPIC: &str = "bench.serial";
/// Requests, and milliseconds besides, that a publish may take on engines without SQL.
const OTHERS: (f64, f64) = (1.2, 0.3);
const RAW_IDLE: &str = "raw conditional put p50, with the same pauses";

pub(super) fn run(stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
    let aim = aim(stage.kind);
    let Some(interval_ms) = stage.kind.commit_interval_ms() else {
        let server = stage.leader("server", &[])?;
        return measure(stage, &server, "", Some(aim));
    };
    let server = stage.leader("server", &[])?;
    let pause = Duration::from_millis(interval_ms + interval_ms / 5);
    measure_idle(stage, &server, pause)?;
    measure(stage, &server, &format!(", interval {interval_ms} ms (default)"), None)?;
    server.terminate()?;
    let server = stage.leader("server", &INTERVAL_NONE.map(str::to_owned))?;
    measure(stage, &server, ", interval 1 ms", Some(aim))
}

fn aim(kind: EngineKind) -> Aim {
    match kind {
        EngineKind::Sqlite => Aim::Probes { times: 1.5, plus_ms: 0.1 },
        EngineKind::Postgres => Aim::Requests { times: 1.5, plus_ms: 0.1 },
        EngineKind::Folder | EngineKind::Object | EngineKind::Mongo => {
            Aim::Requests { times: OTHERS.0, plus_ms: OTHERS.1 }
        }
    }
}

fn measure(
    stage: &mut EngineStage<'_>,
    server: &BenchServer,
    which: &str,
    aim: Option<Aim>,
) -> Result<(), BenchError> {
    let mut link = WsLink::open(server.ws())?;
    let mut disk = stage.place.folder.as_deref().map(Probe::open).transpose()?;
    let (mut latencies, mut busy) = (Latencies::default(), Duration::ZERO);
    stage.slices(|stage, _| {
        if let Some(disk) = &mut disk {
            disk.slice()?;
        }
        let began = Instant::now();
        while began.elapsed() < slice_time(stage.options) {
            publish(stage, &mut link, &mut latencies)?;
        }
        busy += began.elapsed();
        Ok(())
    })?;
    let p50 = latencies.quantile_ms(0.5);
    let figure = format!("confirmed publish p50{which}");
    match aim {
        Some(aim) => stage.add_with_aim(&figure, "ms", p50, aim),
        None => stage.add(&figure, "ms", p50),
    }
    stage.add(&format!("confirmed publish p99{which}"), "ms", latencies.quantile_ms(0.99));
    stage.add(&format!("rate{which}"), "events/s", latencies.len() as f64 / busy.as_secs_f64());
    if let Some(disk) = disk {
        stage.add("raw append and sync of the disk p50", "ms", disk.median_ms());
    }
    Ok(())
}

/// With a pause before each publish, and before each raw request beside it: connections and processors that rest are
/// slower than busy ones.
fn measure_idle(
    stage: &mut EngineStage<'_>,
    server: &BenchServer,
    pause: Duration,
) -> Result<(), BenchError> {
    let mut link = WsLink::open(server.ws())?;
    let (mut latencies, mut raw) = (Latencies::default(), Latencies::default());
    stage.slices(|stage, _| {
        let began = Instant::now();
        while began.elapsed() < slice_time(stage.options) {
            thread::sleep(pause);
            publish(stage, &mut link, &mut latencies)?;
            thread::sleep(pause);
            let sent = Instant::now();
            stage.place.raw.put(stage.payloads.next().as_bytes())?;
            raw.push(sent.elapsed());
        }
        Ok(())
    })?;
    stage.add(RAW_IDLE, "ms", raw.quantile_ms(0.5));
    let raw_ms = stage.out.median(&stage.name, RAW_IDLE).unwrap_or_default();
    let aim = Aim::AtMost(((OTHERS.0 * raw_ms + OTHERS.1) * 1000.0).round() / 1000.0);
    stage.add_with_aim("confirmed publish p50, idle store", "ms", latencies.quantile_ms(0.5), aim);
    Ok(())
}

fn publish(
    stage: &mut EngineStage<'_>,
    link: &mut WsLink,
    latencies: &mut Latencies,
) -> Result<(), BenchError> {
    let frame = stage.payloads.frame(TOPIC);
    let sent = Instant::now();
    link.feed(frame)?;
    link.flush()?;
    link.published()?;
    latencies.push(sent.elapsed());
    Ok(())
}
