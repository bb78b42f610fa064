//! `cargo xtask engines`: the shared engines that tests use, installed in `target/engines` and started on free ports of
//! the loopback. `cargo xtask test` does the same for its tests.
//!
//! Tests find an engine by the address in its variable. An engine whose variable is set already is neither installed
//! nor started: its tests use the engine at that address.

mod debian;
mod engine;
mod install;
mod mongo;
mod moto;
mod otlp;
mod postgres;
mod prometheus;
mod run_folder;
mod s3_probe;
mod seaweed;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use self::engine::{Engine, StartedEngine};
use self::run_folder::RunFolder;
use crate::{needs, repo};

const ALL: [&dyn Engine; 4] = [&postgres::Postgres, &seaweed::Seaweed, &moto::Moto, &mongo::Mongo];
const COMMANDS: [&str; 5] = ["node", "npm", "pip3", "python3", "setpriv"];
/// A port that was free may be taken by the time the engine binds it, so that a start is tried again.
const STARTS_MAX: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// `cargo xtask engines [-- COMMAND...]`: with a command runs it, otherwise prints the variables and waits.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    needs::ensure_commands(|command| COMMANDS.contains(&command))?;
    match args {
        [] => wait(Installation::begin().start()?),
        ["--", program, args @ ..] => run_command(&Installation::begin().start()?, program, args),
        _ => bail!("engines takes nothing, or `--` and a command"),
    }
}

fn wait(mut engines: Engines) -> Result<()> {
    for (name, url) in &engines.variables {
        println!("export {name}='{url}'");
    }
    println!("# Ctrl-C stops them. Logs: {}", engines.folder.path.display());
    loop {
        thread::sleep(LOOK_EVERY);
        engines.started.iter_mut().try_for_each(StartedEngine::check_alive)?;
    }
}

fn run_command(engines: &Engines, program: &str, args: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    repo::remove_own_variables(&mut command);
    command.args(args).envs(engines.variables.iter().cloned());
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    match status.success() {
        true => Ok(()),
        false => bail!("`{program} {}` failed: {status}", args.join(" ")),
    }
}

/// An installation under way, on a thread of its own: downloads wait while the caller compiles.
pub(crate) struct Installation {
    thread: JoinHandle<Result<()>>,
    folder: PathBuf,
}

impl Installation {
    pub(crate) fn begin() -> Installation {
        let folder = repo::target().join("engines");
        let to = folder.clone();
        Installation { thread: thread::spawn(move || install_all(&to)), folder }
    }

    /// Waits for the end of the installation, then starts the engines. They stop when this thread ends.
    pub(crate) fn start(self) -> Result<Engines> {
        let installed =
            self.thread.join().map_err(|_| anyhow!("the installation of the engines panicked"))?;
        installed?;
        Engines::start(&self.folder)
    }
}

/// Returns the engines whose variable is not set.
fn wanted() -> impl Iterator<Item = &'static dyn Engine> {
    ALL.into_iter().filter(|engine| std::env::var_os(engine.variable()).is_none_or(|url| url.is_empty()))
}

fn install_all(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // Two calls of xtask must not install the same.
    let lock = fs::File::create(folder.join("lock")).context("cannot make the lock of the installation")?;
    lock.lock().context("cannot lock the installation")?;
    thread::scope(|scope| {
        let install = |engine: &'static dyn Engine| {
            let began = Instant::now();
            let is_new =
                engine.install(folder).with_context(|| format!("cannot install {}", engine.name()))?;
            if is_new {
                println!("engines: {} installed in {:.1} s", engine.name(), began.elapsed().as_secs_f64());
            }
            Ok(())
        };
        let mut threads: Vec<_> = wanted().map(|engine| scope.spawn(move || install(engine))).collect();
        threads.push(scope.spawn(|| {
            otlp::install(folder).context("cannot install OpenTelemetry's definitions")?;
            let is_new = prometheus::install(folder).context("cannot install Prometheus")?;
            if is_new {
                println!("engines: Prometheus installed");
            }
            Ok(())
        }));
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("panicked")));
        // All of them, so that every failure is told.
        let results: Vec<Result<()>> = joined.collect();
        let failures: Vec<String> =
            results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
        match failures.is_empty() {
            true => Ok(()),
            false => bail!("{}", failures.join("\n")),
        }
    })
}

/// The running engines. They stop, and their data goes, when this value is dropped; and they stop when the process
/// ends in any other way.
pub(crate) struct Engines {
    /// Dropped before `folder`, in which they have their data.
    started: Vec<StartedEngine>,
    variables: Vec<(String, String)>,
    folder: RunFolder,
}

impl Engines {
    fn start(installed: &Path) -> Result<Engines> {
        let began = Instant::now();
        let folder = RunFolder::new(&installed.join("run"))?;
        let mut started = Vec::new();
        for engine in wanted() {
            started.push(engine.spawn(installed, &folder.of_engine(engine)?)?);
        }
        // They start side by side; the slowest one decides.
        for (engine, started) in wanted().zip(&mut started) {
            let mut starts = 1;
            while let Err(error) = started.wait_until_ready() {
                if starts == STARTS_MAX {
                    return Err(error);
                }
                starts += 1;
                println!("engines: starting {} again: {error:#}", engine.name());
                started.stop();
                *started = engine.spawn(installed, &folder.of_engine(engine)?)?;
            }
        }
        let mut variables = vec![prometheus::variable(installed)?, otlp::variable(installed)];
        for (engine, started) in wanted().zip(&started) {
            variables.push((engine.variable().to_owned(), started.url.clone()));
            variables.extend(started.more_variables.iter().cloned());
        }
        let names: Vec<&str> = wanted().map(Engine::name).collect();
        if !names.is_empty() {
            println!("engines: ready after {:.1} s: {}", began.elapsed().as_secs_f64(), names.join(", "));
        }
        Ok(Engines { started, variables, folder })
    }

    /// Returns the variables by which tests find the engines and their programs.
    pub(crate) fn variables(&self) -> &[(String, String)] {
        &self.variables
    }
}
