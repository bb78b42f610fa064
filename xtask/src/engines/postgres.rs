//! PostgreSQL: the system's if there is one, otherwise from Debian packages that are unpacked and not installed, since
//! the installed ones would start a server of their own.
//!
//! PostgreSQL refuses to run as root. There it runs as `nobody`; or, if `nobody` may not enter the folders, in a user
//! namespace in which root is called `nobody`.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::debian::{Apt, library_folders};
use super::engine::{Engine, StartedEngine};
use super::install::{self, entries};
use super::server::{EngineServer, StopSignal, free_ports};
use crate::needs;

/// The oldest version that the journal supports.
const MAJOR_MIN: u32 = 13;
const USER: &str = "millrace";
const NOBODY: u32 = 65_534;

pub(super) struct Postgres;

impl Engine for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn variable(&self) -> &'static str {
        "MILLRACE_TEST_POSTGRES"
    }

    fn install(&self, folder: &Path) -> Result<bool> {
        if Programs::find(folder).is_some() {
            return Ok(false);
        }
        if needs::find("apt-get").is_none() {
            bail!(
                "install PostgreSQL {MAJOR_MIN} or newer, or set {} to the address of one",
                self.variable()
            );
        }
        install::once(&unpacked(folder), |to| {
            let apt = Apt::of_system(to)?;
            let packages = apt.missing_for("postgresql")?;
            // The compiler of queries, which is the largest package by far, is switched off below.
            let packages = packages.iter().map(String::as_str).filter(|name| !name.starts_with("libllvm"));
            apt.unpack(&packages.collect::<Vec<_>>())
        })?;
        match Programs::find(folder) {
            Some(_) => Ok(true),
            None => bail!("no PostgreSQL was found in {}: remove that folder", unpacked(folder).display()),
        }
    }

    fn spawn(&self, folder: &Path, run: &Path) -> Result<StartedEngine> {
        let programs = Programs::find(folder).context("PostgreSQL is gone since it was installed")?;
        let run_as = RunAs::choose(&programs, run)?;
        let password = format!("{:016x}", RandomState::new().hash_one(run));
        let password_file = run.join("password");
        fs::write(&password_file, &password).context("cannot write the password of PostgreSQL")?;
        run_as.give(&password_file)?;
        let make = ["-D", "data", "-U", USER, "--pwfile=password", "-A", "scram-sha-256"];
        let quickly = ["--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C"];
        let mut initdb = run_as.command(&programs, "initdb");
        let output = initdb.args(make).args(quickly).current_dir(run).output();
        let output = output.context("cannot start initdb")?;
        if !output.status.success() {
            bail!("initdb failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let [port] = free_ports()?;
        let mut args = run_as.words();
        args.push(programs.path("postgres"));
        args.extend(["-D", "data", "-p"].map(str::to_owned));
        args.push(port.to_string());
        for setting in
            ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=300", "jit=off"]
        {
            args.extend(["-c".to_owned(), setting.to_owned()]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let server = EngineServer::spawn(self.name(), &args, StopSignal::Quit, run, |command| {
            programs.set_libraries(command);
        })?;
        let status = run.join("data/postmaster.pid");
        Ok(StartedEngine {
            server,
            url: format!("postgres://{USER}:{password}@127.0.0.1:{port}/postgres"),
            // PostgreSQL writes its status into the last line.
            is_ready: Box::new(move || {
                fs::read_to_string(&status).is_ok_and(|text| text.lines().any(|line| line.trim() == "ready"))
            }),
        })
    }
}

fn unpacked(folder: &Path) -> PathBuf {
    folder.join("postgresql")
}

struct Programs {
    bin: PathBuf,
    /// Folders with the libraries of an unpacked one.
    libraries: Vec<PathBuf>,
}

impl Programs {
    /// Looks on the path, where Debian has them, and where they were unpacked.
    fn find(folder: &Path) -> Option<Programs> {
        let unpacked = unpacked(folder);
        let on_path = needs::find("postgres").and_then(|path| path.canonicalize().ok());
        let mut bins: Vec<PathBuf> =
            on_path.iter().filter_map(|path| path.parent()).map(PathBuf::from).collect();
        for root in [Path::new("/"), &unpacked] {
            let versions = entries(&root.join("usr/lib/postgresql"));
            // The newest first, as far as names tell.
            bins.extend(versions.into_iter().rev().map(|version| version.join("bin")));
        }
        bins.into_iter().find_map(|bin| {
            let libraries = if bin.starts_with(&unpacked) { library_folders(&unpacked) } else { Vec::new() };
            let programs = Programs { bin, libraries };
            programs.is_usable().then_some(programs)
        })
    }

    fn is_usable(&self) -> bool {
        let mut command = Command::new(self.path("postgres"));
        self.set_libraries(&mut command);
        let output = command.arg("--version").output().ok().filter(|output| output.status.success());
        let version = output.and_then(|output| major(&String::from_utf8_lossy(&output.stdout)));
        version.is_some_and(|major| MAJOR_MIN <= major) && Path::new(&self.path("initdb")).exists()
    }

    fn path(&self, program: &str) -> String {
        self.bin.join(program).display().to_string()
    }

    fn set_libraries(&self, command: &mut Command) {
        if let Ok(path) = std::env::join_paths(&self.libraries)
            && !self.libraries.is_empty()
        {
            command.env("LD_LIBRARY_PATH", path);
        }
    }
}

/// Reads `postgres (PostgreSQL) 15.18 (Debian ...)`.
fn major(version: &str) -> Option<u32> {
    let number = version.split(") ").nth(1)?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunAs {
    Directly,
    Nobody,
    RootCalledNobody,
}

impl RunAs {
    fn choose(programs: &Programs, run: &Path) -> Result<RunAs> {
        if !needs::is_root()? {
            return Ok(RunAs::Directly);
        }
        for run_as in [RunAs::Nobody, RunAs::RootCalledNobody] {
            run_as.give(run)?;
            let can_run = run_as.command(programs, "postgres").arg("--version").output();
            let words = run_as.words();
            let can_write = Command::new(&words[0]).args(&words[1..]).args(["test", "-w"]).arg(run).output();
            let is_fine =
                [can_run, can_write].into_iter().all(|run| run.is_ok_and(|output| output.status.success()));
            if is_fine {
                return Ok(run_as);
            }
        }
        bail!(
            "PostgreSQL does not run as root. The user `nobody` may not enter {}, and user namespaces are not allowed: \
             let `nobody` enter, or set MILLRACE_TEST_POSTGRES to the address of a PostgreSQL",
            run.display()
        )
    }

    /// Returns the words that precede a program.
    fn words(self) -> Vec<String> {
        let words: &[&str] = match self {
            RunAs::Directly => &["env"],
            RunAs::Nobody => {
                &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=QUIT"]
            }
            // A change of the user cancels the signal that `EngineServer` has asked for, so it is asked for again.
            RunAs::RootCalledNobody => {
                &["unshare", "--map-user=65534", "--map-group=65534", "setpriv", "--pdeathsig=QUIT"]
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn command(self, programs: &Programs, program: &str) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(programs.path(program));
        programs.set_libraries(&mut command);
        command
    }

    /// Makes the file or folder its own.
    fn give(self, path: &Path) -> Result<()> {
        let owner = match self {
            RunAs::Directly => return Ok(()),
            RunAs::Nobody => NOBODY,
            RunAs::RootCalledNobody => 0,
        };
        chown(path, Some(owner), Some(owner)).with_context(|| format!("cannot give away {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major("something else"), None);
    }
}
