//! The report as Markdown.

use std::fmt::{Result, Write};

use millrace_bench::Verdict;

use crate::report::{Cell, PeersReport, Spread, Summary, Syncs};
use crate::system::{Load, System};

pub(crate) fn write(report: &PeersReport) -> std::result::Result<String, std::fmt::Error> {
    let summary = Summary::of(&report.samples);
    let mut out = String::new();
    let PeersReport { rounds, seconds, cores, payload_bytes, load_before, .. } = report;
    writeln!(out, "# Millrace beside NATS, Redis and PostgreSQL\n")?;
    writeln!(
        out,
        "Written by `cargo xtask peers`; do not edit. Systems in turn on the same disk, {seconds} s per load, payloads of\n\
         {payload_bytes} bytes, {cores} cores shared by server and load. Load average before the run: {load_before}.\n\
         Median of {rounds} (lowest to highest); in brackets the rate as a multiple of Millrace's.\n\
         Programs: {}.\n",
        report.versions.join("; ")
    )?;
    writeln!(out, "![rates and latencies, log scale](peers.svg)\n")?;
    rates(&mut out, &summary)?;
    latencies(&mut out, &summary)?;
    syncs(&mut out, &summary, &report.syncs)?;
    probes(&mut out, &summary)?;
    aims(&mut out, report)?;
    Ok(out)
}

fn head(out: &mut String, first: &str, columns: &[&str]) -> Result {
    writeln!(out, "| {first} | {} |", columns.join(" | "))?;
    writeln!(out, "|---|{}", "---|".repeat(columns.len()))
}

/// A row per system; systems that sync before they answer come first.
fn rows(
    out: &mut String,
    summary: &Summary,
    columns: usize,
    mut cells: impl FnMut(System) -> Vec<String>,
) -> Result {
    let mut group = None;
    for system in summary.systems() {
        let synced = system.syncs_before_it_answers();
        if group.replace(synced) != Some(synced) {
            let name = if synced { "*synced before the answer*" } else { "*synced later*" };
            writeln!(out, "| {name} |{}", " |".repeat(columns))?;
        }
        writeln!(out, "| {} | {} |", system.label(), cells(system).join(" | "))?;
    }
    writeln!(out)
}

fn rates(out: &mut String, summary: &Summary) -> Result {
    let loads = [Load::Serial, Load::Inflight, Load::Clients, Load::Consume];
    writeln!(out, "## Events per second\n")?;
    head(out, "", &loads.map(Load::title))?;
    rows(out, summary, loads.len(), |system| {
        let cell = |load| match (summary.cell(load, system), summary.to_millrace(load, system)) {
            (Some(cell), Some(ratio)) => format!("{} [{}]", whole(cell.rate), times(ratio)),
            (Some(cell), None) => whole(cell.rate),
            (None, _) => "-".to_owned(),
        };
        loads.map(cell).to_vec()
    })
}

fn latencies(out: &mut String, summary: &Summary) -> Result {
    let columns = ["one at a time p50", "p99", "8 clients p50", "p99", "fan-out p50", "p99"];
    writeln!(out, "## Latency in ms: confirmed publish; publish to arrival for the fan-out\n")?;
    head(out, "", &columns)?;
    rows(out, summary, columns.len(), |system| {
        let mut cells = Vec::new();
        for load in [Load::Serial, Load::Clients, Load::Fanout] {
            let cell = summary.cell(load, system);
            let values: [fn(&Cell) -> Option<Spread>; 2] = [|cell| cell.p50_ms, |cell| cell.p99_ms];
            cells.extend(values.map(|value| cell.and_then(value).map_or("-".to_owned(), fine)));
        }
        cells
    })
}

fn syncs(out: &mut String, summary: &Summary, counted: &[Syncs]) -> Result {
    let loads = [Load::Serial, Load::Inflight, Load::Clients];
    writeln!(out, "## Syncs, counted with strace in a run of their own: events / syncs = events per sync\n")?;
    head(out, "", &loads.map(Load::title))?;
    rows(out, summary, loads.len(), |system| {
        let cell = |load| {
            let count = counted.iter().find(|count| count.system == system && count.load == load);
            count.map_or("-".to_owned(), |Syncs { events, syncs, .. }| match syncs {
                0 => format!("{events} / 0, none"),
                _ => format!("{events} / {syncs} = {:.1}", *events as f64 / *syncs as f64),
            })
        };
        loads.map(cell).to_vec()
    })
}

fn probes(out: &mut String, summary: &Summary) -> Result {
    writeln!(
        out,
        "## Disk probe beside each figure: write 256 B + fdatasync, p50 in ms; file grows / is overwritten\n"
    )?;
    head(out, "", &Load::ALL.map(Load::title))?;
    rows(out, summary, Load::ALL.len(), |system| {
        let both = |cell: &Cell| format!("{:.3} / {:.3}", cell.probe_ms, cell.overwriting_ms);
        let cell = |load| summary.cell(load, system).map_or("-".to_owned(), both);
        Load::ALL.map(cell).to_vec()
    })
}

fn aims(out: &mut String, report: &PeersReport) -> Result {
    writeln!(out, "## Aims\n")?;
    head(out, "aim", &["wanted", "this run", ""])?;
    for one in &report.aims {
        let verdict = match one.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "**short**",
            Verdict::Disturbed => "no verdict: the probe was disturbed",
        };
        writeln!(out, "| {} | {} | {} | {verdict} |", one.aim, one.want, one.got)?;
    }
    Ok(())
}

fn whole(Spread { median, min, max }: Spread) -> String {
    format!("{} ({}-{})", count(median), count(min), count(max))
}

fn fine(Spread { median, min, max }: Spread) -> String {
    format!("{median:.2} ({min:.2}-{max:.2})")
}

fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 9.95 => format!("{ratio:.0} x"),
        ratio => format!("{ratio:.2} x"),
    }
}

/// A number with commas between thousands.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::aims::judge;
    use crate::report::tests::samples;

    pub(crate) fn report() -> PeersReport {
        let samples = samples();
        let aims = judge(&Summary::of(&samples));
        let syncs = vec![
            Syncs { system: System::Millrace, load: Load::Inflight, events: 1000, syncs: 8 },
            Syncs { system: System::NatsDefault, load: Load::Serial, events: 500, syncs: 0 },
        ];
        let versions = vec!["one 1.0".to_owned()];
        PeersReport {
            cores: 2,
            load_before: "0.10".to_owned(),
            versions,
            rounds: 3,
            seconds: 2.0,
            payload_bytes: 256,
            samples,
            syncs,
            aims,
        }
    }

    #[test]
    fn every_row_has_as_many_cells_as_its_head() {
        let text = write(&report()).expect("written");
        let mut columns = 0;
        for line in text.lines() {
            match line.starts_with('|') {
                true if columns == 0 => columns = line.matches('|').count(),
                true => assert_eq!(line.matches('|').count(), columns, "{line}"),
                false => columns = 0,
            }
        }
    }

    #[test]
    fn a_row_tells_median_spread_and_ratio() {
        let text = write(&report()).expect("written");
        assert!(text.contains("| NATS always | 2,002 (2,001-2,003) [2.00 x] |"), "{text}");
        assert!(text.contains("1000 / 8 = 125.0"), "{text}");
        assert!(text.contains("500 / 0, none"), "{text}");
        assert!(text.contains("**short**"), "{text}");
        assert!(text.contains("| 0.100 / 0.080 |"), "{text}");
        assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!([999.0, 1000.0, 1_234_567.0].map(count), ["999", "1,000", "1,234,567"]);
    }
}
