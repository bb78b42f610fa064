//! The arguments of `cargo xtask fuzz`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::TARGETS;

/// Seconds per target, unless `--seconds` sets another number.
const SECONDS: u64 = 60;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// All targets, or the one that was named.
    pub(super) targets: Vec<&'static str>,
    pub(super) seconds: u64,
    /// Runs the only target with this input and nothing else.
    pub(super) input: Option<PathBuf>,
}

impl Options {
    pub(super) fn parse(args: &[&str]) -> Result<Options> {
        let mut options = Options { targets: TARGETS.to_vec(), seconds: SECONDS, input: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match *arg {
                "--seconds" => {
                    let value = value()?;
                    let seconds = value.parse();
                    options.seconds = seconds
                        .with_context(|| format!("--seconds is {value:?}: a whole number is expected"))?;
                }
                "--input" => options.input = Some(PathBuf::from(value()?)),
                name => {
                    let found = TARGETS.into_iter().find(|target| *target == name);
                    let Some(target) = found.filter(|_| options.targets.len() > 1) else {
                        bail!(
                            "fuzz takes one target of {}, --seconds N and --input FILE, not {name}",
                            TARGETS.join(", ")
                        );
                    };
                    options.targets = vec![target];
                }
            }
        }
        if options.input.is_some() && options.targets.len() > 1 {
            bail!("--input needs the target that the input is for: {}", TARGETS.join(", "));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let all = Options { targets: TARGETS.to_vec(), seconds: SECONDS, input: None };
        assert_eq!(Options::parse(&[]).unwrap(), all);
        assert_eq!(Options::parse(&["--seconds", "5"]).unwrap(), Options { seconds: 5, ..all });
        let one = Options { targets: vec!["wire_text"], seconds: SECONDS, input: Some("a/b".into()) };
        assert_eq!(Options::parse(&["--input", "a/b", "wire_text"]).unwrap(), one);
        for (args, part) in [
            (vec!["--seconds"], "--seconds needs"),
            (vec!["--seconds", "x"], "\"x\""),
            (vec!["no_target"], "not no_target"),
            (vec!["wire_text", "zcl1_codec"], "not zcl1_codec"),
            (vec!["--input", "a"], "--input needs the target"),
        ] {
            let error = format!("{:#}", Options::parse(&args).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
