//! The aims (wanted values) of figures that have one. A report says met or missed; a missed aim never fails a run,
//! because a busy machine is not a bug.

use std::fmt;

/// The aim of one figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    AtLeast(f64),
    AtMost(f64),
    /// At most `times` probes of the same run, plus `plus_ms` milliseconds.
    Probes {
        times: f64,
        plus_ms: f64,
    },
    /// The same for probes that are requests of an engine. A request of the server may be somewhat quicker than such a
    /// probe, because it is another request.
    Requests {
        times: f64,
        plus_ms: f64,
    },
}

/// A figure below this share of a request of the engine is not believed.
const REQUEST_SHARE_MIN: f64 = 0.6;

/// Scenario, beginning of the figure's name, aim.
const AIMS: &[(&str, &str, Aim)] = &[
    ("serial", "confirmed publish p50", Aim::Probes { times: 1.5, plus_ms: 0.1 }),
    ("inflight", "256 in flight, rate", Aim::AtLeast(100_000.0)),
    ("inflight", "events per sync", Aim::AtLeast(40.0)),
    ("clients", "8 clients, rate", Aim::AtLeast(20_000.0)),
    ("consume", "backlog, consume and ack", Aim::AtLeast(130_000.0)),
    ("fanout", "publish to arrival p50", Aim::AtMost(1.0)),
    ("fanout", "publish to arrival p99", Aim::AtMost(5.0)),
    ("recovery", "ready after a kill", Aim::AtMost(2000.0)),
    ("recovery", "memory", Aim::AtMost(100.0)),
    // The aim is "does not slow down", with room for noise: a scan of the log would be a hundred times slower.
    ("recovery", LONG_TO_SHORT, Aim::AtMost(1.5)),
    ("reads", LONG_TO_SHORT, Aim::AtMost(1.5)),
    ("claims", LONG_TO_SHORT, Aim::AtMost(1.5)),
    ("claims", "idle claim", Aim::AtMost(0.05)),
    ("claims", "claim of 100", Aim::AtMost(1.0)),
    ("append", "256 per commit", Aim::AtLeast(350_000.0)),
    ("topics", TOPICS_RATIO, Aim::AtLeast(0.7)),
    ("noop", "handled per sync", Aim::AtLeast(20.0)),
    ("noop", "handled", Aim::AtLeast(15_000.0)),
    ("state", "handled per sync", Aim::AtLeast(8.0)),
    ("enqueue", "64 threads, rate", Aim::AtLeast(50_000.0)),
    ("roundtrip", "publish to emitted event p50", Aim::Probes { times: 3.0, plus_ms: 1.0 }),
    ("processes", "slowest / fastest", Aim::AtLeast(0.333)),
    ("retained", LONG_TO_SHORT, Aim::AtMost(1.5)),
    ("ping", "one in flight p50", Aim::AtMost(0.06)),
    ("pipelined", "1 connection", Aim::AtLeast(50_000.0)),
    ("pipelined", "8 connections", Aim::AtLeast(50_000.0)),
    ("memory", MEMORY_GROWTH, Aim::AtMost(1.1)),
    ("scheduler", "1,000 runs", Aim::AtLeast(3_000_000.0)),
    ("scheduler", "1 run", Aim::AtLeast(3_000_000.0)),
    ("idle", IDLE_RATIO, Aim::AtMost(1.5)),
    ("suspended", "100,000 suspended runs", Aim::AtMost(200.0)),
    ("fairness", "ticks until served", Aim::AtMost(1.0)),
    ("sleeps", "a million", Aim::AtMost(5.0)),
    ("wasm", "generation", Aim::AtMost(5.0)),
    ("poll", WATCHES_RATIO, Aim::AtMost(1.5)),
    ("timers", "arm or cancel", Aim::AtMost(1.0)),
    ("lateness", "timer p99", Aim::AtMost(0.3)),
    ("echo", ECHO_RATIO, Aim::AtLeast(0.6)),
    ("growth", GROWN_TO_FRESH, Aim::AtMost(1.3)),
];

