//! The files of the package: from `packaging/`, from the binary, from cargo and git.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo;

pub(crate) const UNIT: &str = "usr/lib/systemd/system/millrace.service";
pub(crate) const CONFIG: &str = "etc/millrace/millrace.toml";
pub(crate) const PROGRAM: &str = "usr/bin/millrace";
pub(crate) const DOCS: &str = "usr/share/doc/millrace";
pub(crate) const MAN: &str = "usr/share/man/man1";
/// Shells, and where each looks for the completions of packages.
pub(crate) const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/millrace"),
    ("zsh", "usr/share/zsh/vendor-completions/_millrace"),
    ("fish", "usr/share/fish/vendor_completions.d/millrace.fish"),
];

/// A folder that becomes the package.
pub(crate) struct Tree(pub(crate) PathBuf);

impl Tree {
    /// Begins with an empty folder.
    pub(crate) fn new(folder: PathBuf) -> Result<Tree> {
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Tree(folder))
    }

    /// Writes a file, whatever the umask is.
    pub(crate) fn put(&self, path: &str, mode: u32, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let file = self.place(path)?;
        fs::write(&file, content).with_context(|| format!("cannot write {}", file.display()))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        Ok(file)
    }

    /// Returns the path of a file, whose folder exists then.
    fn place(&self, path: &str) -> Result<PathBuf> {
        let file = self.0.join(path);
        let folder = file.parent().unwrap_or(&self.0);
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut folder = folder;
        while folder.starts_with(&self.0) {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
            let Some(parent) = folder.parent() else { break };
            folder = parent;
        }
        Ok(file)
    }

    pub(crate) fn program(&self, binary: &Path) -> Result<()> {
        let to = self.place(PROGRAM)?;
        run(Command::new("strip").arg("--strip-debug").arg("-o").args([to.as_path(), binary]))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    pub(crate) fn service(&self) -> Result<()> {
        self.put(UNIT, 0o644, source("packaging/millrace.service")?)?;
        self.put(CONFIG, 0o644, source("packaging/millrace.toml")?)?;
        Ok(())
    }

    pub(crate) fn pages_and_completions(&self, binary: &Path) -> Result<()> {
        let folder = self.place(&format!("{MAN}/page"))?;
        let folder = folder.parent().unwrap_or(&self.0);
        run(Command::new(binary).arg("man").arg(folder))?;
        for page in fs::read_dir(folder)? {
            let page = page?.path();
            fs::set_permissions(&page, fs::Permissions::from_mode(0o644))?;
            compress(&page)?;
        }
        for (shell, path) in COMPLETIONS {
            let script = output(Command::new(binary).args(["completions", shell]))?;
            self.put(path, 0o644, script)?;
        }
        Ok(())
    }

    pub(crate) fn documents(&self, version: &str) -> Result<()> {
        let mit = source("LICENSE-MIT")?;
        // The format wants each line indented, and a dot where one is empty.
        let lines =
            mit.lines().map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") });
        let mit = lines.collect::<Vec<_>>().join("\n");
        let copyright = source("packaging/debian/copyright")?.replace("@MIT@", &mit);
        self.put(&format!("{DOCS}/copyright"), 0o644, copyright)?;
        self.put(&format!("{DOCS}/crates.txt"), 0o644, crates()?)?;
        let date = repo::output("git", &["log", "-1", "--format=%aD"])?;
        let entry = format!(
            "millrace ({version}) unstable; urgency=medium\n\n  * Built by cargo xtask deb; changelog.gz has the changes.\n\n \
             -- The Millrace authors <millrace@packages.invalid>  {}\n",
            date.trim()
        );
        compress(&self.put(&format!("{DOCS}/changelog.Debian"), 0o644, entry)?)?;
        compress(&self.put(&format!("{DOCS}/changelog"), 0o644, source("CHANGELOG.md")?)?)?;
        let overrides = source("packaging/debian/lintian-overrides")?;
        self.put("usr/share/lintian/overrides/millrace", 0o644, overrides)?;
        Ok(())
    }
}

/// Returns a file of the repository.
pub(crate) fn source(path: &str) -> Result<String> {
    fs::read_to_string(repo::root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// Returns the crates that the binary contains, each with its version and its licence.
fn crates() -> Result<String> {
    let args = ["tree", "--locked", "--package", "millrace-cli", "--edges", "normal"];
    let output = repo::cargo_command(&args).args(["--prefix", "none", "--format", "{p} ({l})"]).output()?;
    if !output.status.success() {
        bail!("`cargo tree` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    let theirs: BTreeSet<&str> =
        tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| is_foreign(line)).collect();
    Ok(theirs.into_iter().map(|line| format!("{line}\n")).collect())
}

/// The project's own crates are shown with their path.
fn is_foreign(line: &str) -> bool {
    !line.is_empty() && !line.contains(" (/")
}

/// Without a name and a time, so that the same content gives the same file.
fn compress(file: &Path) -> Result<()> {
    run(Command::new("gzip").args(["-9", "-n", "-f"]).arg(file))
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{command:?} failed: {stdout}{stderr}");
    }
    Ok(stdout.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crates_of_others_are_listed() {
        assert!(is_foreign("tokio v1.54.1 (MIT)"));
        assert!(!is_foreign("millrace-cli v0.1.0 (/src/crates/faces/cli) (MIT OR Apache-2.0)"));
    }
}
