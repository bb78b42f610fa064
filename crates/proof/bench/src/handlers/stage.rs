//! The parameters of a scenario: its folder, the options, the disk probe and the collector of figures.

use std::path::Path;
use std::time::{Duration, Instant};

use millrace::Session;

use crate::BenchOptions;
use crate::error::BenchError;
use crate::probe::{Probe, SLICES, slice_time};
use crate::report::Collector;

pub(crate) struct HandlersStage<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) options: &'a BenchOptions,
    pub(crate) probe: &'a mut Probe,
    pub(crate) out: &'a mut Collector,
}

impl HandlersStage<'_> {
    /// Opens a session on a file in the folder of this scenario.
    pub(crate) fn open(&self) -> Result<Session, BenchError> {
        open(&self.folder.join("bench.db"))
    }

    /// Runs `load` for each slice, with a probe before each. The load is told how long it should run and returns how
    /// long it ran.
    pub(crate) fn slices(
        &mut self,
        mut load: impl FnMut(Duration) -> Result<Duration, BenchError>,
    ) -> Result<Duration, BenchError> {
        let mut busy = Duration::ZERO;
        for _ in 0..SLICES {
            self.options.go_on()?;
            self.probe.slice()?;
            busy += load(slice_time(self.options))?;
        }
        Ok(busy)
    }
}

pub(crate) fn open(path: &Path) -> Result<Session, BenchError> {
    Ok(Session::open(&url_of(path)?)?)
}

pub(crate) fn url_of(path: &Path) -> Result<String, BenchError> {
    let path = std::path::absolute(path).map_err(|source| BenchError::io("finding the store", source))?;
    Ok(format!("sqlite:///{}", path.display()))
}

pub(crate) fn timed(work: impl FnOnce() -> Result<(), BenchError>) -> Result<Duration, BenchError> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}
