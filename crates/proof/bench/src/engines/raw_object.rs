//! Raw object storage: one conditional put.

use millrace_journal_object::{ObjectUrl, PlainBucket};

use super::raw::RawEngine;
use crate::error::BenchError;

pub(super) fn open_object(url: &str) -> Result<Box<dyn RawEngine>, BenchError> {
    let parsed = ObjectUrl::parse(url).ok_or_else(|| BenchError::StoreUrl("no object storage".into()))?;
    let parsed = parsed.map_err(|error| BenchError::StoreUrl(error.to_string()))?;
    let bucket = PlainBucket::open(&parsed).map_err(|error| BenchError::StoreUrl(error.to_string()))?;
    Ok(Box::new(RawBucket { bucket, number: 0 }))
}

struct RawBucket {
    bucket: PlainBucket,
    number: u64,
}

impl RawEngine for RawBucket {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        self.number += 1;
        match self.bucket.create(&format!("raw-{:020}", self.number), bytes)? {
            true => Ok(()),
            false => Err(BenchError::Unexpected("a fresh name was taken".into())),
        }
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        Ok(self.bucket.remove_all()?)
    }
}
