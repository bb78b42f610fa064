//! Three servers under load, one of which leads: it is killed, or stopped in order, and the clock runs until one of the
//! others confirms a publish.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::stage::EngineStage;
use crate::aim::Aim;
use crate::bus::link::{WsLink, payload, publish_frame};
use crate::bus::server::BenchServer;
use crate::error::BenchError;
use crate::figures::Latencies;

const SERVERS: usize = 3;
const IN_FLIGHT: usize = 64;
/// Publishes that the leader has confirmed before it is ended: the load has begun.
const CONFIRMED_BEFORE: usize = 256;
/// The room that a takeover has beside the lead timeout.
const AFTER_TIMEOUT_MS: f64 = 2_000.0;
const AFTER_STOP_MS: f64 = 1_000.0;
/// A server that leads answers within this time, or the next one is asked.
const ANSWER_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);
const TOPIC: &str = "bench.takeover";

/// How a leader ends.
#[derive(Clone, Copy)]
enum End {
    Killed,
    Stopped,
}

pub(super) fn run(stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
    let timeout_ms = stage.engine_options.lead_timeout_ms.unwrap_or(stage.kind.lead_timeout_ms());
    let flags = vec!["--lead-timeout-ms".to_owned(), timeout_ms.to_string()];
    let mut servers: Vec<BenchServer> = Vec::new();
    for number in 0..SERVERS {
        servers.push(stage.server(&format!("server-{number}"), &flags)?);
    }
    let mut takeovers = |stage: &mut EngineStage<'_>, end: End| {
        let mut latencies = Latencies::default();
        for _ in 0..stage.engine_options.kills.max(1) {
            let leader = settled_leader(stage, &servers)?;
            stage.probe_slice()?;
            latencies.push(without_leader(stage, &mut servers, leader, end)?);
            servers[leader].restart()?;
        }
        Ok::<Latencies, BenchError>(latencies)
    };
    let mut killed = takeovers(stage, End::Killed)?;
    let mut stopped = takeovers(stage, End::Stopped)?;
    let aim = Aim::AtMost(timeout_ms as f64 + AFTER_TIMEOUT_MS);
    stage.add(
        &format!("lead timeout {timeout_ms} ms: kill -9 to publish p50"),
        "ms",
        killed.quantile_ms(0.5),
    );
    stage.add_with_aim("kill -9 to publish, longest", "ms", killed.quantile_ms(1.0), aim);
    stage.add("orderly stop to publish p50", "ms", stopped.quantile_ms(0.5));
    let aim = Aim::AtMost(AFTER_STOP_MS);
    stage.add_with_aim("orderly stop to publish, longest", "ms", stopped.quantile_ms(1.0), aim);
    Ok(())
}

/// Returns the server that leads, when it leads and the others follow it.
fn settled_leader(stage: &EngineStage<'_>, servers: &[BenchServer]) -> Result<usize, BenchError> {
    let mut leader = 0;
    stage.wait_for("a leader that the others follow", || {
        let states: Vec<String> = servers.iter().map(BenchServer::role_and_phase).collect();
        leader = states.iter().position(|state| state.starts_with("leader")).unwrap_or(0);
        let leads = states.iter().filter(|state| state.starts_with("leader")).count();
        Ok(leads == 1 && states.iter().filter(|state| *state == "follower following").count() == SERVERS - 1)
    })?;
    Ok(leader)
}

/// Ends the leader under load. Returns how long nobody confirmed a publish.
fn without_leader(
    stage: &mut EngineStage<'_>,
    servers: &mut [BenchServer],
    leader: usize,
    end: End,
) -> Result<Duration, BenchError> {
    let (url, (say, hear)) = (servers[leader].ws().to_owned(), channel());
    let frames: Vec<String> = (0..CONFIRMED_BEFORE).map(|_| stage.payloads.frame(TOPIC)).collect();
    // Ends with the connection.
    let loading = thread::spawn(move || load(&url, &frames, &say));
    if hear.recv().is_err() {
        return Err(loading.join().map_err(|_| BenchError::Panicked)?.err().unwrap_or(BenchError::Halted));
    }
    let began = Instant::now();
    match end {
        End::Killed => servers[leader].kill(),
        End::Stopped => servers[leader].ask_to_stop()?,
    }
    let others: Vec<String> = servers
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != leader)
        .map(|(_, server)| server.ws().to_owned())
        .collect();
    let mut asked = others.iter().cycle();
    loop {
        stage.options.go_on()?;
        if asked.next().is_some_and(|url| confirms(url)) {
            break;
        }
        thread::sleep(PAUSE);
    }
    let took = began.elapsed();
    servers[leader].wait_for_end()?;
    // Its error is the end of the leader.
    let _ = loading.join().map_err(|_| BenchError::Panicked)?;
    Ok(took)
}

/// Publishes until the connection ends, and says so when the load has begun.
fn load(url: &str, frames: &[String], begun: &Sender<()>) -> Result<(), BenchError> {
    let mut link = WsLink::open(url)?;
    for frame in frames.iter().take(IN_FLIGHT) {
        link.feed(frame.clone())?;
    }
    link.flush()?;
    for (number, frame) in frames.iter().cycle().enumerate() {
        link.published()?;
        link.feed(frame.clone())?;
        link.flush()?;
        if number == CONFIRMED_BEFORE {
            // Nobody hears it only if the run has ended.
            let _ = begun.send(());
        }
    }
    Ok(())
}

/// Returns whether this server confirms a publish now. A server that follows sends its client away.
fn confirms(url: &str) -> bool {
    let publish = || -> Result<bool, BenchError> {
        let mut link = WsLink::open(url)?;
        link.wait_at_most(ANSWER_MAX)?;
        link.feed(publish_frame(TOPIC, &payload(64)))?;
        link.flush()?;
        Ok(link.try_text()?.is_some_and(|text| text.starts_with("{\"type\":\"PUBLISHED\"")))
    };
    publish().unwrap_or(false)
}
