//! Raw MongoDB: one insert that waits for the journals of a majority.

use millrace_journal_mongo::{MongoSettings, PlainDatabase};

use super::raw::RawEngine;
use crate::error::BenchError;

pub(super) fn open_mongo(url: &str) -> Result<Box<dyn RawEngine>, BenchError> {
    let settings = MongoSettings::from_url(url).map_err(|error| BenchError::StoreUrl(error.to_string()))?;
    Ok(Box::new(RawCollection { database: PlainDatabase::open(settings)?, number: 0 }))
}

struct RawCollection {
    database: PlainDatabase,
    number: i64,
}

impl RawEngine for RawCollection {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        self.number += 1;
        Ok(self.database.insert(self.number, bytes)?)
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        Ok(self.database.remove()?)
    }
}
