//! Stages of a verb: they run in order, each is timed, the first failure stops the rest, and a summary is printed at
//! the end.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub(crate) struct Stage<'a> {
    pub(crate) name: &'static str,
    pub(crate) action: Box<dyn FnOnce() -> Result<()> + 'a>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(name: &'static str, action: impl FnOnce() -> Result<()> + 'a) -> Self {
        Stage { name, action: Box::new(action) }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    NotReached,
}

pub(crate) fn run_all(stages: Vec<Stage<'_>>) -> Result<()> {
    let began = Instant::now();
    let mut lines = Vec::new();
    let mut failure = None;
    for stage in stages {
        let (outcome, took) = if failure.is_some() {
            (Outcome::NotReached, Duration::ZERO)
        } else {
            println!("\n== {} ({:.0} s since start)", stage.name, began.elapsed().as_secs_f64());
            let stage_began = Instant::now();
            let result = (stage.action)();
            let took = stage_began.elapsed();
            match result {
                Ok(()) => (Outcome::Passed, took),
                Err(error) => {
                    failure = Some((stage.name, error));
                    (Outcome::Failed, took)
                }
            }
        };
        lines.push(summary_line(stage.name, &outcome, took));
    }

    println!("\n== summary ({:.0} s)", began.elapsed().as_secs_f64());
    lines.iter().for_each(|line| println!("{line}"));
    match failure {
        None => Ok(()),
        Some((name, error)) => bail!("stage `{name}` failed: {error:#}"),
    }
}

fn summary_line(name: &str, outcome: &Outcome, took: Duration) -> String {
    match outcome {
        Outcome::Passed => format!("  ok           {name} ({:.1} s)", took.as_secs_f64()),
        Outcome::Failed => format!("  FAILED       {name} ({:.1} s)", took.as_secs_f64()),
        Outcome::NotReached => format!("  not reached  {name}"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_failing_stage_keeps_the_later_ones_from_running() {
        let ran = RefCell::new(Vec::new());
        let stages = vec![
            Stage::new("first", || {
                ran.borrow_mut().push("first");
                Ok(())
            }),
            Stage::new("second", || bail!("the weir is down")),
            Stage::new("third", || {
                ran.borrow_mut().push("third");
                Ok(())
            }),
        ];
        let error = run_all(stages).expect_err("the second stage fails").to_string();
        assert_eq!(error, "stage `second` failed: the weir is down");
        assert_eq!(*ran.borrow(), ["first"]);
    }

    #[test]
    fn the_summary_tells_a_stage_that_never_ran_from_one_that_passed() {
        let took = Duration::from_millis(1500);
        assert_eq!(summary_line("tidy", &Outcome::Passed, took), "  ok           tidy (1.5 s)");
        assert_eq!(summary_line("tidy", &Outcome::NotReached, took), "  not reached  tidy");
    }
}
