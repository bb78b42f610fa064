//! The outbox: events that applications have published inside transactions of their own.

use millrace_journal::{JournalError, OutboxId, OutboxRefusal, OutboxRow};
use tokio_postgres::{Error, Row};

use crate::journal::PostgresJournal;

/// At most so many bytes of payloads and headers are fetched at once, or a single row that is larger. Fits into one
/// record.
const OUTBOX_BYTES_MAX: i64 = 8 << 20;

impl PostgresJournal {
    pub(crate) fn waiting_rows(
        &self,
        after: Option<OutboxId>,
        rows_max: usize,
    ) -> Result<Vec<OutboxRow>, JournalError> {
        let after = after.map_or(i64::MIN, |after| after.0);
        let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
        self.reading.run("reading the outbox", async |requests| {
            let statement = requests.prepared(&self.statements.outbox).await?;
            let rows = requests.client.query(&statement, &[&rows_max, &OUTBOX_BYTES_MAX, &after]).await?;
            Ok(rows.iter().map(outbox_row).collect::<Result<_, _>>()?)
        })
    }

    pub(crate) fn delete_rows(&self, ids: &[OutboxId]) -> Result<(), JournalError> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        self.reading.run("deleting rows of the outbox", async |requests| {
            let statement = requests.prepared(&self.statements.delete_outbox).await?;
            requests.client.execute(&statement, &[&ids]).await?;
            Ok(())
        })
    }

    /// Moves rows to the table of refused ones. Rows that are gone already are left out.
    pub(crate) fn refuse_rows(&self, refused: &[OutboxRefusal]) -> Result<(), JournalError> {
        if refused.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = refused.iter().map(|refusal| refusal.id.0).collect();
        // PostgreSQL has no text with a zero character.
        let reasons: Vec<String> =
            refused.iter().map(|refusal| refusal.reason.replace('\0', "\u{fffd}")).collect();
        self.reading.run("refusing rows of the outbox", async |requests| {
            let statement = requests.prepared(&self.statements.refuse_outbox).await?;
            requests.client.execute(&statement, &[&ids, &reasons]).await?;
            Ok(())
        })
    }
}

fn outbox_row(row: &Row) -> Result<OutboxRow, Error> {
    Ok(OutboxRow {
        id: OutboxId(row.try_get(0)?),
        topic: row.try_get(1)?,
        key: row.try_get(2)?,
        headers: row.try_get(3)?,
        payload: row.try_get(4)?,
        event_id: row.try_get(5)?,
    })
}
