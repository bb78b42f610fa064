//! The printed report: for each figure a line with its spread, the probe beside it, their ratio, and the aim if there
//! is one.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::aim::{Aim, Verdict};
use crate::figures::Rounds;
use crate::probe::Probe;

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub scenario: String,
    pub figure: String,
    pub unit: &'static str,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Median of the disk probe in the same rounds, in milliseconds.
    pub probe_ms: Option<f64>,
    /// The same for the probe that overwrites, if the disk was probed.
    pub overwriting_ms: Option<f64>,
    /// For latencies: how many probes one operation takes. For rates: how many operations fit into the time of one
    /// probe.
    pub per_probe: Option<f64>,
    /// The aim of the median as text, if there is one.
    pub aim: Option<String>,
    pub verdict: Option<Verdict>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct BenchReport {
    pub title: String,
    pub rows: Vec<Row>,
}

/// Collects figures over rounds in the order they were first seen.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    order: Vec<(String, String, &'static str)>,
    values: BTreeMap<(String, String), Rounds>,
    probes: BTreeMap<String, Rounds>,
    /// Aims that depend on the run, by scenario and figure.
    aims: BTreeMap<(String, String), Aim>,
    overwriting: BTreeMap<String, Rounds>,
}

impl Collector {
    pub(crate) fn add(&mut self, scenario: &str, figure: &str, unit: &'static str, value: f64) {
        let key = (scenario.to_owned(), figure.to_owned());
        if !self.values.contains_key(&key) {
            self.order.push((scenario.to_owned(), figure.to_owned(), unit));
        }
        self.values.entry(key).or_default().push(value);
    }

    pub(crate) fn add_probe(&mut self, scenario: &str, p50_ms: f64) {
        self.probes.entry(scenario.to_owned()).or_default().push(p50_ms);
    }

    /// Gives a figure an aim that only this run knows.
    pub(crate) fn set_aim(&mut self, scenario: &str, figure: &str, aim: Aim) {
        self.aims.insert((scenario.to_owned(), figure.to_owned()), aim);
    }

    /// Both medians of a probe of the disk.
    pub(crate) fn add_disk_probe(&mut self, scenario: &str, probe: &Probe) {
        self.add_probe(scenario, probe.median_ms());
        self.overwriting.entry(scenario.to_owned()).or_default().push(probe.overwriting_ms());
    }

    pub(crate) fn median(&self, scenario: &str, figure: &str) -> Option<f64> {
        self.values.get(&(scenario.to_owned(), figure.to_owned())).map(Rounds::median)
    }

    /// Scenario, figure, unit and median of everything collected.
    pub(crate) fn medians(&self) -> impl Iterator<Item = (&str, &str, &'static str, f64)> {
        let one = |(scenario, figure, unit): &'_ (String, String, &'static str)| {
            let rounds = self.values.get(&(scenario.clone(), figure.clone()))?;
            Some((*unit, rounds.median()))
        };
        self.order.iter().filter_map(move |key| {
            let (unit, median) = one(key)?;
            Some((key.0.as_str(), key.1.as_str(), unit, median))
        })
    }

    pub(crate) fn report(self, title: &str) -> BenchReport {
        let mut order = self.order.clone();
        let first_seen = |scenario: &str| self.order.iter().position(|(known, ..)| known == scenario);
        order.sort_by_key(|(scenario, ..)| first_seen(scenario));
        let rows = order.iter().filter_map(|(scenario, figure, unit)| {
            let rounds = self.values.get(&(scenario.clone(), figure.clone()))?;
            let probe_ms = self.probes.get(scenario).map(Rounds::median);
            let median = rounds.median();
            let per_probe = probe_ms.filter(|probe| *probe > 0.0).and_then(|probe| match *unit {
                "ms" => Some(median / probe),
                "events/s" => Some(median * probe / 1000.0),
                _ => None,
            });
            let aim = self.aims.get(&(scenario.clone(), figure.clone())).copied();
            let verdict = aim.or(Aim::of(scenario, figure)).and_then(|aim| aim.judge(median, probe_ms));
            let (aim, verdict) = verdict.unzip();
            Some(Row {
                scenario: scenario.clone(),
                figure: figure.clone(),
                unit,
                median,
                min: rounds.min(),
                max: rounds.max(),
                probe_ms,
                overwriting_ms: self.overwriting.get(scenario).map(Rounds::median),
                per_probe,
                aim,
                verdict,
            })
        });
        BenchReport { title: title.to_owned(), rows: rows.collect() }
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let scenario_width = self.rows.iter().map(|row| row.scenario.len()).max().unwrap_or(0).max(9);
        let figure_bytes = |row: &Row| row.figure.len() + row.unit.len() + " ()".len();
        let figure_width = self.rows.iter().map(figure_bytes).max().unwrap_or(0).max(45);
        writeln!(
            f,
            "{:<scenario_width$} {:<figure_width$} {:>9} {:>20} {:>9} {:>9} {:>19}  aim",
            "scenario", "figure", "median", "min .. max", "probe p50", "overwrite", "ratio to probe"
        )?;
        for row in &self.rows {
            let spread = format!("{} .. {}", number(row.min), number(row.max));
            let [probe, overwrite] = [row.probe_ms, row.overwriting_ms]
                .map(|ms| ms.map_or(String::new(), |ms| format!("{ms:.3} ms")));
            let ratio = match (row.per_probe, row.unit) {
                (Some(ratio), "ms") => format!("{ratio:.2} probes"),
                (Some(ratio), _) => format!("{ratio:.1} events/probe"),
                (None, _) => String::new(),
            };
            let figure = format!("{} ({})", row.figure, row.unit);
            let (scenario, median) = (&row.scenario, number(row.median));
            let verdict = match (&row.aim, row.verdict) {
                (Some(aim), Some(verdict)) => format!("{aim}: {verdict}"),
                _ => String::new(),
            };
            let line = format!(
                "{scenario:<scenario_width$} {figure:<figure_width$} {median:>9} {spread:>20} {probe:>9} {overwrite:>9} {ratio:>19}  {verdict}"
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn number(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}
