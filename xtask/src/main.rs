//! The project's own build and check commands ("verbs"), run as `cargo xtask <verb>`. Each verb has its own file.

mod deb;
mod engines;
mod fixtures;
mod fuzz;
mod guests;
mod help;
mod needs;
mod peers;
mod powercut;
mod repo;
mod sdk;
mod stage;
mod test;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["test"] => test::run(None),
        ["test", filter] => test::run(Some(filter)),
        ["tidy"] => tidy::run(),
        ["peers", options @ ..] => peers::run(options),
        ["engines", options @ ..] => engines::run(options),
        ["powercut", options @ ..] => powercut::run(options),
        ["fixtures", versions @ ..] => fixtures::run(versions),
        ["guests"] => guests::run(),
        ["deb", options @ ..] => deb::run(options),
        ["fuzz", options @ ..] => fuzz::run(options),
        [] | ["help" | "--help" | "-h"] => help::run(),
        unknown => help::refuse(unknown),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
