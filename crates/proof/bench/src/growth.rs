//! Does a server get slower as its store grows? A server is filled with millions of events of a thousand topics and a
//! hundred groups, another stays fresh, and the loads of [`bench_bus`](crate::bench_bus) run on both in turn.

use std::path::Path;

use crate::BenchOptions;
use crate::aim::GROWN_TO_FRESH;
use crate::bus::link::{WsLink, ack_frame, payload};
use crate::bus::server::BenchServer;
use crate::bus::stage::BusStage;
use crate::bus::{EVERY_ROUND, Scenario};
use crate::error::BenchError;
use crate::probe::Probe;
use crate::report::{BenchReport, Collector};

/// The content of the grown server before it is measured.
#[derive(Clone, Copy, Debug)]
pub struct GrowthOptions {
    pub events: u64,
    pub topics: u64,
    pub groups: u64,
}

/// Figures that are compared: scenario, name, and name of their ratio.
const COMPARED: &[(&str, &str, &str)] = &[
    ("serial", "confirmed publish p50", "serial p50"),
    ("inflight", "256 in flight, rate", "256 in flight"),
    ("clients", "8 clients, rate", "8 clients"),
    ("consume", "backlog, consume and ack", "consume"),
    ("fanout", "publish to arrival p50", "fan-out p50"),
    ("fanout", "publish to arrival p99", "fan-out p99"),
];

const PER_FRAME: u64 = 500;
const FRAMES_IN_FLIGHT: u64 = 8;
/// Frames between two lines about the progress of filling.
const FRAMES_PER_WORD: u64 = 2000;
/// The window of a group's subscription to each of its topics; the group acknowledges the first event.
const READ_PER_TOPIC: u32 = 50;

