//! `cargo xtask test`: runs every check that must pass before a change is merged.

use anyhow::Result;

use crate::stage::{Stage, run_all};
use crate::{fuzz, needs, repo, sdk, tidy};

const BUILD: &str = "build --workspace";
const TESTS: &str = "test --workspace";
const SIMULATOR: &str = "run --package millrace-sim --profile dev -- --seeds 250";

pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let Some(filter) = filter else {
        return run_all(vec![
            Stage::new("needs", needs::ensure),
            Stage::new("tidy", tidy::run),
            Stage::new("build", || repo::cargo(BUILD)),
            Stage::new("tests", || repo::cargo(TESTS)),
            Stage::new("sdk", sdk::run),
            Stage::new("simulator", || repo::cargo(SIMULATOR)),
            Stage::new("fuzz", fuzz::short_run),
        ]);
    };
    run_all(vec![
        Stage::new("needs", needs::ensure),
        Stage::new("build", || repo::cargo(BUILD)),
        Stage::new("tests", || repo::cargo(&format!("{TESTS} -- {filter}"))),
    ])?;
    println!("  left out     tidy, sdk, simulator and fuzz, because of the filter `{filter}`");
    Ok(())
}
