//! `cargo xtask test`: runs every check that must pass before a change is merged.

use std::cell::Cell;

use anyhow::Result;

use crate::engines::Installation;
use crate::stage::{Stage, run_all};
use crate::{deb, fuzz, needs, repo, sdk, tidy};

const BUILD: &str = "build --workspace";
const TESTS: &str = "test --workspace";
const SIMULATOR: &str = "run --package millrace-sim --profile dev -- --seeds 250";

pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let engines = TestEngines::default();
    let Some(filter) = filter else {
        return run_all(vec![
            Stage::new("needs", || engines.install_after(needs::ensure)),
            Stage::new("tidy", tidy::run),
            Stage::new("build", || repo::cargo(BUILD)),
            Stage::new("tests", || engines.run_tests(TESTS)),
            Stage::new("sdk", sdk::run),
            Stage::new("console", sdk::run_console),
            Stage::new("package", deb::test),
            Stage::new("simulator", || repo::cargo(SIMULATOR)),
            Stage::new("fuzz", fuzz::short_run),
        ]);
    };
    run_all(vec![
        Stage::new("needs", || engines.install_after(needs::ensure)),
        Stage::new("build", || repo::cargo(BUILD)),
        Stage::new("tests", || engines.run_tests(&format!("{TESTS} -- {filter}"))),
    ])?;
    println!(
        "  left out     tidy, sdk, console, package, simulator and fuzz, because of the filter `{filter}`"
    );
    Ok(())
}

/// The engines that tests use, from their installation to the end of the tests.
#[derive(Default)]
struct TestEngines {
    installation: Cell<Option<Installation>>,
}

impl TestEngines {
    /// Begins the installation after the given stage; the stages that follow compile meanwhile.
    fn install_after(&self, stage: impl FnOnce() -> Result<()>) -> Result<()> {
        stage()?;
        self.installation.set(Some(Installation::begin()));
        Ok(())
    }

    /// Runs tests with the engines, which stop at the end, whatever comes of the tests.
    fn run_tests(&self, command: &str) -> Result<()> {
        let engines = self.installation.take().unwrap_or_else(Installation::begin).start()?;
        repo::cargo_with(command, engines.variables())
    }
}
