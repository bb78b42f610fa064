//! Reading records in order, bounded by the server in number and bytes.

use bytes::Bytes;
use millrace_journal::{JournalError, JournalReadLimit};

use crate::journal::PostgresJournal;

impl PostgresJournal {
    pub(crate) fn read_records(
        &self,
        from: u64,
        limit: JournalReadLimit,
    ) -> Result<Vec<(u64, Bytes)>, JournalError> {
        let Ok(from) = i64::try_from(from) else {
            // No record can have such a number.
            return Ok(Vec::new());
        };
        let records_max = i64::try_from(limit.records_max).unwrap_or(i64::MAX);
        let bytes_max = i64::try_from(limit.bytes_max).unwrap_or(i64::MAX);
        self.reading.run("reading records", async |requests| {
            let statement = requests.prepared(&self.statements.read).await?;
            let rows = requests.client.query(&statement, &[&from, &records_max, &bytes_max]).await?;
            let mut found: Vec<(u64, Bytes)> = Vec::with_capacity(rows.len());
            for row in &rows {
                let n: i64 = row.try_get(0)?;
                let n = n.unsigned_abs();
                // Gaps are made by hand only; the records behind one must not be folded.
                if found.last().is_some_and(|(last, _)| last + 1 != n) {
                    break;
                }
                found.push((n, Bytes::copy_from_slice(row.try_get(1)?)));
            }
            Ok(found)
        })
    }
}
