//! PostgreSQL: the system's if there is one, otherwise from Debian packages that are unpacked and not installed, since
//! the installed ones would start a server of their own.
//!
//! PostgreSQL refuses to run as root. There it runs as `nobody`; or, if `nobody` may not enter the folders, in a user
//! namespace in which root is called `nobody`.

use std::fs::{self, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::{PermissionsExt, chown};
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
/// The variable with the folder of the programs.
const PROGRAMS: &str = "TEST_POSTGRES_BIN";
const USER: &str = "millrace";
/// The tests connect with a password, like users do. Roles that a test makes for itself need none.
const ACCESS: &str = "host all millrace 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
const NOBODY: u32 = 65_534;

pub(super) struct Postgres;

impl Engine for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn variable(&self) -> &'static str {
        "TEST_POSTGRES"
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
            apt.unpack(&packages.collect::<Vec<_>>())?;
            write_starters(to)
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
        fs::write(run.join("data/pg_hba.conf"), ACCESS)
            .context("cannot write the access rules of PostgreSQL")?;
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
        let server = EngineServer::spawn(self.name(), &args, StopSignal::Quit, run, |_| {})?;
        // Tests that start servers with settings of their own run them as `nobody`, too.
        let is_for_nobody = run_as != RunAs::RootCalledNobody;
        let programs = is_for_nobody.then(|| (PROGRAMS.to_owned(), programs.bin.display().to_string()));
        let more_variables = programs.into_iter().collect();
        let status = run.join("data/postmaster.pid");
        Ok(StartedEngine {
            server,
            url: format!("postgres://{USER}:{password}@127.0.0.1:{port}/postgres"),
            more_variables,
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

/// Writes a script for each program of unpacked packages, in the folder `bin`: the programs have to be told where their
/// libraries are.
fn write_starters(root: &Path) -> Result<()> {
    let in_script = |path: &Path| format!("$root/{}", path.strip_prefix(root).unwrap_or(path).display());
    let libraries: Vec<String> = library_folders(root).iter().map(|folder| in_script(folder)).collect();
    let libraries = libraries.join(":");
    let versions = entries(&root.join("usr/lib/postgresql"));
    let programs = versions.last().map(|version| entries(&version.join("bin"))).unwrap_or_default();
    fs::create_dir(root.join("bin")).context("cannot make the folder of scripts")?;
    for program in programs {
        let script = root.join("bin").join(program.file_name().unwrap_or_default());
        let program = in_script(&program);
        let text = format!(
            "#!/bin/sh\nroot=${{0%/*}}/..\nLD_LIBRARY_PATH=\"{libraries}\" exec \"{program}\" \"$@\"\n"
        );
        let written = fs::write(&script, text);
        let written = written.and_then(|()| fs::set_permissions(&script, Permissions::from_mode(0o755)));
        written.with_context(|| format!("cannot write {}", script.display()))?;
    }
    Ok(())
}

struct Programs {
    bin: PathBuf,
}

impl Programs {
    /// Looks on the path, where Debian has them, and where they were unpacked.
    fn find(folder: &Path) -> Option<Programs> {
        let on_path = needs::find("postgres").and_then(|path| path.canonicalize().ok());
        let mut bins: Vec<PathBuf> =
            on_path.iter().filter_map(|path| path.parent()).map(PathBuf::from).collect();
        // The newest first, as far as names tell.
        let versions = entries(Path::new("/usr/lib/postgresql"));
        bins.extend(versions.into_iter().rev().map(|version| version.join("bin")));
        bins.push(unpacked(folder).join("bin"));
        bins.into_iter().map(|bin| Programs { bin }).find(Programs::are_usable)
    }

    fn are_usable(&self) -> bool {
        let output = Command::new(self.path("postgres")).arg("--version").output();
        let output = output.ok().filter(|output| output.status.success());
        let version = output.and_then(|output| major(&String::from_utf8_lossy(&output.stdout)));
        version.is_some_and(|major| MAJOR_MIN <= major) && Path::new(&self.path("initdb")).exists()
    }

    fn path(&self, program: &str) -> String {
        self.bin.join(program).display().to_string()
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
             let `nobody` enter, or set TEST_POSTGRES to the address of a PostgreSQL",
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
