//! Packs the folder: what `dpkg-deb` needs to know beside the files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::contents::{CONFIG, Tree, output, run, source};
use crate::repo;

/// The revision of the packaging; the version of the program stands before it.
const REVISION: &str = "1";
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// For packages that are handed out.
    Small,
    /// For the tests, whose binary is large.
    Fast,
}

/// Builds the package of a binary and returns its path.
pub(crate) fn build(binary: &Path, compression: Compression) -> Result<PathBuf> {
    let version = format!("{}-{REVISION}", version_of(binary)?);
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let folder = repo::target().join("debian");
    let tree = Tree::new(folder.join("millrace"))?;
    tree.program(binary)?;
    tree.service()?;
    tree.pages_and_completions(binary)?;
    tree.documents(&version)?;
    control(&tree, &version, &architecture)?;
    let package = folder.join(format!("millrace_{version}_{architecture}.deb"));
    let compressed: &[&str] = match compression {
        Compression::Small => &["-Zxz"],
        Compression::Fast => &["-Zgzip", "-z1"],
    };
    // Files get the time of the commit, so that the same commit gives the same package.
    let time = repo::output("git", &["log", "-1", "--format=%ct"])?;
    let mut pack = Command::new("dpkg-deb");
    pack.env("SOURCE_DATE_EPOCH", time.trim()).arg("--root-owner-group").args(compressed);
    run(pack.arg("--build").args([&tree.0, &package]))?;
    Ok(package)
}

/// Asked of the binary, which may be of another commit than the manifests here.
fn version_of(binary: &Path) -> Result<String> {
    let said = output(Command::new(binary).arg("--version"))?;
    let version = said.trim().strip_prefix("millrace ");
    version.map(str::to_owned).with_context(|| format!("{} is no millrace: {said}", binary.display()))
}

fn control(tree: &Tree, version: &str, architecture: &str) -> Result<()> {
    let files = files_below(&tree.0, "")?;
    let mut kib = 0;
    for file in &files {
        kib += fs::metadata(tree.0.join(file))?.len().div_ceil(1024);
    }
    let libc = repo::output("getconf", &["GNU_LIBC_VERSION"])?;
    let glibc = libc.trim().strip_prefix("glibc ").context("a package needs a binary for glibc")?;
    let control = source("packaging/debian/control")?;
    let filled = [
        ("@VERSION@", version),
        ("@ARCHITECTURE@", architecture),
        ("@KIB@", &kib.to_string()),
        ("@GLIBC@", glibc),
    ]
    .iter()
    .fold(control, |control, (mark, value)| control.replace(mark, value));
    if filled.contains('@') && filled.lines().any(|line| line.contains(": @")) {
        bail!("packaging/debian/control has a mark that nothing fills:\n{filled}");
    }
    let sums = output(Command::new("md5sum").args(&files).current_dir(&tree.0))?;
    tree.put("DEBIAN/control", 0o644, filled)?;
    tree.put("DEBIAN/md5sums", 0o644, sums)?;
    tree.put("DEBIAN/conffiles", 0o644, format!("/{CONFIG}\n"))?;
    for script in SCRIPTS {
        tree.put(&format!("DEBIAN/{script}"), 0o755, source(&format!("packaging/debian/{script}"))?)?;
    }
    Ok(())
}

/// Returns all files below a folder, relative to `root`, sorted.
fn files_below(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().context("a file name is not UTF-8")?;
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        if entry.file_type()?.is_dir() { found.extend(files_below(root, &path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}
