//! The capabilities that `--allow` grants to a module.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_client::Client;
use millrace_sandbox::SessionPort;
use millrace_session::Session;
use millrace_wasm::capability::{Allow, Environment, Folder, Grant, Grants, Input, Output, RandomSource};
use tokio::runtime::Handle;

use crate::commands::connect::client_options;
use crate::commands::run::guest_bus::GuestBus;
use crate::failure::Failure;
use crate::settings::Config;

/// Prefixes of Millrace's own settings in the environment, which include tokens: a plain `env` never grants these
/// variables.
const OWN_VARIABLES: [&str; 3] = ["MILLRACE_", "BUS_", "MONGO_"];

#[derive(Default)]
pub(super) struct Granted {
    pub(super) grants: Grants,
    /// Whether the module's last output on stdout did not end with a newline.
    pub(super) line_is_open: Arc<AtomicBool>,
}

impl Granted {
    pub(super) async fn by(config: &Config) -> Result<Granted, Failure> {
        let allowed: Vec<Allow> = config.run.allow.iter().filter_map(|text| text.parse().ok()).collect();
        let mut granted = Granted::default();
        for allow in &allowed {
            granted.add(allow, config, &allowed).await?;
        }
        Ok(granted)
    }

    async fn add(&mut self, allow: &Allow, config: &Config, all: &[Allow]) -> Result<(), Failure> {
        let grants = std::mem::take(&mut self.grants);
        self.grants = match allow {
            Allow::Folder(path) => {
                let folder = Folder::open(path).map_err(|error| Failure::Usage(format!("allow: {error}")))?;
                if grants.has(Grant::Fs) {
                    return Err(Failure::Usage("allow names two folders: fs=DIR may be given once".into()));
                }
                grants.fs(folder)
            }
            Allow::EnvName(_) | Allow::Plain(Grant::Env) => grants.env(environment(all)),
            Allow::Plain(Grant::Time) => grants.time(),
            Allow::Plain(Grant::Random) => grants.random(random(config)),
            Allow::Plain(Grant::Log) => grants.log(),
            Allow::Plain(Grant::Input) => grants.input(Input::stdin()),
            Allow::Plain(Grant::Output) => {
                grants.output(Output::of_process_through(Stdout { line_is_open: self.line_is_open.clone() }))
            }
            Allow::Plain(Grant::Bus) => {
                let client = Client::connect(client_options(config)?).await?;
                grants.bus(Arc::new(GuestBus::new(client, Handle::current())))
            }
            Allow::Plain(Grant::Store) => grants.store(Arc::new(store(config)?)),
            // Granted by the item that names its folder.
            Allow::Plain(Grant::Fs) => grants,
        };
        Ok(())
    }
}

/// Returns the variables that are named, or all except Millrace's own.
fn environment(all: &[Allow]) -> Environment {
    let everything = all.contains(&Allow::Plain(Grant::Env));
    let named = |name: &str| all.contains(&Allow::EnvName(name.to_owned()));
    let own = |name: &str| OWN_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
    Environment::of_process(|name| named(name) || (everything && !own(name)))
}

/// Returns the source of random numbers. Without a seed, runs with a virtual clock use seed 0, because they must be
/// reproducible.
fn random(config: &Config) -> RandomSource {
    match (config.run.seed.parse(), config.run.clock.as_str()) {
        (Ok(seed), _) => RandomSource::seeded(seed),
        (Err(_), "virtual") => RandomSource::seeded(0),
        (Err(_), _) => RandomSource::fresh(),
    }
}

fn store(config: &Config) -> Result<SessionPort, Failure> {
    let unreachable = |error: &dyn std::fmt::Display| {
        Failure::Unreachable(format!("store {}: {error}", millrace_stores::without_secrets(&config.store)))
    };
    let session = Session::open(&config.store).map_err(|error| unreachable(&error))?;
    let session = session.to_builder().namespace(&config.namespace).open();
    let session = session.map_err(|error| Failure::Usage(error.to_string()))?;
    SessionPort::new(session).map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))
}

/// The process's stdout. Notes whether a line is open, because results must begin at the start of a line.
struct Stdout {
    line_is_open: Arc<AtomicBool>,
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = io::stdout().lock();
        let written = out.write(bytes)?;
        // Nothing may stay in the buffer of stdout: at exit the process would wait until it is read.
        out.flush()?;
        if let Some(last) = bytes[..written].last() {
            self.line_is_open.store(*last != b'\n', Ordering::SeqCst);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}
