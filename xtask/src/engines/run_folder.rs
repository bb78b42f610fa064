//! The folder with the data and logs of the engines that one call of xtask has started.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result};

use super::engine::Engine;
use super::install::entries;

const LEFTOVERS: &str = "leftovers";

pub(super) struct RunFolder {
    pub(super) path: PathBuf,
}

impl RunFolder {
    /// Makes the folder, named after this process, and removes those of processes that were killed.
    pub(super) fn new(runs: &Path) -> Result<RunFolder> {
        let path = runs.join(std::process::id().to_string());
        if let Ok(entries) = fs::read_dir(runs) {
            let dead = entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| is_over(path));
            for path in dead {
                remove(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(RunFolder { path })
    }

    /// Makes an empty folder for an engine.
    pub(super) fn of_engine(&self, engine: &dyn Engine) -> Result<PathBuf> {
        let path = self.path.join(engine.name().to_lowercase());
        if path.exists() {
            remove_engine(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            eprintln!("engines: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Writes down files that an engine leaves outside its folder, so that they go with the folder.
pub(super) fn note_leftovers(engine: &Path, files: &[String]) -> Result<()> {
    fs::write(engine.join(LEFTOVERS), files.join("\n")).context("cannot note the leftovers of an engine")
}

fn remove(run: &Path) -> io::Result<()> {
    entries(run).iter().try_for_each(|engine| remove_engine(engine))?;
    fs::remove_dir_all(run)
}

fn remove_engine(engine: &Path) -> io::Result<()> {
    for file in fs::read_to_string(engine.join(LEFTOVERS)).unwrap_or_default().lines() {
        // Not all of them exist.
        let _ = fs::remove_file(file);
    }
    fs::remove_dir_all(engine)
}

/// Returns whether the process of this folder has ended, or is this one, whose number was used before.
fn is_over(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    let is_ours = name.to_str() == Some(&std::process::id().to_string());
    is_ours || !Path::new("/proc").join(name).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_go_with_the_folder() {
        let run = crate::repo::target().join(format!("engines-run-{}", std::process::id()));
        let (engine, outside) = (run.join("mill"), run.with_extension("sock"));
        fs::create_dir_all(&engine).unwrap();
        fs::write(&outside, "").unwrap();
        let files = [outside.display().to_string(), "/no-such-folder/no-such-file".to_owned()];
        note_leftovers(&engine, &files).unwrap();
        remove(&run).unwrap();
        assert!(!run.exists() && !outside.exists());
    }

    #[test]
    fn the_folder_of_a_living_process_is_left_alone() {
        assert!(is_over(Path::new("run").join(std::process::id().to_string()).as_path()));
        assert!(is_over(Path::new("run/999999999")), "no process has this number");
        assert!(!is_over(Path::new("run/1")));
    }
}
