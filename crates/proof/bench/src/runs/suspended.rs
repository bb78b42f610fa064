//! The memory of runs that wait for their handlers.

use crate::error::BenchError;
use crate::report::Collector;
use crate::runs::scheduler::{SchedulerLoad, asks_once};

pub(super) fn measure(runs: usize, out: &mut Collector) -> Result<(), BenchError> {
    let before = memory_mb();
    let mut load = SchedulerLoad::empty();
    let script = asks_once();
    for _ in 0..runs {
        load.start(&script, None)?;
    }
    load.run_ready(&mut |_| {});
    let after = memory_mb();
    if let (Some(before), Some(after)) = (before, after) {
        out.add("suspended", "100,000 suspended runs", "MB", (after - before).max(0.0));
        out.add("suspended", "bytes per run", "bytes", (after - before).max(0.0) * 1e6 / runs as f64);
    }
    // The runs must outlive the measurement.
    drop(load);
    Ok(())
}

/// Resident memory of this process in MB (10^6 bytes), where the system tells.
fn memory_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().split(' ').next()?.parse::<f64>().ok().map(|kib| kib * 1024.0 / 1e6)
}
