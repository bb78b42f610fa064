//! The physical limit of a confirmed publish: append 256 bytes to a file and wait until they are on disk.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use crate::error::BenchError;
use crate::figures::Latencies;

const PROBE_SYNCS: usize = 200;

pub(crate) fn probe(folder: &Path) -> Result<Latencies, BenchError> {
    let path = folder.join("probe");
    let doing = "probing the disk";
    let mut file = File::create(&path).map_err(|source| BenchError::io(doing, source))?;
    let mut latencies = Latencies::default();
    for _ in 0..PROBE_SYNCS {
        let begun = Instant::now();
        file.write_all(&[0x5a; 256]).map_err(|source| BenchError::io(doing, source))?;
        file.sync_data().map_err(|source| BenchError::io(doing, source))?;
        latencies.push(begun.elapsed());
    }
    std::fs::remove_file(&path).map_err(|source| BenchError::io(doing, source))?;
    Ok(latencies)
}
