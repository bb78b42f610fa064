//! Shows the progress of a long operation: a bar on a terminal, plain lines in a pipe. Always on stderr.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

const LINE_INTERVAL: Duration = Duration::from_secs(5);

pub(super) enum Progress {
    Bar(ProgressBar),
    Lines { done: u64, total: Option<u64>, last: Instant },
}

impl Progress {
    pub(super) fn new(total: Option<u64>) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::Lines { done: 0, total, last: Instant::now() };
        }
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{bar:40} {human_pos}/{human_len} {per_sec} {eta}"),
            None => (ProgressBar::new_spinner(), "{spinner} {human_pos} {per_sec}"),
        };
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Progress::Bar(bar)
    }

    pub(super) fn one_more(&mut self) {
        match self {
            Progress::Bar(bar) => bar.inc(1),
            Progress::Lines { done, total, last } => {
                *done += 1;
                if last.elapsed() >= LINE_INTERVAL {
                    *last = Instant::now();
                    let of = total.map_or_else(String::new, |total| format!(" of {total}"));
                    say_line(&format!("{done}{of} events confirmed"));
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Writes a line to stderr. A write error is ignored: it must not end the work.
pub(super) fn say_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Shows an operation of named steps: the current step on a terminal, one line per step in a pipe.
pub(super) struct Steps(Option<ProgressBar>);

impl Steps {
    pub(super) fn new() -> Steps {
        Steps(std::io::stderr().is_terminal().then(ProgressBar::new_spinner))
    }

    pub(super) fn say(&self, step: &str) {
        match &self.0 {
            Some(bar) => {
                bar.set_message(step.to_owned());
                bar.tick();
            }
            None => say_line(step),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
