//! Debian packages that are unpacked into a folder instead of being installed. apt gets package lists and a cache of
//! its own, so that the system's are not changed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::install::{entries, run};

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub(super) struct Apt {
    folder: PathBuf,
    options: Vec<String>,
}

impl Apt {
    /// Reads the package lists of the system's sources.
    pub(super) fn of_system(folder: &Path) -> Result<Apt> {
        Apt::new(folder, Vec::new())
    }

    /// Reads the package lists of another release, from the mirror that the system uses.
    pub(super) fn of_release(folder: &Path, release: &str) -> Result<Apt> {
        let targets = run(
            "apt-get",
            &["indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"],
            Path::new("/"),
        )?;
        let mirror = mirror(&targets).context("apt has no source of Debian packages")?;
        let sources = folder.join("sources.list");
        fs::write(&sources, format!("deb [signed-by={KEYS}] {mirror} {release} main\n"))
            .with_context(|| format!("cannot write {}", sources.display()))?;
        let sources = format!("Dir::Etc::SourceList={}", sources.display());
        Apt::new(folder, vec![sources, "Dir::Etc::SourceParts=/dev/null".to_owned()])
    }

    fn new(folder: &Path, mut settings: Vec<String>) -> Result<Apt> {
        for inner in ["apt/lists/partial", "apt/cache/archives/partial", "debs"] {
            fs::create_dir_all(folder.join(inner)).context("cannot make folders for packages")?;
        }
        settings.push(format!("Dir::State::Lists={}", folder.join("apt/lists").display()));
        settings.push(format!("Dir::Cache={}", folder.join("apt/cache").display()));
        settings.push("Acquire::Languages=none".to_owned());
        // apt would otherwise switch to a user that may not enter the folder.
        settings.push("APT::Sandbox::User=root".to_owned());
        let options = settings.into_iter().flat_map(|setting| ["-o".to_owned(), setting]).collect();
        let apt = Apt { folder: folder.to_owned(), options };
        apt.get(&["-qq", "update"])?;
        Ok(apt)
    }

    /// Returns the packages that the system would install for this one.
    pub(super) fn missing_for(&self, package: &str) -> Result<Vec<String>> {
        let simulated = self.get(&["install", "--simulate", "--no-install-recommends", package])?;
        Ok(to_install(&simulated).map(str::to_owned).collect())
    }

    /// Downloads packages and unpacks them into the folder, then removes everything else.
    pub(super) fn unpack(self, packages: &[&str]) -> Result<()> {
        self.get(&[&["-qq", "download"], packages].concat())?;
        let root = self.folder.display().to_string();
        for deb in entries(&self.folder.join("debs")) {
            run("dpkg", &["-x", &deb.display().to_string(), &root], &self.folder)?;
        }
        for inner in ["apt", "debs"] {
            fs::remove_dir_all(self.folder.join(inner)).context("cannot remove the folders of packages")?;
        }
        Ok(())
    }

    fn get(&self, args: &[&str]) -> Result<String> {
        let options = self.options.iter().map(String::as_str);
        let all: Vec<&str> = options.chain(args.iter().copied()).collect();
        run("apt-get", &all, &self.folder.join("debs"))
    }
}

/// Returns the folders below `root` in which unpacked packages have their libraries.
pub(super) fn library_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.join("usr/lib")];
    folders.extend(entries(&root.join("usr/lib")).into_iter().filter(|path| is_of_machine(path)));
    folders
}

/// Returns whether a folder holds the libraries of one kind of machine, such as `x86_64-linux-gnu`.
fn is_of_machine(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name.to_string_lossy().contains("-linux-"))
}

fn to_install(simulated: &str) -> impl Iterator<Item = &str> {
    simulated.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next())
}

/// Returns the address of the archive itself: updates and security fixes are in others.
fn mirror(targets: &str) -> Option<&str> {
    let (_, mirror) =
        targets.lines().find_map(|line| line.split_once(' ').filter(|(name, _)| !name.contains('-')))?;
    Some(mirror)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_the_simulation_of_apt() {
        let simulated =
            "Reading lists...\nInst libpq5 (15.1 Debian [amd64])\nInst postgresql (15 Debian)\nConf libpq5\n";
        assert_eq!(to_install(simulated).collect::<Vec<_>>(), ["libpq5", "postgresql"]);
    }

    #[test]
    fn the_mirror_is_that_of_the_release_itself() {
        let targets = "bookworm-security http://a.test/security/\nbookworm http://a.test/debian/\n";
        assert_eq!(mirror(targets), Some("http://a.test/debian/"));
        assert_eq!(mirror(""), None);
    }
}
