//! The journal itself: three lanes to PostgreSQL. Each method of the port is in the file of its subject.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use millrace_journal::{
    Fitness, Journal, JournalError, JournalReadLimit, ManifestRead, ManifestVersion, OutboxId, OutboxRefusal,
    OutboxRow, PartName, Placed, Placing,
};

use crate::address::{AddressError, PostgresAddress};
use crate::lane::{Engine, Lane, Purpose};
use crate::partitions::{PARTITION_RECORDS, PartitionsAhead};
use crate::schema::Missing;
use crate::statements::Statements;

/// A journal in PostgreSQL. Several handles, in any number of processes, may use the same schema.
pub struct PostgresJournal {
    pub(crate) engine: Arc<Engine>,
    pub(crate) placing: Lane,
    /// Records and the outbox: small requests that a server makes all the time.
    pub(crate) reading: Lane,
    /// Snapshots, manifest, partitions: requests that may take long, and that nobody waits for.
    pub(crate) keeping: Lane,
    pub(crate) statements: Statements,
    pub(crate) partitions: PartitionsAhead,
}

impl PostgresJournal {
    /// Takes the URL apart and connects to nothing yet. The password may also come from the environment.
    ///
    /// # Errors
    ///
    /// If the URL is wrong, see [`PostgresAddress::parse`].
    pub fn open(url: &str) -> Result<PostgresJournal, AddressError> {
        PostgresAddress::parse(url).map(PostgresJournal::new)
    }

    pub fn new(address: PostgresAddress) -> PostgresJournal {
        PostgresJournal::with_partitions(address, PARTITION_RECORDS)
    }

    /// Makes partitions of another size, which tests use to reach their borders soon. Existing ones stay as they are.
    pub fn with_partitions(address: PostgresAddress, records: u32) -> PostgresJournal {
        let statements = Statements::new(&address.quoted_schema());
        let engine = Arc::new(Engine { address, promised_replication: AtomicBool::new(false) });
        PostgresJournal {
            placing: Lane::new(Purpose::Placing, &engine),
            reading: Lane::new(Purpose::Reading, &engine),
            keeping: Lane::new(Purpose::Keeping, &engine),
            engine,
            statements,
            partitions: PartitionsAhead::of(records),
        }
    }
}

impl fmt::Debug for PostgresJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresJournal").field("address", &self.engine.address).finish_non_exhaustive()
    }
}

impl Journal for PostgresJournal {
    fn check(&self) -> Result<Fitness, JournalError> {
        self.check_server(Missing::Make)
    }

    fn check_existing(&self) -> Result<Fitness, JournalError> {
        self.check_server(Missing::Refuse)
    }

    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        self.place_record(placing)
    }

    fn read(&self, from: u64, limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError> {
        self.make_partitions_if_wanted();
        self.read_records(from, limit)
    }

    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        self.read_manifest()
    }

    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError> {
        self.replace_manifest(new, was)
    }

    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        self.store_part(name, bytes)
    }

    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        self.read_part(name)
    }

    fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        self.part_names()
    }

    fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        self.remove_part(name)
    }

    fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        self.drop_partitions_below(n)
    }

    fn outbox(&self, after: Option<OutboxId>, rows_max: usize) -> Result<Vec<OutboxRow>, JournalError> {
        self.make_partitions_if_wanted();
        self.waiting_rows(after, rows_max)
    }

    fn delete_outbox(&self, ids: &[OutboxId]) -> Result<(), JournalError> {
        self.delete_rows(ids)
    }

    fn refuse_outbox(&self, refused: &[OutboxRefusal]) -> Result<(), JournalError> {
        self.refuse_rows(refused)
    }
}
