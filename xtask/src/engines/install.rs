//! Installing in `target/engines`: folders that appear whole, and programs that say why they failed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Makes a folder under another name first, so that an installation that was interrupted is not taken for a whole one.
/// Returns whether it was missing.
pub(super) fn once(folder: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<bool> {
    if folder.exists() {
        return Ok(false);
    }
    let partial = PathBuf::from(format!("{}.partial", folder.display()));
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("cannot remove {}", partial.display()))?;
    }
    fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    make(&partial)?;
    fs::rename(&partial, folder).with_context(|| format!("cannot rename {}", partial.display()))?;
    Ok(true)
}

/// Installs packages of PyPI in a folder of their own, for `PYTHONPATH`.
pub(super) fn pip(folder: &Path, packages: &[&str]) -> Result<()> {
    let folder = folder.display().to_string();
    let options =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target"];
    run("python3", &[options.as_slice(), &[folder.as_str()], packages].concat(), Path::new(".")).map(|_| ())
}

/// Runs a program and returns its output. An error holds what the program said.
pub(super) fn run(program: &str, args: &[&str], folder: &Path) -> Result<String> {
    let output = Command::new(program).args(args).current_dir(folder).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}` failed: {}", args.join(" "), told.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the entries of a folder, sorted; none if there is no such folder.
pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_installation_is_made_again() {
        let folder = crate::repo::target().join(format!("engines-once-{}", std::process::id()));
        assert!(once(&folder, |_| bail!("the line is cut")).is_err());
        assert!(!folder.exists());
        assert!(once(&folder, |to| Ok(fs::write(to.join("program"), "")?)).unwrap());
        assert!(folder.join("program").exists());
        assert!(!once(&folder, |_| bail!("never called")).unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }
}