pub fn bench_growth(
    options: &BenchOptions,
    growth: GrowthOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport, BenchError> {
    let (old_folder, new_folder) = (options.scratch()?, options.scratch()?);
    let mut grown = BenchServer::start(&options.program, old_folder.path())?;
    let mut fresh = BenchServer::start(&options.program, new_folder.path())?;
    fill(&grown, options, growth, progress)?;
    progress(&format!("{} groups read and acknowledge", growth.groups));
    groups(&grown, options, growth)?;
    let mut out = Collector::default();
    for round in 1..=options.rounds {
        for (name, run) in EVERY_ROUND {
            progress(&format!("round {round} of {}: {name}", options.rounds));
            let suffix = format!(".{round}");
            let on = |server: &mut BenchServer, folder: &Path, out: &mut Collector| {
                one(options, server, folder, (name, *run), &suffix, out)
            };
            // The order alternates with the round: the second server finds a disk that the first has used.
            let (old, new) = match round % 2 {
                1 => {
                    let new = on(&mut fresh, new_folder.path(), &mut out)?;
                    (on(&mut grown, old_folder.path(), &mut out)?, new)
                }
                _ => {
                    let old = on(&mut grown, old_folder.path(), &mut out)?;
                    (old, on(&mut fresh, new_folder.path(), &mut out)?)
                }
            };
            compare(&old, &new, &mut out);
        }
    }
    for (server, figure) in [(&fresh, "memory of the fresh server"), (&grown, "memory of the grown server")] {
        if let Some(megabytes) = server.memory_mb() {
            out.add("growth", figure, "MB", megabytes);
        }
    }
    let GrowthOptions { events, topics, groups } = growth;
    let title = format!(
        "growth: the same loads on a fresh server and on one with {events} events, {topics} topics, {groups} groups; \
         above 1 = the grown one is slower"
    );
    Ok(out.report(&title))
}

/// Runs the load on one server and returns its figures.
fn one(
    options: &BenchOptions,
    server: &mut BenchServer,
    folder: &Path,
    (name, run): (&str, Scenario),
    suffix: &str,
    out: &mut Collector,
) -> Result<Collector, BenchError> {
    let mut probe = Probe::open(folder)?;
    let mut figures = Collector::default();
    run(&mut BusStage { server, options, probe: &mut probe, out: &mut figures, suffix })?;
    out.add_disk_probe("growth", &probe);
    out.add_disk_probe(name, &probe);
    Ok(figures)
}

fn compare(grown: &Collector, fresh: &Collector, out: &mut Collector) {
    for (scenario, figure, short) in COMPARED {
        let find = |figures: &Collector| {
            let mut all = figures.medians();
            all.find(|(of, name, ..)| of == scenario && name == figure)
                .map(|(_, _, unit, value)| (unit, value))
        };
        if let (Some((unit, old)), Some((_, new))) = (find(grown), find(fresh)) {
            out.add(scenario, &format!("fresh: {figure}"), unit, new);
            out.add(scenario, &format!("grown: {figure}"), unit, old);
            out.add("growth", &format!("{GROWN_TO_FRESH}, {short}"), "ratio", slower(unit, old, new));
        }
    }
}

/// How many times slower the grown server is, for latencies and for rates.
fn slower(unit: &str, grown: f64, fresh: f64) -> f64 {
    match unit {
        "ms" => grown / fresh,
        _ => fresh / grown,
    }
}

fn topic(number: u64) -> String {
    format!("growth.{number}")
}

/// Publishes frame by frame over all topics, so that topics are as mixed in the log as after a long life.
fn fill(
    server: &BenchServer,
    options: &BenchOptions,
    growth: GrowthOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let event = format!("{{\"payload\":{}}}", payload(options.payload_bytes));
    // Every topic gets events even if there are few.
    let per_frame = PER_FRAME.min(growth.events / growth.topics).max(1);
    let list = vec![event.as_str(); per_frame as usize].join(",");
    let frames = growth.events.div_ceil(per_frame);
    let mut link = WsLink::open(server.ws())?;
    let mut waiting = 0;
    for frame in 0..frames {
        if frame % FRAMES_PER_WORD == 0 {
            options.go_on()?;
            progress(&format!("filling: {} of {} events", frame * per_frame, growth.events));
        }
        let topic = topic(frame % growth.topics);
        link.feed(format!("{{\"type\":\"PUBLISH_BATCH\",\"topic\":\"{topic}\",\"events\":[{list}]}}"))?;
        link.flush()?;
        waiting += 1;
        if waiting == FRAMES_IN_FLIGHT {
            link.published()?;
            waiting -= 1;
        }
    }
    for _ in 0..waiting {
        link.published()?;
    }
    Ok(())
}

/// Every group reads a little of its share of the topics and leaves; the groups' shares cover all topics.
fn groups(server: &BenchServer, options: &BenchOptions, growth: GrowthOptions) -> Result<(), BenchError> {
    let share = growth.topics.div_ceil(growth.groups.max(1));
    for number in 0..growth.groups {
        options.go_on()?;
        let group = format!("reader-{number}");
        for at in (number * share)..((number + 1) * share).min(growth.topics) {
            let topic = topic(at);
            let mut link = WsLink::open(server.ws())?;
            link.subscribe(&topic, &group, "earliest", READ_PER_TOPIC)?;
            let message = link.message()?;
            link.feed(ack_frame(&topic, &group, message.envelope.offset.0))?;
            link.flush()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_one_is_slower_for_latencies_and_for_rates() {
        assert_eq!(slower("ms", 3.0, 2.0), 1.5);
        assert_eq!(slower("events/s", 200.0, 300.0), 1.5);
    }

    #[test]
    fn a_figure_of_both_servers_becomes_a_ratio_with_an_aim() {
        let of = |rate| {
            let mut figures = Collector::default();
            figures.add("inflight", "256 in flight, rate", "events/s", rate);
            figures
        };
        let mut out = Collector::default();
        compare(&of(100.0), &of(140.0), &mut out);
        let report = out.report("growth");
        let ratio = report.rows.iter().find(|row| row.scenario == "growth").expect("a ratio");
        assert_eq!((ratio.median, ratio.verdict), (1.4, Some(crate::Verdict::Missed)));
    }
}
