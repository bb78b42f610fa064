//! `MongoJournal`: the port, as requests to the three collections.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use millrace_journal::{
    Fitness, Journal, JournalError, JournalReadLimit, ManifestRead, ManifestVersion, PartName, Placed,
    Placing,
};

use crate::binary::check_size;
use crate::connection::Connection;
use crate::settings::MongoSettings;
use crate::{fitness, manifest, observe, parts, records};

/// A journal in one database of MongoDB. Connects at the first request.
pub struct MongoJournal {
    connection: Connection,
    /// Whether the deployment elects its primary; known after `check`.
    has_elections: AtomicBool,
}

impl MongoJournal {
    /// # Errors
    ///
    /// [`JournalError::Unknown`] if the process can start no more threads.
    pub fn new(settings: MongoSettings) -> Result<MongoJournal, JournalError> {
        Ok(MongoJournal { connection: Connection::new(settings)?, has_elections: AtomicBool::new(false) })
    }

    fn has_elections(&self) -> bool {
        self.has_elections.load(Ordering::Relaxed)
    }
}

impl Journal for MongoJournal {
    fn check(&self) -> Result<Fitness, JournalError> {
        let observed = observe::observe(&self.connection)?;
        self.has_elections.store(observed.deployment.has_elections(), Ordering::Relaxed);
        fitness::decide(&observed)
    }

    fn is_still_replicated(&self) -> Result<bool, JournalError> {
        let deployment = observe::deployment(&self.connection)?;
        Ok(fitness::judge_members(&deployment, &mut Vec::new()))
    }

    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        let doing = format!("placing record {}", placing.n);
        check_size(&format!("record {}", placing.n), placing.record)?;
        if !placing.settles.is_empty() {
            return Err(refused(format!(
                "{doing}: a journal on MongoDB has no outbox whose rows it could delete"
            )));
        }
        let n = i64::try_from(placing.n).map_err(|_| refused(format!("{doing}: the number is too large")))?;
        let document = records::document_of(n, placing.record);
        self.connection
            .run(&doing, move |collections| async move { records::place(&collections, document).await })
    }

    fn read(&self, from: u64, limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError> {
        // No record has a number that is too large for the engine.
        let Ok(first) = i64::try_from(from) else { return Ok(Vec::new()) };
        if limit.records_max == 0 {
            return Ok(Vec::new());
        }
        let has_elections = self.has_elections();
        self.connection.run(&format!("reading from record {from} on"), move |collections| async move {
            records::read(&collections, first, limit, has_elections).await
        })
    }

    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        let has_elections = self.has_elections();
        self.connection.run("reading the manifest", move |collections| async move {
            manifest::read(&collections, has_elections).await
        })
    }

    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError> {
        let doing = "replacing the manifest";
        check_size("the manifest", new)?;
        let Some(was) = was else {
            let document = manifest::document_of(1, new);
            return self
                .connection
                .run(doing, move |collections| async move { manifest::make(&collections, document).await });
        };
        // A version that is no number was never given out, so no manifest has it.
        let Ok(was) = was.0.parse::<i64>() else { return Ok(false) };
        let document = manifest::document_of(was.saturating_add(1), new);
        self.connection.run(doing, move |collections| async move {
            manifest::replace(&collections, was, document).await
        })
    }

    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        check_size(&format!("the part {name}"), bytes)?;
        let document = parts::document_of(name, bytes);
        let name = name.clone();
        self.connection.run(&format!("storing the part {name}"), move |collections| async move {
            parts::put(&collections, &name, document).await
        })
    }

    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        let has_elections = self.has_elections();
        let name = name.clone();
        self.connection.run(&format!("reading the part {name}"), move |collections| async move {
            parts::get(&collections, &name, has_elections).await
        })
    }

    fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        self.connection.run("listing the parts", |collections| async move { parts::list(&collections).await })
    }

    fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        let name = name.clone();
        self.connection.run(&format!("deleting the part {name}"), move |collections| async move {
            parts::delete(&collections, &name).await
        })
    }

    fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        let end = i64::try_from(n).unwrap_or(i64::MAX);
        self.connection.run(&format!("deleting records below {n}"), move |collections| async move {
            records::delete_below(&collections, end).await
        })
    }
}

impl fmt::Debug for MongoJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoJournal").field("settings", self.connection.settings()).finish_non_exhaustive()
    }
}

fn refused(text: String) -> JournalError {
    JournalError::Refused(text.into())
}
