//! Which store a URL names, and every way to open it: the only crate that knows the adapters.
//!
//! The rest of the workspace names a store by its [`StoreUrl`], configures it by [`StoreOptions`] and uses it through
//! the port ([`millrace_store::Store`]). A new adapter is a further crate `store-*`, a variant of [`StoreUrl`] and an
//! arm in the functions of this crate; no other crate changes.
//!
//! - `open.rs`: the server opens a store to serve it ([`open_store`]); sessions open it beside all other processes
//!   ([`open_shared`]).
//! - `shared.rs`: stores that several servers share; `moving.rs`: moving a store to another engine, and looking at a
//!   shared one.
//! - `offline.rs`: commands on a store that need no server: examination, backup, restore, [`store_info`].
//!
//! Not in this crate: the port (`store`), the adapters themselves, and the processes that use them.
//!
//! Start with [`StoreUrl`].

mod moving;
mod offline;
mod open;
mod options;
mod shared;
mod url;

/// The results of examinations and copies. No word in these types is particular to SQLite.
pub use millrace_store_sqlite::{Copied, Doctor, Examined, Existing};

/// A shared store: who leads, how it is doing, its outbox.
pub use millrace_journal::{OutboxId, OutboxRefusal, OutboxRow};
pub use millrace_store_journal::{JournalStatus, JournalStore, OpenProgress, Role};

pub use millrace_store_journal::SnapshotMade;
pub use moving::{
    LocalFile, Moved, SharedInfo, bring_to_file, local_file, make_snapshot, move_store, shared_info,
};
pub use offline::{
    OfflineError, Restore, StoreInfo, backup, open_doctor, open_existing, prepare_restore, store_info,
};
pub use open::{OpenError, OpenedStore, open_shared, open_store, opening_waits_for};
pub use options::{SharedSettings, SqliteSettings, StoreOptions};
pub use shared::{CopyNumber, SharedStore, default_cache, open_followed, open_followed_again, open_journal};
pub use url::{Engine, SharedUrl, StoreUrl, StoreUrlError, without_secrets};
