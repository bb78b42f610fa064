//! Rounds over all systems: a fresh server each, the loads one after the other. The order is rotated from round to
//! round, so that no server always follows the same one.

use std::path::Path;
use std::process::Command;

use millrace_bench::Probe;

use crate::error::PeerError;
use crate::install::Programs;
use crate::loads::LoadStage;
use crate::millrace::Millrace;
use crate::nats::Nats;
use crate::postgres::Postgres;
use crate::redis_streams::Redis;
use crate::report::{Sample, Syncs};
use crate::server::PeerServer;
use crate::system::{Load, System};

pub(crate) struct RoundsPlan<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) scratch: &'a Path,
    pub(crate) systems: &'a [System],
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
}

/// Loads whose syncs are counted: those that publish.
const COUNTED: [Load; 3] = [Load::Serial, Load::Inflight, Load::Clients];
const COUNTED_SECONDS: f64 = 1.0;

impl RoundsPlan<'_> {
    pub(crate) async fn measure(&self, say: &mut dyn FnMut(&str)) -> Result<Vec<Sample>, PeerError> {
        let mut samples = Vec::new();
        for round in 1..=self.rounds {
            let mut systems = self.systems.to_vec();
            let turn = (round - 1) % systems.len().max(1);
            systems.rotate_left(turn);
            for system in systems {
                say(&format!("round {round} of {}: {}", self.rounds, system.label()));
                let folder = self.folder()?;
                let server = PeerServer::start(system, self.programs, folder.path(), false)?;
                for load in Load::ALL {
                    let sample = self.one(system, load, round, self.seconds, &server, folder.path()).await?;
                    say(&format!("  {}: {:.0}/s", load.name(), sample.rate));
                    samples.push(sample);
                }
                drop(server);
                settle(folder.path());
            }
        }
        Ok(samples)
    }

    /// Counts syncs in a separate run, because tracing costs time.
    pub(crate) async fn count_syncs(&self, say: &mut dyn FnMut(&str)) -> Result<Vec<Syncs>, PeerError> {
        let mut counted = Vec::new();
        for system in self.systems.iter().copied() {
            say(&format!("counting syncs: {}", system.label()));
            let folder = self.folder()?;
            let server = PeerServer::start(system, self.programs, folder.path(), true)?;
            for load in COUNTED {
                let before = server.syncs()?;
                let sample = self.one(system, load, 0, COUNTED_SECONDS, &server, folder.path()).await?;
                let syncs = server.syncs()? - before;
                counted.push(Syncs { system, load, events: sample.events, syncs });
            }
            drop(server);
            settle(folder.path());
        }
        Ok(counted)
    }

    async fn one(
        &self,
        system: System,
        load: Load,
        round: usize,
        seconds: f64,
        server: &PeerServer,
        folder: &Path,
    ) -> Result<Sample, PeerError> {
        let probe = Probe::open(folder)?;
        let stage = LoadStage { system, round, url: server.url.clone(), seconds, probe };
        match system {
            System::Millrace => stage.spawn::<Millrace>(load).await,
            System::NatsAlways | System::NatsDefault => stage.spawn::<Nats>(load).await,
            System::RedisAlways | System::RedisEverysec => stage.spawn::<Redis>(load).await,
            System::Postgres => stage.spawn::<Postgres>(load).await,
        }
    }

    /// A temporary folder, removed with its content when dropped.
    fn folder(&self) -> Result<tempfile::TempDir, PeerError> {
        let made = tempfile::Builder::new().prefix("run-").tempdir_in(self.scratch);
        made.map_err(PeerError::io("making a folder for a server"))
    }
}

/// Writes out what a server left in the page cache, so that this does not happen while the next server is measured. If
/// there is no `sync`, the probes beside the next figures show the effect.
fn settle(folder: &Path) {
    let _ = Command::new("sync").arg("-f").arg(folder).status();
}
