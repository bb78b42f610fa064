//! `seeds TARGET FOLDER`: writes the first inputs of a target, one file each.

// The code of this program is instrumented like that of the targets, and libFuzzer holds the counters.
use libfuzzer_sys as _;

use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [target, folder] = arguments.as_slice() else {
        eprintln!("usage: seeds TARGET FOLDER");
        return ExitCode::FAILURE;
    };
    let Some(seeds) = millrace_fuzz::seeds::of(target) else {
        eprintln!("there is no target {target}");
        return ExitCode::FAILURE;
    };
    match write(&seeds, folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{folder}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(seeds: &[Vec<u8>], folder: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    seeds
        .iter()
        .enumerate()
        .try_for_each(|(index, seed)| fs::write(format!("{folder}/seed-{index:03}"), seed))
}
