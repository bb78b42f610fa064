//! The measurements as data, with their medians and spreads.

use std::collections::BTreeMap;

use millrace_bench::Rounds;
use serde::Serialize;

use crate::aims::Judged;
use crate::system::{Load, System};

/// The result of one load against one server in one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) round: usize,
    pub(crate) system: System,
    pub(crate) load: Load,
    pub(crate) events: u64,
    /// Events per second.
    pub(crate) rate: f64,
    /// Latency of a confirmed publish, or from publish to arrival for the fan-out.
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// Median of the disk probes taken between slices of this load.
    pub(crate) probe_ms: f64,
    /// The same for the probe that overwrites.
    pub(crate) overwriting_ms: f64,
}

/// Syncs that strace counted, in a run of their own.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Syncs {
    pub(crate) system: System,
    pub(crate) load: Load,
    pub(crate) events: u64,
    pub(crate) syncs: u64,
}

/// The whole report, as it is written to `peers.json`.
#[derive(Debug, Serialize)]
pub(crate) struct PeersReport {
    pub(crate) cores: usize,
    /// Load average of one minute before the run: servers should not be compared on a busy machine.
    pub(crate) load_before: String,
    pub(crate) versions: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) payload_bytes: usize,
    pub(crate) samples: Vec<Sample>,
    pub(crate) syncs: Vec<Syncs>,
    pub(crate) aims: Vec<Judged>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The result of one load against one server over all rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) rate: Spread,
    pub(crate) p50_ms: Option<Spread>,
    pub(crate) p99_ms: Option<Spread>,
    pub(crate) probe_ms: f64,
    pub(crate) overwriting_ms: f64,
}

#[derive(Debug)]
pub(crate) struct Summary(BTreeMap<(Load, System), Cell>);

impl Summary {
    pub(crate) fn of(samples: &[Sample]) -> Summary {
        let mut groups: BTreeMap<(Load, System), Vec<&Sample>> = BTreeMap::new();
        for sample in samples {
            groups.entry((sample.load, sample.system)).or_default().push(sample);
        }
        let cell = |samples: Vec<&Sample>| {
            let over =
                |value: fn(&Sample) -> Option<f64>| spread(samples.iter().filter_map(|one| value(one)));
            Some(Cell {
                rate: over(|sample| Some(sample.rate))?,
                p50_ms: over(|sample| sample.p50_ms),
                p99_ms: over(|sample| sample.p99_ms),
                probe_ms: over(|sample| Some(sample.probe_ms))?.median,
                overwriting_ms: over(|sample| Some(sample.overwriting_ms))?.median,
            })
        };
        Summary(groups.into_iter().filter_map(|(key, samples)| Some((key, cell(samples)?))).collect())
    }

    pub(crate) fn cell(&self, load: Load, system: System) -> Option<&Cell> {
        self.0.get(&(load, system))
    }

    /// The systems that were measured, in the order of the tables.
    pub(crate) fn systems(&self) -> Vec<System> {
        let measured = |system: &System| self.0.keys().any(|(_, of)| of == system);
        System::ALL.into_iter().filter(measured).collect()
    }

    /// The system's rate divided by Millrace's.
    pub(crate) fn to_millrace(&self, load: Load, system: System) -> Option<f64> {
        let ours = self.cell(load, System::Millrace)?.rate.median;
        Some(self.cell(load, system)?.rate.median / ours).filter(|ratio| ratio.is_finite())
    }
}

fn spread(values: impl Iterator<Item = f64>) -> Option<Spread> {
    let mut rounds = Rounds::default();
    let mut some = false;
    for value in values {
        rounds.push(value);
        some = true;
    }
    some.then(|| Spread { median: rounds.median(), min: rounds.min(), max: rounds.max() })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Samples of every system and load in three rounds; the rates follow from the system's place in the list.
    pub(crate) fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for round in 1..=3 {
            for (place, system) in System::ALL.into_iter().enumerate() {
                for load in Load::ALL {
                    let timed = matches!(load, Load::Serial | Load::Clients | Load::Fanout);
                    samples.push(Sample {
                        round,
                        system,
                        load,
                        events: 1000,
                        rate: 1000.0 * (place + 1) as f64 + round as f64,
                        p50_ms: timed.then_some(0.1 * round as f64),
                        p99_ms: timed.then_some(round as f64),
                        probe_ms: 0.1,
                        overwriting_ms: 0.08,
                    });
                }
            }
        }
        samples
    }

    #[test]
    fn a_cell_is_the_median_and_the_extremes_of_its_rounds() {
        let summary = Summary::of(&samples());
        let cell = summary.cell(Load::Serial, System::NatsAlways).expect("measured");
        assert_eq!(cell.rate, Spread { median: 2002.0, min: 2001.0, max: 2003.0 });
        assert_eq!(cell.p99_ms, Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert!(summary.cell(Load::Consume, System::Millrace).expect("measured").p50_ms.is_none());
    }

    #[test]
    fn what_was_left_out_is_not_in_the_tables() {
        let only: Vec<Sample> =
            samples().into_iter().filter(|sample| sample.system == System::RedisAlways).collect();
        let summary = Summary::of(&only);
        assert_eq!(summary.systems(), [System::RedisAlways]);
        assert_eq!(summary.to_millrace(Load::Serial, System::RedisAlways), None);
    }
}
