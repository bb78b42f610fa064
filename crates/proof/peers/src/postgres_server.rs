//! Starting PostgreSQL, which needs a data folder and refuses to run as root. Root runs it as `nobody`; or, if `nobody`
//! may not enter the folders, in a user namespace in which root is called `nobody`.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::PeerError;
use crate::install::Programs;

const NOBODY: u32 = 65_534;
const AS_NOBODY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
const ROOT_CALLED_NOBODY: &[&str] = &["unshare", "--map-user=65534", "--map-group=65534"];
/// The words before a program, for someone who is not root.
const DIRECTLY: &[&str] = &["env"];

pub(crate) const USER: &str = "millrace";

/// Makes the data folder. Returns the program to start, and its arguments.
pub(crate) fn prepare(
    programs: &Programs,
    folder: &Path,
    port: u16,
) -> Result<(PathBuf, Vec<String>), PeerError> {
    let words = run_as(programs, folder)?;
    let mut initdb = command(words, programs, "initdb");
    initdb.args(["-D", "data", "-U", USER, "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C"]);
    let output = initdb.current_dir(folder).output().map_err(PeerError::io("starting initdb"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let remedy = "PostgreSQL needs a scratch folder that it can write to.";
        return Err(PeerError::Install { command: "initdb".to_owned(), told, remedy });
    }
    let mut args: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
    args.push(programs.postgres.join("postgres").display().to_string());
    args.extend(["-D", "data", "-p", &port.to_string()].map(str::to_owned));
    // No Unix socket, because its folder is not ours.
    for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories="] {
        args.extend(["-c", setting].map(str::to_owned));
    }
    Ok((PathBuf::from(words[0]), args))
}

/// PostgreSQL writes its status into the last line of this file.
pub(crate) fn is_ready(folder: &Path) -> bool {
    let text = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
    text.lines().any(|line| line.trim() == "ready")
}

fn run_as(programs: &Programs, folder: &Path) -> Result<&'static [&'static str], PeerError> {
    let doing = "giving a folder to PostgreSQL";
    // The folder was just made, so its owner is this user.
    let owner = std::fs::metadata(folder).map_err(PeerError::io(doing))?.uid();
    if owner != 0 {
        return Ok(DIRECTLY);
    }
    for (words, owner) in [(AS_NOBODY, NOBODY), (ROOT_CALLED_NOBODY, 0)] {
        chown(folder, Some(owner), Some(owner)).map_err(PeerError::io(doing))?;
        let can_run = command(words, programs, "postgres").arg("--version").output();
        let can_write = Command::new(words[0]).args(&words[1..]).args(["test", "-w"]).arg(folder).output();
        if [can_run, can_write].into_iter().all(|run| run.is_ok_and(|output| output.status.success())) {
            return Ok(words);
        }
    }
    let why = "PostgreSQL does not run as root, `nobody` may not enter the scratch folder, and user namespaces are not \
               allowed";
    Err(PeerError::io(doing)(std::io::Error::other(why)))
}

fn command(words: &[&str], programs: &Programs, program: &str) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(programs.postgres.join(program));
    if let Some(libraries) = programs.postgres_library_path() {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}
