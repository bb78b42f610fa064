//! The Prometheus text format, version 0.0.4: families with one HELP and one TYPE each.

use std::borrow::Cow;
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

    /// A family of another name space than ours: the names that every process has.
    pub(crate) fn process(&mut self, kind: &str, name: &str, help: &str, value: impl Display) {
        let _ = write!(self.0, "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\n");
        let _ = writeln!(self.0, "process_{name} {value}");
    }

    pub(crate) fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "millrace_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// Writes a histogram. `unit` is the value of 1 in `view`, in the unit of the metric.
    pub(crate) fn histogram(&mut self, name: &str, help: &str, view: &HistogramView, unit: f64) {
        self.head("histogram", name, help);
        self.buckets(name, None, view, unit);
    }

    /// Writes the lines of a histogram below its head.
    pub(crate) fn buckets(
        &mut self,
        name: &str,
        label: Option<(&str, &str)>,
        view: &HistogramView,
        unit: f64,
    ) {
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (bound, in_bucket) in view.bounds.iter().zip(&view.counts) {
            count += in_bucket;
            let bound = (*bound as f64 * unit * 1e9).round() / 1e9;
            let bound = bound.to_string();
            let labels: Vec<_> = label.into_iter().chain([("le", bound.as_str())]).collect();
            self.labelled(&bucket, &labels, count);
        }
        let total: u64 = view.counts.iter().sum();
        let labels: Vec<_> = label.into_iter().chain([("le", "+Inf")]).collect();
        self.labelled(&bucket, &labels, total);
        self.labelled(&format!("{name}_sum"), label.as_slice(), view.sum as f64 * unit);
        self.labelled(&format!("{name}_count"), label.as_slice(), total);
    }
}

/// The text of a label's value. Most are names whose alphabet needs no escape.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut page = Page::default();
        page.labelled("x", &[("schedule", "a \"b\"\\\nc")], 1);
        assert_eq!(page.text(), "millrace_x{schedule=\"a \\\"b\\\"\\\\\\nc\"} 1\n");
    }

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
