//! moto: the S3 protocol in memory, from PyPI. Strict about the conditions of requests, so that it serves as the oracle
//! for them.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::engine::{Engine, StartedEngine};
use super::install;
use super::s3_probe;
use super::server::{EngineServer, StopSignal, free_ports};

const VERSION: &str = "5.2.5";

pub(super) struct Moto;

fn home(folder: &Path) -> PathBuf {
    folder.join(format!("moto-{VERSION}"))
}

impl Engine for Moto {
    fn name(&self) -> &'static str {
        "moto"
    }

    fn variable(&self) -> &'static str {
        "TEST_S3_MOTO"
    }

    fn install(&self, folder: &Path) -> Result<bool> {
        // Its feature `server` would install the needs of all services of AWS; S3 needs these.
        let moto = format!("moto[s3]=={VERSION}");
        install::once(&home(folder), |to| install::pip(to, &[&moto, "flask==3.1.3", "flask-cors==6.0.5"]))
    }

    fn spawn(&self, folder: &Path, run: &Path) -> Result<StartedEngine> {
        let [port] = free_ports()?;
        let port_text = port.to_string();
        let args = ["python3", "-m", "moto.server", "-H", "127.0.0.1", "-p", &port_text];
        let server = EngineServer::spawn(self.name(), &args, StopSignal::Kill, run, |command| {
            command.env("PYTHONPATH", home(folder));
        })?;
        Ok(StartedEngine {
            server,
            url: format!("http://127.0.0.1:{port}"),
            more_variables: s3_probe::account(),
            is_ready: Box::new(move || s3_probe::stores_objects(port)),
        })
    }
}
