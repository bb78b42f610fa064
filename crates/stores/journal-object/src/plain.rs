//! A bucket without a journal, reached like that of a journal: benchmarks measure the journal against plain conditional
//! puts, and remove the objects that they have made.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use millrace_journal::JournalError;
use object_store::path::Path;
use tokio::runtime::{Builder, Runtime};

use crate::bucket::Bucket;
use crate::connect::{Connection, connect};
use crate::environment::ObjectEnvironment;
use crate::error::ObjectOpenError;
use crate::request::RequestContext;
use crate::store_url::ObjectUrl;

/// Objects that are deleted together: what a listing brings at once.
const DELETE_KEYS_MAX: usize = 1_000;

/// The objects under the prefix of a URL. Requests run on the thread of the caller, which must not belong to another
/// runtime.
pub struct PlainBucket {
    bucket: Bucket,
    prefix: Path,
    runtime: Runtime,
}

impl PlainBucket {
    /// Connects to nothing yet. Credentials come from the environment of this process.
    ///
    /// # Errors
    ///
    /// [`ObjectOpenError`] for settings that are missing or wrong.
    pub fn open(url: &ObjectUrl) -> Result<PlainBucket, ObjectOpenError> {
        let environment = ObjectEnvironment::of_process();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ObjectOpenError::Threads(error.to_string()))?;
        let Connection { store, host } = connect(url, &environment)?;
        let context = RequestContext { url: url.clone(), host, environment, server_time_ms: Arc::default() };
        Ok(PlainBucket { bucket: Bucket { store, context }, prefix: url.prefix.clone(), runtime })
    }

    /// Creates an object under the prefix. Returns whether the name was free.
    ///
    /// # Errors
    ///
    /// If the provider refuses the request or cannot be reached.
    pub fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, JournalError> {
        let (key, bytes) = (self.prefix.clone().join(name), Bytes::copy_from_slice(bytes));
        let created = self.runtime.block_on(self.bucket.create(&key, bytes))?;
        Ok(created.is_some())
    }

    /// Deletes every object under the prefix.
    ///
    /// # Errors
    ///
    /// See [`PlainBucket::create`].
    pub fn remove_all(&self) -> Result<(), JournalError> {
        self.runtime.block_on(async {
            let mut keys = Vec::with_capacity(DELETE_KEYS_MAX);
            let mut listing = self.bucket.list(&self.prefix);
            while let Some(object) = listing.next().await? {
                keys.push(object.location);
                if keys.len() == DELETE_KEYS_MAX {
                    self.bucket.delete(&keys).await?;
                    keys.clear();
                }
            }
            Ok(self.bucket.delete(&keys).await?)
        })
    }
}

impl fmt::Debug for PlainBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainBucket").field("url", &self.bucket.context.url).finish_non_exhaustive()
    }
}
