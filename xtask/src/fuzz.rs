//! `cargo xtask fuzz`: builds the fuzz targets of `fuzz/` and runs libFuzzer on them to find inputs that fail.

mod binaries;
mod options;
mod report;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use self::binaries::Binaries;
use self::options::Options;
use self::report::Report;
use crate::{needs, repo};

pub(crate) const TARGETS: [&str; 3] = ["zcl1_codec", "zabi_dispatcher", "wire_text"];

/// The longest input; longer ones find nothing that shorter ones do not.
const INPUT_BYTES_MAX: usize = 4096;
/// An input that takes longer counts as a failure: no fuzzed code may wait.
const INPUT_SECONDS_MAX: u32 = 10;
/// Inputs per target in `cargo xtask test`.
const SHORT_RUNS: u32 = 20_000;
/// A fixed seed, so that the short run makes the same inputs each time.
const SHORT_SEED: u32 = 1;

/// When libFuzzer stops.
#[derive(Clone, Copy, Debug)]
enum Until {
    Seconds(u64),
    Runs(u32),
}

pub(crate) fn run(args: &[&str]) -> Result<()> {
    let options = Options::parse(args)?;
    needs::ensure_commands(|command| command == "c++")?;
    let binaries = Binaries::build()?;
    if let Some(input) = &options.input {
        return run_again(&binaries, options.targets[0], input);
    }
    for target in options.targets {
        let corpus = repo::target().join("fuzz-corpus").join(target);
        binaries.write_seeds(target, &corpus)?;
        fuzz(&binaries, target, &corpus, Until::Seconds(options.seconds))?;
    }
    Ok(())
}

/// Runs a stage of `cargo xtask test`: a bounded number of inputs for each target, without the corpus of earlier runs.
pub(crate) fn short_run() -> Result<()> {
    let binaries = Binaries::build()?;
    binaries::test()?;
    for target in TARGETS {
        let corpus = repo::target().join("fuzz-short-run").join(target);
        if corpus.exists() {
            fs::remove_dir_all(&corpus).with_context(|| format!("cannot empty {}", corpus.display()))?;
        }
        binaries.write_seeds(target, &corpus)?;
        fuzz(&binaries, target, &corpus, Until::Runs(SHORT_RUNS))?;
    }
    Ok(())
}

fn fuzz(binaries: &Binaries, target: &str, corpus: &Path, until: Until) -> Result<()> {
    let findings = repo::target().join("fuzz-findings").join(target);
    fs::create_dir_all(&findings).with_context(|| format!("cannot make {}", findings.display()))?;
    let scratch = Scratch::make()?;
    let mut command = Command::new(binaries.path(target));
    command.env("TMPDIR", &scratch.0);
    command.arg(format!("-max_len={INPUT_BYTES_MAX}")).arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    // Without the slash libFuzzer would use the folder's name as a prefix of file names.
    command.arg(format!("-artifact_prefix={}/", findings.display()));
    match until {
        Until::Seconds(seconds) => command.arg(format!("-max_total_time={seconds}")),
        Until::Runs(runs) => command.arg(format!("-runs={runs}")).arg(format!("-seed={SHORT_SEED}")),
    };
    let dictionary = repo::root().join("fuzz/dictionaries").join(target).with_extension("dict");
    if dictionary.exists() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    let report = watch(command.arg(corpus))?;
    match report {
        (true, report) => {
            println!("{target}: {}", report.summary());
            Ok(())
        }
        (false, report) => {
            report.others.iter().for_each(|line| eprintln!("{line}"));
            let Some(input) = report.finding else { bail!("{target} failed without an input") };
            bail!("{target} failed; run its input again: cargo xtask fuzz {target} --input {input}");
        }
    }
}

/// Runs libFuzzer and reads its output. Returns whether it succeeded.
fn watch(command: &mut Command) -> Result<(bool, Report)> {
    let mut child = command.stderr(Stdio::piped()).spawn().context("cannot start a fuzz target")?;
    let mut report = Report::default();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            report.take(&String::from_utf8_lossy(&line.context("cannot read what libFuzzer says")?));
        }
    }
    let status = child.wait().context("cannot wait for a fuzz target")?;
    Ok((status.success(), report))
}

/// Runs a target with one input, and shows its whole output.
fn run_again(binaries: &Binaries, target: &str, input: &Path) -> Result<()> {
    if !input.is_file() {
        bail!("{} is not a file", input.display());
    }
    let scratch = Scratch::make()?;
    let mut command = Command::new(binaries.path(target));
    command.env("TMPDIR", &scratch.0).env("FUZZ_SHOW_CALLS", "1");
    let status = command.arg(input).status().context("cannot start a fuzz target")?;
    if !status.success() {
        bail!("{target} fails with {}", input.display());
    }
    println!("{target} passes with {}", input.display());
    Ok(())
}

/// The folder for temporary files of a target: in memory where the system has such a folder, because scripts of the
/// dispatcher create and remove many small files. Removed on drop, also after a target that crashed.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> Result<Scratch> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { repo::target() };
        let folder = parent.join(format!("millrace-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}
