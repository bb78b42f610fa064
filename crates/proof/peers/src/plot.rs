//! The report as a picture: a panel per load, a row per system, a dot at the median and a whisker from the lowest to
//! the highest round, on a log scale. Plain SVG that follows the reader's light or dark scheme.

use std::fmt::{Error, Write};

use crate::report::{PeersReport, Spread, Summary};
use crate::system::{Load, System};
use crate::table::count;

const WIDTH: f64 = 860.0;
const PLOT_LEFT: f64 = 140.0;
const PLOT_RIGHT: f64 = 740.0;
const ROW: f64 = 20.0;
const TITLE: f64 = 34.0;
const AXIS: f64 = 26.0;
const TOP: f64 = 46.0;

const STYLE: &str = "\
svg { --ground: #ffffff; --ink: #1f2328; --faint: #d0d7de; --soft: #656d76; --ours: #0969da; --theirs: #9a6700; }
@media (prefers-color-scheme: dark) {
svg { --ground: #0d1117; --ink: #e6edf3; --faint: #30363d; --soft: #8d96a0; --ours: #58a6ff; --theirs: #d29922; } }
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.title { font-weight: 600; } .soft { fill: var(--soft); } .end { text-anchor: end; } .middle { text-anchor: middle; }
.ground { fill: var(--ground); } .grid { stroke: var(--faint); stroke-width: 1; }
.ours { stroke: var(--ours); fill: var(--ours); } .theirs { stroke: var(--theirs); fill: var(--theirs); }
line.ours, line.theirs { stroke-width: 2; } circle { stroke-width: 2; } circle.later { fill: var(--ground); }
";

struct Panel {
    title: String,
    marks: Vec<Mark>,
    unit: fn(f64) -> String,
}

struct Mark {
    system: System,
    label: String,
    spread: Spread,
}

pub(crate) fn draw(report: &PeersReport) -> Result<String, Error> {
    let summary = Summary::of(&report.samples);
    let panels: Vec<Panel> = panels(&summary).into_iter().filter(|panel| !panel.marks.is_empty()).collect();
    let height = TOP + panels.iter().map(Panel::height).sum::<f64>();
    let mut out = String::new();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"Millrace beside NATS, Redis and PostgreSQL\">\n<style>\n{STYLE}</style>"
    )?;
    writeln!(out, "<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>")?;
    writeln!(
        out,
        "<text class=\"soft\" x=\"12\" y=\"24\">Filled: synced before the answer. Hollow: synced later. Dot: median of {} \
         rounds, whisker: lowest to highest. Log scale.</text>",
        report.rounds
    )?;
    let mut top = TOP;
    for panel in &panels {
        panel.draw(&mut out, top)?;
        top += panel.height();
    }
    writeln!(out, "</svg>")?;
    Ok(out)
}

fn panels(summary: &Summary) -> Vec<Panel> {
    let mark = |system: System, what: &str, spread| Mark {
        system,
        label: format!("{}{what}", system.label()),
        spread,
    };
    let mut panels = Vec::new();
    for load in [Load::Serial, Load::Inflight, Load::Clients, Load::Consume] {
        let marks = summary.systems().into_iter();
        let marks = marks.filter_map(|system| Some(mark(system, "", summary.cell(load, system)?.rate)));
        let title = format!("{}: events/s, more is better", load.title());
        panels.push(Panel { title, marks: marks.collect(), unit: count });
    }
    let mut marks = Vec::new();
    for system in summary.systems() {
        let Some(cell) = summary.cell(Load::Fanout, system) else { continue };
        marks.extend(cell.p50_ms.map(|spread| mark(system, " p50", spread)));
        marks.extend(cell.p99_ms.map(|spread| mark(system, " p99", spread)));
    }
    let title = format!("{}: publish to arrival, less is better", Load::Fanout.title());
    panels.push(Panel { title, marks, unit: |ms| format!("{ms:.2} ms") });
    panels
}

impl Panel {
    fn height(&self) -> f64 {
        TITLE + ROW * self.marks.len() as f64 + AXIS
    }

    /// The smallest range of whole decades that holds every value shown.
    fn decades(&self) -> (f64, f64) {
        let positive = |value: f64| value.max(1e-6).log10();
        let low = self.marks.iter().map(|mark| positive(mark.spread.min).floor()).fold(f64::MAX, f64::min);
        let high = self.marks.iter().map(|mark| positive(mark.spread.max).ceil()).fold(f64::MIN, f64::max);
        (low, high.max(low + 1.0))
    }

    fn draw(&self, out: &mut String, top: f64) -> Result<(), Error> {
        let (low, high) = self.decades();
        let x = |value: f64| {
            let share = (value.max(1e-6).log10() - low) / (high - low);
            PLOT_LEFT + share.clamp(0.0, 1.0) * (PLOT_RIGHT - PLOT_LEFT)
        };
        let rows = top + TITLE;
        let bottom = rows + ROW * self.marks.len() as f64;
        writeln!(out, "<text class=\"title\" x=\"12\" y=\"{}\">{}</text>", top + 20.0, self.title)?;
        let mut decade = low;
        while decade <= high {
            let value = 10f64.powf(decade);
            let (at, tick) = (x(value), (self.unit)(value));
            writeln!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{rows}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>"
            )?;
            writeln!(out, "<text class=\"soft middle\" x=\"{at:.1}\" y=\"{}\">{tick}</text>", bottom + 15.0)?;
            decade += 1.0;
        }
        for (number, Mark { system, label, spread }) in self.marks.iter().enumerate() {
            let y = rows + ROW * (number as f64 + 0.5);
            let class = if *system == System::Millrace { "ours" } else { "theirs" };
            let later = if system.syncs_before_it_answers() { "" } else { " later" };
            let text = y + 4.0;
            writeln!(out, "<text class=\"end\" x=\"{}\" y=\"{text}\">{label}</text>", PLOT_LEFT - 10.0)?;
            writeln!(
                out,
                "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{y}\" x2=\"{:.1}\" y2=\"{y}\"/>",
                x(spread.min),
                x(spread.max)
            )?;
            writeln!(
                out,
                "<circle class=\"{class}{later}\" cx=\"{:.1}\" cy=\"{y}\" r=\"5\"/>",
                x(spread.median)
            )?;
            let value = (self.unit)(spread.median);
            writeln!(out, "<text x=\"{}\" y=\"{text}\">{value}</text>", PLOT_RIGHT + 12.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::report;

    #[test]
    fn there_is_a_dot_and_a_whisker_per_figure() {
        let svg = draw(&report()).expect("drawn");
        // Six systems in four panels of rates, and p50 and p99 of the fan-out.
        assert_eq!(svg.matches("<circle").count(), 6 * 4 + 6 * 2);
        assert_eq!(svg.matches("<line class=\"ours\"").count(), 4 + 2);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn nothing_is_drawn_outside_the_plot() {
        let mut report = report();
        report.samples[0].rate = 0.0;
        let svg = draw(&report).expect("drawn");
        let dots = svg.split("cx=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse::<f64>().ok());
        for at in dots {
            assert!((PLOT_LEFT..=PLOT_RIGHT).contains(&at), "{at}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn an_empty_report_is_still_a_picture() {
        let svg = draw(&PeersReport { samples: Vec::new(), ..report() }).expect("drawn");
        assert!(svg.ends_with("</svg>\n"));
    }
}
