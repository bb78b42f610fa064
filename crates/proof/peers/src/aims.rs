//! The project's aims for these figures, and whether this run meets them. A missed aim fails nothing: a busy machine is
//! not a bug, and the report shows the disk's pace.

use millrace_bench::Verdict;
use serde::Serialize;

use crate::report::Summary;
use crate::system::{Load, System};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judged {
    pub(crate) aim: &'static str,
    pub(crate) want: String,
    pub(crate) got: String,
    pub(crate) verdict: Verdict,
}

/// The aim for a publish that waits for a sync: at most so many probes, plus so many milliseconds.
const SERIAL_PROBES: f64 = 1.5;
const SERIAL_PLUS_MS: f64 = 0.1;
const NATS_ALWAYS_INFLIGHT_TIMES: f64 = 10.0;
const NATS_ALWAYS_CLIENTS_TIMES: f64 = 2.5;
const REDIS_ALWAYS_CLIENTS_TIMES: f64 = 1.15;

/// Lowest events per second.
const RATES: &[(&str, Load, f64)] = &[
    ("256 in flight on one connection", Load::Inflight, 100_000.0),
    ("8 clients, one at a time each", Load::Clients, 20_000.0),
    ("consume and ack from a backlog", Load::Consume, 130_000.0),
];

/// Not slower than a peer, or faster by a factor: load, peer, lowest ratio of our rate to the peer's.
const RATIOS: &[(&str, Load, System, f64)] = &[
    ("one at a time, not behind Redis always", Load::Serial, System::RedisAlways, 1.0),
    ("one at a time, not behind NATS always", Load::Serial, System::NatsAlways, 1.0),
    ("256 in flight against NATS always", Load::Inflight, System::NatsAlways, NATS_ALWAYS_INFLIGHT_TIMES),
    ("8 clients against NATS always", Load::Clients, System::NatsAlways, NATS_ALWAYS_CLIENTS_TIMES),
    ("256 in flight, not behind Redis always", Load::Inflight, System::RedisAlways, 1.0),
    ("256 in flight, synced, not behind NATS default", Load::Inflight, System::NatsDefault, 1.0),
    ("8 clients against Redis always", Load::Clients, System::RedisAlways, REDIS_ALWAYS_CLIENTS_TIMES),
    ("backlog, not behind NATS always", Load::Consume, System::NatsAlways, 1.0),
];

/// Judges the aims whose figures were measured.
pub(crate) fn judge(summary: &Summary) -> Vec<Judged> {
    let ours = |load| summary.cell(load, System::Millrace);
    let mut judged = Vec::new();
    if let Some((cell, p50)) = ours(Load::Serial).and_then(|cell| Some((cell, cell.p50_ms?.median))) {
        let most = SERIAL_PROBES * cell.probe_ms + SERIAL_PLUS_MS;
        judged.push(Judged {
            aim: "one at a time, p50 beside the probe",
            want: format!("<= {SERIAL_PROBES} x {:.3} + {SERIAL_PLUS_MS} = {most:.3} ms", cell.probe_ms),
            got: format!("{p50:.3} ms"),
            // A publish waits for a sync, so it cannot be quicker than one: if it is, something slowed the probes but
            // not the load.
            verdict: if p50 < cell.probe_ms { Verdict::Disturbed } else { reached(p50 <= most) },
        });
    }
    for (aim, load, least) in RATES {
        if let Some(cell) = ours(*load) {
            let rate = cell.rate.median;
            let (want, got) = (format!(">= {least:.0}/s"), format!("{rate:.0}/s"));
            judged.push(Judged { aim, want, got, verdict: reached(rate >= *least) });
        }
    }
    if let Some((p50, p99)) = ours(Load::Fanout).and_then(|cell| Some((cell.p50_ms?, cell.p99_ms?))) {
        for (aim, value, most) in [("fan-out p50", p50.median, 1.0), ("fan-out p99", p99.median, 5.0)] {
            let (want, got) = (format!("< {most} ms"), format!("{value:.3} ms"));
            judged.push(Judged { aim, want, got, verdict: reached(value < most) });
        }
    }
    for (aim, load, peer, least) in RATIOS {
        // `to_millrace` is the peer's rate by ours; the aim is the inverse.
        if let Some(ratio) = summary.to_millrace(*load, *peer).map(|ratio| 1.0 / ratio) {
            let (want, got) = (format!(">= {least} x"), format!("{ratio:.2} x"));
            judged.push(Judged { aim, want, got, verdict: reached(ratio >= *least) });
        }
    }
    judged
}

fn reached(is_so: bool) -> Verdict {
    if is_so { Verdict::Met } else { Verdict::Missed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::samples;

    fn verdict(judged: &[Judged], aim: &str) -> bool {
        judged.iter().find(|one| one.aim.contains(aim)).expect("an aim").verdict == Verdict::Met
    }

    #[test]
    fn a_publish_quicker_than_a_sync_proves_nothing() {
        let mut all = samples();
        all.iter_mut().for_each(|sample| (sample.p50_ms, sample.probe_ms) = (Some(0.3), 4.0));
        assert_eq!(judge(&Summary::of(&all))[0].verdict, Verdict::Disturbed);
    }

    #[test]
    fn an_aim_is_met_at_its_bound_and_not_beyond() {
        let mut all = samples();
        for sample in &mut all {
            sample.rate = match (sample.load, sample.system) {
                (Load::Inflight, System::Millrace) => 100_000.0,
                (Load::Inflight, System::NatsAlways) => 10_000.0,
                (Load::Inflight, System::NatsDefault) => 100_001.0,
                (_, System::Millrace) => 999.0,
                _ => 1000.0,
            };
            // The bound with a probe of 0.1 ms is 0.25 ms.
            sample.p50_ms = Some(0.25);
        }
        let judged = judge(&Summary::of(&all));
        assert!(verdict(&judged, "beside the probe"));
        assert!(verdict(&judged, "256 in flight on one connection"));
        assert!(verdict(&judged, "256 in flight against NATS always"));
        assert!(!verdict(&judged, "not behind NATS default"));
        assert!(!verdict(&judged, "not behind Redis always"));
        assert!(!verdict(&judged, "8 clients against NATS always"));
    }

    #[test]
    fn nothing_is_said_about_what_was_not_measured() {
        let ours: Vec<_> = samples().into_iter().filter(|sample| sample.system == System::Millrace).collect();
        assert!(judge(&Summary::of(&ours)).iter().all(|one| !one.aim.contains("NATS")));
        assert!(judge(&Summary::of(&[])).is_empty());
    }
}
