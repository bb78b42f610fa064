//! The physical limit of a confirmed publish: write 256 bytes and wait until they are on disk.
//!
//! Two files are written. The first grows, as an append-only file does: every sync also writes the file's new length.
//! The second was written before and is overwritten, as a log is that has started over: a sync writes the bytes alone.
//!
//! A disk's pace changes within seconds, so probes are taken in short slices between short slices of load, and the
//! median of the slices is reported beside the load's figures.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::BenchOptions;
use crate::error::BenchError;
use crate::figures::{Latencies, Rounds};

/// How often load and probe alternate within a scenario.
pub(crate) const SLICES: u32 = 10;
const SYNCS_PER_SLICE: usize = 20;
const WRITE: [u8; 256] = [0x5a; 256];
/// Bytes of the file that is overwritten. Its space is filled once, because a sync after the first write to space that
/// is only reserved writes more than the bytes.
const OVERWRITTEN: usize = 1 << 20;

#[derive(Debug)]
pub struct Probe {
    growing: File,
    growing_slices: Rounds,
    overwritten: File,
    /// Where the next 256 bytes go.
    at: usize,
    overwritten_slices: Rounds,
}

impl Probe {
    /// Opens the probe's files in the folder that the load writes to, so that both use the same disk.
    pub fn open(folder: &Path) -> Result<Probe, BenchError> {
        let growing = File::create(folder.join("probe")).map_err(wrong)?;
        let overwritten = File::create(folder.join("probe-overwritten")).map_err(wrong)?;
        overwritten.write_all_at(&vec![0xa5; OVERWRITTEN], 0).map_err(wrong)?;
        overwritten.sync_all().map_err(wrong)?;
        Ok(Probe {
            growing,
            growing_slices: Rounds::default(),
            overwritten,
            at: 0,
            overwritten_slices: Rounds::default(),
        })
    }

    pub fn slice(&mut self) -> Result<(), BenchError> {
        let grow = median_of_syncs(&self.growing, || (&self.growing).write_all(&WRITE))?;
        self.growing_slices.push(grow);
        let overwrite = median_of_syncs(&self.overwritten, || {
            let at = self.at;
            self.at = (at + WRITE.len()) % OVERWRITTEN;
            self.overwritten.write_all_at(&WRITE, at as u64)
        })?;
        self.overwritten_slices.push(overwrite);
        Ok(())
    }

    /// The probe of the file that grows.
    pub fn median_ms(&self) -> f64 {
        self.growing_slices.median()
    }

    /// The probe of the file that is overwritten.
    pub fn overwriting_ms(&self) -> f64 {
        self.overwritten_slices.median()
    }
}

fn median_of_syncs(file: &File, mut write: impl FnMut() -> std::io::Result<()>) -> Result<f64, BenchError> {
    let mut latencies = Latencies::default();
    for _ in 0..SYNCS_PER_SLICE {
        let begun = Instant::now();
        write().map_err(wrong)?;
        file.sync_data().map_err(wrong)?;
        latencies.push(begun.elapsed());
    }
    Ok(latencies.quantile_ms(0.5))
}

/// How long one slice of a timed load runs.
pub(crate) fn slice_time(options: &BenchOptions) -> Duration {
    Duration::from_secs_f64(options.seconds) / SLICES
}

fn wrong(source: std::io::Error) -> BenchError {
    BenchError::io("probing the disk", source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_grows_and_the_other_keeps_its_length() {
        let folder = tempfile::tempdir().expect("a folder");
        let length = |name| std::fs::metadata(folder.path().join(name)).expect("a file").len();
        let mut probe = Probe::open(folder.path()).expect("a probe");
        for slice in 1..=3 {
            probe.slice().expect("a slice");
            assert_eq!(length("probe"), (slice * SYNCS_PER_SLICE * WRITE.len()) as u64);
            assert_eq!(length("probe-overwritten"), OVERWRITTEN as u64);
        }
        assert!(probe.median_ms() > 0.0 && probe.overwriting_ms() > 0.0);
    }

    #[test]
    fn the_overwritten_file_starts_over_at_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut probe = Probe::open(folder.path()).expect("a probe");
        probe.at = OVERWRITTEN - WRITE.len();
        probe.slice().expect("a slice");
        assert_eq!(probe.at, (SYNCS_PER_SLICE - 1) * WRITE.len());
    }
}
