//! The parameters of a scenario: the server, the options, the disk probe and the collector of figures.

use std::time::{Duration, Instant};

use super::server::BenchServer;
use crate::BenchOptions;
use crate::error::BenchError;
use crate::probe::{Probe, SLICES, slice_time};
use crate::report::Collector;

pub(crate) struct BusStage<'a> {
    pub(crate) server: &'a mut BenchServer,
    pub(crate) options: &'a BenchOptions,
    pub(crate) probe: &'a mut Probe,
    pub(crate) out: &'a mut Collector,
    /// Appended to the names of the load's topics, for a server that gets the same load more than once.
    pub(crate) suffix: &'a str,
}

impl BusStage<'_> {
    /// Runs `load` for each slice, with a probe before each. The load is told when its slice ends. Returns the time
    /// spent in loads.
    pub(crate) fn slices(
        &mut self,
        mut load: impl FnMut(Instant) -> Result<(), BenchError>,
    ) -> Result<Duration, BenchError> {
        let mut busy = Duration::ZERO;
        for _ in 0..SLICES {
            self.options.go_on()?;
            self.probe.slice()?;
            let begun = Instant::now();
            load(begun + slice_time(self.options))?;
            busy += begun.elapsed();
        }
        Ok(busy)
    }
}
