//! Lists the files below `web/`, so that a new file needs no entry anywhere, and derives a digest of all of them.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=web");
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("web");
    let mut paths = Vec::new();
    list(&root, &mut paths)?;
    // Folders are read in any order; the digest must not depend on it.
    paths.sort();
    let mut digest = FNV_START;
    let mut list = String::from("&[\n");
    for path in &paths {
        let name = path.strip_prefix(&root)?.to_str().ok_or("a file of web/ has a name that is not UTF-8")?;
        let bytes = fs::read(path)?;
        digest = fnv(fnv(digest, name.as_bytes()), &bytes);
        writeln!(list, "    File {{ path: {name:?}, bytes: include_bytes!({path:?}) }},")?;
    }
    list.push(']');
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    fs::write(out.join("files.rs"), list)?;
    fs::write(out.join("digest.rs"), format!("\"{digest:016x}\""))?;
    Ok(())
}

fn list(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, 64 bits: it tells one build's files from another's and protects nothing.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(start: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    // The length first, so that no two lists of files read as the same bytes.
    let start = (bytes.len() as u64).to_le_bytes().iter().fold(start, step);
    bytes.iter().fold(start, step)
}
