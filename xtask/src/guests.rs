//! `cargo xtask guests`: compiles the C guests of `examples/guests` to WebAssembly, into `target/guests`.
//!
//! The compiler flags are in `examples/guests/clang.flags`; the tests of `millrace guest` read the same file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{needs, repo};

const FOLDER: &str = "examples/guests";
const COMMANDS: [&str; 2] = ["clang", "wasm-ld"];

pub(crate) fn run() -> Result<()> {
    needs::ensure_commands(|command| COMMANDS.contains(&command))?;
    let folder = repo::root().join(FOLDER);
    let compiled = repo::target().join("guests");
    fs::create_dir_all(&compiled).with_context(|| format!("cannot make {}", compiled.display()))?;
    for source in sources(&folder)? {
        let name = source.file_stem().unwrap_or_default();
        let to = compiled.join(name).with_extension("wasm");
        compile(&folder, &source, &to)?;
        println!("{}", to.display());
    }
    Ok(())
}

/// Returns the C files of the folder, sorted.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut sources: Vec<PathBuf> = paths.collect::<Result<_>>()?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    sources.sort();
    Ok(sources)
}

fn compile(folder: &Path, source: &Path, to: &Path) -> Result<()> {
    let status = Command::new("clang")
        .arg("@clang.flags")
        .arg("-o")
        .args([to, source])
        .current_dir(folder)
        .status()
        .context("cannot start clang")?;
    if !status.success() {
        bail!("clang does not compile {}", source.display());
    }
    Ok(())
}
