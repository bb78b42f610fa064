//! A fresh store on an engine, with the way to it: direct, over a journal with faults, or through a lossy line.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use millrace_conformance::engines::{FreshStore, TestEngine};
use millrace_conformance::journal::{FaultPlan, FaultyJournal};
use millrace_conformance::shared::FollowingHandle;
use millrace_journal::{Journal, PartName};
use millrace_store_journal::{JournalSettings, JournalStore, Leadership, Manifest, SystemEngineClock};
use millrace_store_sqlite::{SqliteCopies, SqliteOptions};
use millrace_stores::{StoreUrl, open_journal};
use tempfile::TempDir;

use crate::proxy::LossyProxy;

/// The way from a handle to its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    /// A journal that loses requests and answers, repeats requests, and carries some out late.
    Faulty,
    /// A proxy that cuts connections at any byte.
    Lossy,
}

impl Way {
    pub(crate) const ALL: [Way; 3] = [Way::Direct, Way::Faulty, Way::Lossy];
}

/// Handles are opened by its methods; it lives longer than they do, and removes its store at the end.
pub(crate) struct TestPlace {
    store: FreshStore,
    way: Way,
    proxy: Option<LossyProxy>,
    folder: TempDir,
    seed: u64,
    handles: AtomicU64,
}

impl TestPlace {
    /// Returns `None`, and says so, if the engine is not there.
    pub(crate) fn new(engine: TestEngine, way: Way, seed: u64) -> Option<TestPlace> {
        let store = engine.fresh_store()?;
        if engine.is_object() {
            // A store that has a manifest is checked without races of creators: moto does not stand them, SeaweedFS
            // takes seconds, and the suite of journals tries them.
            let made = journal_at(&store.url()).set_manifest(&Manifest::new(rand::random()).encode(), None);
            assert_eq!(made, Ok(true), "the prefix is new");
        }
        let proxy = (way == Way::Lossy).then(|| LossyProxy::start(store.socket_addr(), seed));
        let folder = tempfile::tempdir().unwrap();
        Some(TestPlace { store, way, proxy, folder, seed, handles: AtomicU64::new(0) })
    }

    /// Opens a handle without a lead, whose copy has this name.
    pub(crate) fn open(&self, copy: &str, options: &SqliteOptions) -> FollowingHandle<JournalStore> {
        let path = self.folder.path().join(format!("{copy}.db"));
        let copies = Arc::new(SqliteCopies::new(path, options.clone()));
        let leadership = Leadership::Free;
        let settings = JournalSettings { leadership, backoff_ms_max: 1, ..JournalSettings::default() };
        let store = JournalStore::open_quiet(self.journal(), copies, settings, Arc::new(SystemEngineClock));
        FollowingHandle::new(store.unwrap(), JournalStore::follow)
    }

    /// Returns how many faults the line had.
    pub(crate) fn line_faults(&self) -> u64 {
        self.proxy.as_ref().map_or(0, LossyProxy::faults)
    }

    /// Every handle has connections, and faults, of its own.
    fn journal(&self) -> Arc<dyn Journal> {
        let journal = match &self.proxy {
            Some(proxy) => journal_at(&self.store.url_at(&proxy.addr().to_string())),
            None => journal_at(&self.store.url()),
        };
        if self.way != Way::Faulty {
            return journal;
        }
        let plan = FaultPlan {
            seed: self.seed.wrapping_add(self.handles.fetch_add(1, SeqCst)),
            lose_request_every: 7,
            lose_answer_every: 7,
            repeat_every: 9,
            late_every: 11,
            delay_every: 0,
        };
        Arc::new(FaultyJournal::new(journal, plan))
    }
}

fn journal_at(url: &str) -> Arc<dyn Journal> {
    let Ok(StoreUrl::Shared(url)) = url.parse() else { panic!("{url} is no shared store") };
    open_journal(&url).unwrap()
}

impl Drop for TestPlace {
    fn drop(&mut self) {
        let FreshStore { engine, address, name } = &self.store;
        // A failed test has its own message; here nothing may panic.
        match engine {
            TestEngine::Postgres => {
                let sql = format!("SET lock_timeout = '30s'; DROP SCHEMA IF EXISTS {name} CASCADE");
                if let Ok(mut client) = postgres::Client::connect(address, postgres::NoTls) {
                    let _ = client.batch_execute(&sql);
                }
            }
            TestEngine::Seaweed | TestEngine::Moto => {
                let _ = journal_at(&self.store.url()).delete_below(u64::MAX);
                let above = journal_at(&self.store.url().replacen("/snapshot?", "?", 1));
                let _ = above.delete_part(&PartName("manifest".into()));
            }
            TestEngine::Mongo => drop_database(address, name),
        }
    }
}

/// All databases are dropped over one connection.
fn drop_database(address: &str, name: &str) {
    static DRIVER: OnceLock<(tokio::runtime::Runtime, mongodb::Client)> = OnceLock::new();
    let (runtime, client) = DRIVER.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let client = runtime.block_on(mongodb::Client::with_uri_str(address)).unwrap();
        (runtime, client)
    });
    let _ = runtime.block_on(client.database(name).drop().into_future());
}
