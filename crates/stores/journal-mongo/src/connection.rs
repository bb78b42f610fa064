//! Runs requests of the driver with a deadline that holds whatever the network and the driver do.
//!
//! The driver is asynchronous and has no limit for the time that an answer may take. Its futures must not be dropped
//! half way while the client is used further. So each request is a task on a small runtime of this journal; the caller
//! waits for its answer until the deadline. After that the task is ended, and the client with all its connections is
//! replaced by a new one: a connection that hangs (a half-open one, say) must not fail the next request too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use millrace_journal::JournalError;
use mongodb::Client;
use mongodb::options::{ClientOptions, ReadPreference, SelectionCriteria};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::collections::Collections;
use crate::failure::RequestError;
use crate::settings::MongoSettings;

/// Each is used for looking up names, which blocks.
const BLOCKING_THREADS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Connection {
    /// `None` only while dropping.
    runtime: Option<Runtime>,
    settings: Arc<MongoSettings>,
    clients: Arc<Clients>,
}

impl Connection {
    pub(crate) fn new(settings: MongoSettings) -> Result<Connection, JournalError> {
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(1)
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("journal-mongo")
            .enable_all();
        let runtime = builder.build().map_err(|error| {
            JournalError::Unknown(format!("no thread could be started for the journal: {error}").into())
        })?;
        let settings = Arc::new(settings);
        let clients = Arc::new(Clients { settings: settings.clone(), current: Mutex::default() });
        Ok(Connection { runtime: Some(runtime), settings, clients })
    }

    pub(crate) fn settings(&self) -> &MongoSettings {
        &self.settings
    }

    /// Runs a request and waits for it. `doing` names it in errors, such as «placing record 7».
    pub(crate) fn run<T, F, R>(&self, doing: &str, request: R) -> Result<T, JournalError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RequestError>> + Send,
        R: FnOnce(Collections) -> F + Send + 'static,
    {
        let Some(runtime) = &self.runtime else {
            return Err(JournalError::Unknown(format!("{doing}: the journal is closed").into()));
        };
        let (sender, receiver) = mpsc::sync_channel(1);
        let clients = self.clients.clone();
        let used = Arc::new(AtomicU64::new(0));
        let used_by_task = used.clone();
        let task = runtime.spawn(async move {
            let answer = match clients.get().await {
                Ok(current) => {
                    used_by_task.store(current.number, Ordering::Relaxed);
                    request(current.collections).await
                }
                Err(error) => Err(error),
            };
            // Fails only if the caller's deadline has passed.
            let _ = sender.send(answer);
        });
        match receiver.recv_timeout(self.settings.timeout()) {
            Ok(answer) => answer
                .map_err(|error| error.into_journal_error(doing, |text| self.settings.without_secrets(text))),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                task.abort();
                self.replace_client(&used);
                let timeout_ms = self.settings.timeout().as_millis();
                Err(JournalError::Unknown(format!("{doing}: no answer within {timeout_ms} ms").into()))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                self.replace_client(&used);
                Err(JournalError::Unknown(format!("{doing}: the request ended without an answer").into()))
            }
        }
    }

    fn replace_client(&self, used: &AtomicU64) {
        // Dropping a client needs a runtime.
        let _context = self.runtime.as_ref().map(Runtime::enter);
        self.clients.replace(used.load(Ordering::Relaxed));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        {
            let _context = runtime.enter();
            self.clients.current.lock().client = None;
        }
        // The ordinary way of ending a runtime waits for its threads, and panics inside another runtime.
        runtime.shutdown_background();
    }
}

/// The client in use, made when the first request needs it.
#[derive(Debug)]
struct Clients {
    settings: Arc<MongoSettings>,
    current: Mutex<CurrentClient>,
}

#[derive(Debug, Default)]
struct CurrentClient {
    /// Of the newest client, from 1.
    number: u64,
    client: Option<NumberedClient>,
}

#[derive(Clone, Debug)]
struct NumberedClient {
    number: u64,
    collections: Collections,
}

impl Clients {
    async fn get(&self) -> Result<NumberedClient, RequestError> {
        if let Some(client) = &self.current.lock().client {
            return Ok(client.clone());
        }
        // Looks up names for `mongodb+srv://`. Two requests may do this at once; the second client is dropped.
        let options = client_options(&self.settings).await?;
        let database = Client::with_options(options)?.database(self.settings.database());
        let current = &mut *self.current.lock();
        if let Some(client) = &current.client {
            return Ok(client.clone());
        }
        current.number += 1;
        // Less than the deadline, so that the engine's answer can arrive.
        let collections = Collections::new(database, part_of(self.settings.timeout(), 3, 4));
        let client = NumberedClient { number: current.number, collections };
        current.client = Some(client.clone());
        Ok(client)
    }

    /// Makes the next request use a new client, if this one is still in use.
    fn replace(&self, number: u64) {
        let mut current = self.current.lock();
        if current.client.as_ref().is_some_and(|client| client.number == number) {
            current.client = None;
        }
    }
}

async fn client_options(settings: &MongoSettings) -> Result<ClientOptions, RequestError> {
    let mut options = ClientOptions::parse(settings.url()).await?;
    let timeout = settings.timeout();
    options.app_name.get_or_insert_with(|| "millrace".to_owned());
    // The driver repeats a write by its session. A lost answer would then come back as «duplicate key» although the
    // first attempt placed the record. The caller looks before it repeats; so nothing here repeats anything.
    options.retry_writes = Some(false);
    options.retry_reads = Some(false);
    options.max_adaptive_retries = Some(0);
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    // Shorter than the deadline, so that the answer says which servers could not be reached.
    options.server_selection_timeout = Some(part_of(timeout, 3, 4));
    options.connect_timeout = Some(part_of(timeout, 1, 2));
    options.heartbeat_freq = Some(part_of(timeout, 1, 2).max(Duration::from_millis(500)));
    Ok(options)
}

fn part_of(timeout: Duration, numerator: u32, denominator: u32) -> Duration {
    timeout * numerator / denominator
}
