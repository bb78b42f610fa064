//! The Prometheus text format, version 0.0.4: families with one HELP and one TYPE each.

use std::fmt::{Display, Write};

use millrace_broker::HistogramView;

/// A page in that format. Writing into a `String` cannot fail, so the results of `write!` are ignored below.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn text(self) -> String {
        self.0
    }

    pub(crate) fn head(&mut self, kind: &str, name: &str, help: &str) {
        let _ = write!(self.0, "# HELP millrace_{name} {help}\n# TYPE millrace_{name} {kind}\n");
    }

    pub(crate) fn single(&mut self, kind: &str, name: &str, help: &str, value: u64) {
        self.head(kind, name, help);
        self.labelled(name, &[], value);
    }

    /// Label values are names and codes, whose alphabets need no escaping.
    pub(crate) fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "millrace_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// Writes a histogram. `unit` is the value of 1 in `view`, in the unit of the metric.
    pub(crate) fn histogram(&mut self, name: &str, help: &str, view: &HistogramView, unit: f64) {
        self.head("histogram", name, help);
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (bound, in_bucket) in view.bounds.iter().zip(&view.counts) {
            count += in_bucket;
            let bound = (*bound as f64 * unit * 1e9).round() / 1e9;
            self.labelled(&bucket, &[("le", &bound.to_string())], count);
        }
        let total: u64 = view.counts.iter().sum();
        self.labelled(&bucket, &[("le", "+Inf")], total);
        self.labelled(&format!("{name}_sum"), &[], view.sum as f64 * unit);
        self.labelled(&format!("{name}_count"), &[], total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_adds_up() {
        let view = HistogramView { bounds: &[100, 250, 500], counts: vec![1, 0, 2, 4], sum: 2_000_000 };
        let mut page = Page::default();
        page.histogram("x_seconds", "Help.", &view, 1e-6);
        let out = page.text();
        for line in [
            "_bucket{le=\"0.0001\"} 1",
            "_bucket{le=\"0.00025\"} 1",
            "_bucket{le=\"0.0005\"} 3",
            "_bucket{le=\"+Inf\"} 7",
            "_sum 2",
            "_count 7",
        ] {
            assert!(out.contains(&format!("millrace_x_seconds{line}\n")), "{out}");
        }
    }
}
