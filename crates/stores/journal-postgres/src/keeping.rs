//! The manifest and the parts of snapshots.

use bytes::Bytes;
use millrace_journal::{JournalError, ManifestRead, ManifestVersion, PartName};

use crate::journal::PostgresJournal;

impl PostgresJournal {
    pub(crate) fn read_manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        self.keeping.run("reading the manifest", async |requests| {
            let statement = requests.prepared(&self.statements.manifest).await?;
            let Some(row) = requests.client.query_opt(&statement, &[]).await? else {
                return Ok(None);
            };
            let version: i64 = row.try_get(1)?;
            let engine_time_ms: i64 = row.try_get(2)?;
            Ok(Some(ManifestRead {
                bytes: Bytes::copy_from_slice(row.try_get(0)?),
                version: ManifestVersion(version.to_string()),
                engine_time_ms: u64::try_from(engine_time_ms).ok(),
            }))
        })
    }

    pub(crate) fn replace_manifest(
        &self,
        new: &[u8],
        was: Option<&ManifestVersion>,
    ) -> Result<bool, JournalError> {
        let was = match was {
            None => None,
            Some(version) => match version.0.parse::<i64>() {
                Ok(version) => Some(version),
                // Not a version of this engine, so the manifest cannot have it.
                Err(_) => return Ok(false),
            },
        };
        self.keeping.run("replacing the manifest", async |requests| {
            let changed = match was {
                None => {
                    let statement = requests.prepared(&self.statements.first_manifest).await?;
                    requests.client.execute(&statement, &[&new]).await?
                }
                Some(was) => {
                    let statement = requests.prepared(&self.statements.next_manifest).await?;
                    requests.client.execute(&statement, &[&new, &was]).await?
                }
            };
            Ok(changed == 1)
        })
    }

    pub(crate) fn store_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        self.keeping.run("storing a part of a snapshot", async |requests| {
            let statement = requests.prepared(&self.statements.put_part).await?;
            requests.client.execute(&statement, &[&name.0, &bytes]).await?;
            Ok(())
        })
    }

    pub(crate) fn read_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        self.keeping.run("reading a part of a snapshot", async |requests| {
            let statement = requests.prepared(&self.statements.get_part).await?;
            match requests.client.query_opt(&statement, &[&name.0]).await? {
                Some(row) => Ok(Some(Bytes::copy_from_slice(row.try_get(0)?))),
                None => Ok(None),
            }
        })
    }

    pub(crate) fn part_names(&self) -> Result<Vec<PartName>, JournalError> {
        self.keeping.run("listing the parts of snapshots", async |requests| {
            let statement = requests.prepared(&self.statements.parts).await?;
            let rows = requests.client.query(&statement, &[]).await?;
            let names = rows.iter().map(|row| Ok(PartName(row.try_get(0)?)));
            names.collect()
        })
    }

    pub(crate) fn remove_part(&self, name: &PartName) -> Result<(), JournalError> {
        self.keeping.run("deleting a part of a snapshot", async |requests| {
            let statement = requests.prepared(&self.statements.delete_part).await?;
            requests.client.execute(&statement, &[&name.0]).await?;
            Ok(())
        })
    }
}
