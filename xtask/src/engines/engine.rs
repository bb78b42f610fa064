//! The port of engines: how each is installed, started, and known to be ready.

use std::path::Path;

use anyhow::Result;

use super::server::EngineServer;

pub(super) trait Engine: Sync {
    fn name(&self) -> &'static str;

    /// Returns the variable that holds the address for tests.
    fn variable(&self) -> &'static str;

    /// Installs what is missing. Returns whether anything was.
    fn install(&self, folder: &Path) -> Result<bool>;

    /// Starts the engine without waiting for it. `run` is an empty folder for its data and its log.
    fn spawn(&self, folder: &Path, run: &Path) -> Result<StartedEngine>;
}

pub(super) struct StartedEngine {
    pub(super) server: EngineServer,
    pub(super) url: String,
    /// Variables beside the one with the address.
    pub(super) more_variables: Vec<(String, String)>,
    /// Looks once whether the engine answers.
    pub(super) is_ready: Box<dyn Fn() -> bool>,
}

impl StartedEngine {
    pub(super) fn wait_until_ready(&mut self) -> Result<()> {
        self.server.wait_until(&*self.is_ready)
    }

    pub(super) fn check_alive(&mut self) -> Result<()> {
        self.server.check_alive()
    }

    pub(super) fn stop(&mut self) {
        self.server.stop();
    }
}
