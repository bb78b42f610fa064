//! `cargo xtask powercut`: runs the power-cut test with many cuts and prints its table.

use anyhow::{Context, Result, bail};

use crate::repo;

/// Cuts per workload, unless `--cuts` sets another number.
const CUTS: u64 = 500;
const TEST: &str = "a_power_cut_takes_nothing_that_was_confirmed";

pub(crate) fn run(args: &[&str]) -> Result<()> {
    let options = Options::parse(args)?;
    let args =
        ["test", "--package", "millrace-cli", "--test", "powercut", "--", "--exact", "--nocapture", TEST];
    let mut command = repo::cargo_command(&args);
    command.env("POWERCUT_CUTS", options.cuts.to_string());
    if let Some(seed) = options.seed {
        command.env("POWERCUT_SEED", seed.to_string());
    }
    if !command.status().context("cannot start cargo")?.success() {
        bail!("the power-cut test failed");
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    cuts: u64,
    seed: Option<u64>,
}

impl Options {
    fn parse(args: &[&str]) -> Result<Options> {
        let mut options = Options { cuts: CUTS, seed: None };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let value = args.next().with_context(|| format!("{flag} needs a whole number"))?;
            let number =
                value.parse().with_context(|| format!("{flag} is {value:?}: a whole number is expected"))?;
            match *flag {
                "--cuts" => options.cuts = number,
                "--seed" => options.seed = Some(number),
                flag => bail!("powercut takes --cuts N and --seed S, not {flag}"),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        assert_eq!(Options::parse(&[]).unwrap(), Options { cuts: CUTS, seed: None });
        let options = Options::parse(&["--seed", "7", "--cuts", "9"]).unwrap();
        assert_eq!(options, Options { cuts: 9, seed: Some(7) });
        for (args, part) in
            [(vec!["--cuts"], "--cuts"), (vec!["--cuts", "x"], "\"x\""), (vec!["--more", "1"], "--more")]
        {
            let error = format!("{:#}", Options::parse(&args).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
