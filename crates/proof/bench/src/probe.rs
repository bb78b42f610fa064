//! The physical limit of a confirmed publish: append 256 bytes to a file and wait until they are on disk.
//!
//! A disk's pace changes within seconds, so probes are taken in short slices between short slices of load, and the
//! median of the slices is reported beside the load's figures.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::BenchOptions;
use crate::error::BenchError;
use crate::figures::{Latencies, Rounds};

/// How often load and probe alternate within a scenario.
pub(crate) const SLICES: u32 = 10;
const SYNCS_PER_SLICE: usize = 20;

#[derive(Debug)]
pub struct Probe {
    file: File,
    slices: Rounds,
}

impl Probe {
    /// Opens the probe's file in the folder that the load writes to, so that both use the same disk.
    pub fn open(folder: &Path) -> Result<Probe, BenchError> {
        let file = File::create(folder.join("probe")).map_err(wrong)?;
        Ok(Probe { file, slices: Rounds::default() })
    }

    pub fn slice(&mut self) -> Result<(), BenchError> {
        let mut latencies = Latencies::default();
        for _ in 0..SYNCS_PER_SLICE {
            let begun = Instant::now();
            self.file.write_all(&[0x5a; 256]).map_err(wrong)?;
            self.file.sync_data().map_err(wrong)?;
            latencies.push(begun.elapsed());
        }
        self.slices.push(latencies.quantile_ms(0.5));
        Ok(())
    }

    pub fn median_ms(&self) -> f64 {
        self.slices.median()
    }
}

/// How long one slice of a timed load runs.
pub(crate) fn slice_time(options: &BenchOptions) -> Duration {
    Duration::from_secs_f64(options.seconds) / SLICES
}

fn wrong(source: std::io::Error) -> BenchError {
    BenchError::io("probing the disk", source)
}
