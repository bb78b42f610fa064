//! A store that several servers share: a journal in an engine outside, folded into a copy at every server.
//!
//! [`JournalStore`] implements the store port. A commit is resolved on the copy, becomes one record, and has happened
//! when the engine has placed that record (`docs/decisions/0052-…`). Reads never leave the machine.
//!
//! - `record`: the bytes of a record.
//! - `commit`: resolves batches on the copy and places the record.
//! - `catch_up`: folds the records of others into the copy.
//! - `read_ahead`: reads the next records while the last ones are folded.
//! - `handle`: the state that a handle and its thread share.
//! - `lead`: the row that says who may write, and the fence in every commit.
//! - `open`: finds or makes the copy, from a snapshot and the journal.
//! - `lost`: lists the events that an engine has lost.
//! - `manifest`, `snapshot`, `fetch`, `trim`: what lets a new machine start without the whole journal.
//! - `outbox`: events that applications publish inside their own transactions.
//! - `keeper`: the thread that follows, beats, and looks after snapshots.
//! - `status`: what a server tells about all this.
//!
//! Not in this crate: any engine (crates `journal-*`), and any database for the copy (`Copies`).

mod bounds;
mod catch_up;
mod clock;
mod commit;
mod fetch;
mod handle;
mod import;
mod keeper;
mod lead;
mod lost;
mod manifest;
mod open;
mod outbox;
mod read_ahead;
pub mod record;
mod settings;
mod snapshot;
mod status;
mod store;
mod trim;

pub use clock::{EngineClock, SystemEngineClock};
pub use import::import;
pub use lead::{LEAD_KEY, LeadRow};
pub use manifest::{Manifest, ManifestError, SnapshotEntry, SnapshotPart};
pub use open::{OpenError, OpenProgress};
pub use settings::{JournalSettings, Leadership};
pub use snapshot::SnapshotMade;
pub use status::{JournalStatus, Role, Unreachable};
pub use store::JournalStore;
