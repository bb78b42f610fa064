//! The `millrace` command: the broker and the tools around it.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 the operation failed, 2 wrong usage,
//! 3 cannot reach the server or store, 130 interrupted.
//!
//! Settings are declared once, in [`settings`]; flags, environment, file and help derive from that table. Each command
//! has its own file in [`commands`].

mod commands;
mod exposed;
mod failure;
mod http;
mod log;
mod output;
mod settings;

use std::io::Write;
use std::process::ExitCode;

use crate::failure::Failure;

fn main() -> ExitCode {
    let matches = match commands::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version go to stdout with exit code 0; everything else is wrong usage.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { Failure::USAGE } else { 0 });
        }
    };
    match commands::run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                // A failed write is ignored, because the exit code tells the result too.
                let _ = writeln!(std::io::stderr(), "millrace: {message}");
            }
            ExitCode::from(failure.code())
        }
    }
}
