//! `cargo xtask help`: prints what each verb (subcommand) does.

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask test           tools, tidy, build, every test, the simulator, a little fuzzing; stops at the first failing stage
cargo xtask test FILTER    only the tests whose name contains FILTER
cargo xtask tidy           formatting, lints, crate order, engine purity, file sizes, leftovers
cargo xtask peers          the same loads against Millrace, NATS, Redis and PostgreSQL; `peers --help` lists its options
cargo xtask engines        PostgreSQL, SeaweedFS, moto, MongoDB and Prometheus for tests, until Ctrl-C; `engines -- COMMAND` runs a command with them
cargo xtask powercut       a long run of the power-cut test: [--cuts N] per workload, [--seed S] of an earlier run
cargo xtask fixtures [N]   stores of every schema version (or of N), made by the Millrace that wrote it
cargo xtask guests         the C guests of examples/guests, compiled to target/guests
cargo xtask deb            a Debian package in target/debian, of a dist build; [--binary FILE] of a binary that is built already, [--check FILE] checks it, too
cargo xtask fuzz [TARGET]  coverage-guided fuzzing, 60 s per target: [--seconds N]; [--input FILE] runs one input again
cargo xtask help           this text";

pub(crate) fn run() -> Result<()> {
    println!("{HELP}");
    Ok(())
}

pub(crate) fn refuse(args: &[&str]) -> Result<()> {
    bail!("no verb reads `{}`\n\n{HELP}", args.join(" "))
}