/// Beginning of the names of figures that compare a step beside many idle runs with a step beside few.
pub(crate) const IDLE_RATIO: &str = "100,000 / 10 idle runs";
/// Beginning of the names of figures that compare a POLL beside many idle watches with a POLL beside few.
pub(crate) const WATCHES_RATIO: &str = "100,000 / 10 watches";
/// Ratio of the round trips per second through a guest to those through a plain server.
pub(crate) const ECHO_RATIO: &str = "guest / plain epoll";
/// Ratio of the steps per second without a scheduler to those with it.
pub(crate) const SCHEDULER_RATIO: &str = "bare loop / 1,000 runs";
/// Ratio of resident memory after all requests to that after a tenth of them.
pub(crate) const MEMORY_GROWTH: &str = "memory after / before";
/// Beginning of the names of figures that compare a long log with a short one.
pub(crate) const LONG_TO_SHORT: &str = "long / short log";
pub(crate) const GROWN_TO_FRESH: &str = "grown / fresh";
pub(crate) const TOPICS_RATIO: &str = "1,000 topics / 1 topic";

impl Aim {
    pub(crate) fn of(scenario: &str, figure: &str) -> Option<Aim> {
        let is_it = |(of, begin, _): &&(&str, &str, Aim)| *of == scenario && figure.starts_with(begin);
        AIMS.iter().find(is_it).map(|(_, _, aim)| *aim)
    }

    /// Returns the aim as text, and whether `value` meets it; `None` if the aim needs a probe and there is none.
    pub(crate) fn judge(self, value: f64, probe_ms: Option<f64>) -> Option<(String, Verdict)> {
        let verdict = |met| if met { Verdict::Met } else { Verdict::Missed };
        Some(match self {
            Aim::AtLeast(least) => (format!(">= {least}"), verdict(value >= least)),
            Aim::AtMost(most) => (format!("<= {most}"), verdict(value <= most)),
            Aim::Probes { times, plus_ms } | Aim::Requests { times, plus_ms } => {
                let probe_ms = probe_ms?;
                let most = times * probe_ms + plus_ms;
                let words = format!("<= {times} probes + {plus_ms} = {most:.3}");
                // A publish waits for a sync, so it cannot be quicker than one: if it is, something slowed the probes
                // but not the load.
                let least = if matches!(self, Aim::Requests { .. }) {
                    REQUEST_SHARE_MIN * probe_ms
                } else {
                    probe_ms
                };
                let verdict = if value < least { Verdict::Disturbed } else { verdict(value <= most) };
                (words, verdict)
            }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Met,
    Missed,
    /// Figure and probe cannot be compared: something else kept the machine busy.
    Disturbed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Disturbed => "no verdict, the probe was disturbed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_in_probes_follows_the_disk() {
        let aim = Aim::of("serial", "confirmed publish p50").expect("an aim");
        let verdict = |value, probe| aim.judge(value, probe).map(|(_, verdict)| verdict);
        assert_eq!(verdict(0.24, Some(0.1)), Some(Verdict::Met));
        assert_eq!(verdict(0.26, Some(0.1)), Some(Verdict::Missed));
        assert_eq!(verdict(1.6, Some(1.0)), Some(Verdict::Met));
        assert_eq!(verdict(0.6, None), None);
    }

    #[test]
    fn nothing_that_waits_for_a_sync_is_quicker_than_one() {
        let aim = Aim::of("serial", "confirmed publish p50").expect("an aim");
        assert_eq!(aim.judge(0.3, Some(4.0)).map(|(_, verdict)| verdict), Some(Verdict::Disturbed));
    }

    #[test]
    fn figures_without_an_aim_have_no_verdict() {
        assert!(Aim::of("serial", "rate").is_none());
        assert!(Aim::of("clients", "events per sync").is_none());
        let ready = Aim::of("recovery", "ready after a kill, 1000000 events").expect("an aim");
        assert_eq!(ready.judge(2001.0, None), Some(("<= 2000".to_owned(), Verdict::Missed)));
    }
}
