//! Placing: one statement moves the head, inserts the record and deletes the outbox rows that it settles, or does
//! nothing at all.

use millrace_journal::{JournalError, Placed, Placing};
use tokio_postgres::error::SqlState;

use crate::failure::{refused, unknown};
use crate::journal::PostgresJournal;

impl PostgresJournal {
    pub(crate) fn place_record(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        let placed = match self.place_once(placing)? {
            Some(placed) => placed,
            // Nobody made the partition ahead of its use. The failed statement has changed nothing.
            None => {
                self.make_partitions()?;
                let again = self.place_once(placing)?;
                again.ok_or_else(|| unknown(format!("record {} still has no partition", placing.n)))?
            }
        };
        if placed == Placed::Yes {
            self.partitions.saw_head(placing.n);
        }
        Ok(placed)
    }

    /// Returns nothing if the number has no partition.
    fn place_once(&self, placing: &Placing<'_>) -> Result<Option<Placed>, JournalError> {
        let n = i64::try_from(placing.n)
            .map_err(|_| refused(format!("{} is no number of a record: it is too large", placing.n)))?;
        let settles: Vec<i64> = placing.settles.iter().map(|id| id.0).collect();
        self.placing.run("placing a record", async |requests| {
            let (prev, tip) = (&placing.prev.0[..], &placing.tip.0[..]);
            let done = if settles.is_empty() {
                let statement = requests.prepared(&self.statements.place).await?;
                requests.client.query_opt(&statement, &[&n, &placing.record, &prev, &tip]).await
            } else {
                let statement = requests.prepared(&self.statements.place_and_settle).await?;
                requests.client.query_opt(&statement, &[&n, &placing.record, &prev, &tip, &settles]).await
            };
            match done {
                Ok(None) => Ok(Some(Placed::Taken)),
                Ok(Some(row)) => {
                    let waits_for_standby: bool = row.get(0);
                    self.engine.refuse_less_replication(waits_for_standby)?;
                    Ok(Some(Placed::Yes))
                }
                Err(error) if error.code() == Some(&SqlState::CHECK_VIOLATION) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }
}
