//! The journal: the port's methods in terms of objects (`bucket.rs`) and keys (`keys.rs`).

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use millrace_journal::{
    Fitness, Journal, JournalError, JournalReadLimit, ManifestRead, ManifestVersion, PartName, Placed,
    Placing,
};
use object_store::path::Path;
use tokio::runtime::{Builder, Runtime};

use crate::bucket::Bucket;
use crate::connect::{Connection, connect};
use crate::environment::ObjectEnvironment;
use crate::error::ObjectOpenError;
use crate::keys::{ObjectKeys, is_part_name};
use crate::probe;
use crate::read::{ExpectedEnd, read_records};
use crate::request::RequestContext;
use crate::store_url::ObjectUrl;

/// One thread may be busy with the checksum of a part of a snapshot while the other places a record.
const THREADS: usize = 2;
/// Keys that are listed before they are deleted: what a listing brings at once.
const DELETE_KEYS_MAX: usize = 1_000;

/// A journal in a bucket. May be used from any thread, also from threads of an asynchronous runtime, which it blocks.
pub struct ObjectJournal {
    objects: Arc<JournalObjects>,
    /// `None` only while the journal is dropped.
    runtime: Option<Runtime>,
}

/// What requests use, on the threads of the journal.
pub(crate) struct JournalObjects {
    pub(crate) bucket: Bucket,
    pub(crate) keys: ObjectKeys,
    end: ExpectedEnd,
}

impl ObjectJournal {
    /// Opens a journal with credentials from the environment of this process. Nothing is sent before
    /// [`Journal::check`].
    ///
    /// # Errors
    ///
    /// [`ObjectOpenError`] for a wrong URL, or settings that are missing or wrong.
    pub fn open(url: &ObjectUrl) -> Result<ObjectJournal, ObjectOpenError> {
        ObjectJournal::open_with(url, ObjectEnvironment::of_process())
    }

    /// Opens a journal with credentials from an environment of the caller's making.
    ///
    /// # Errors
    ///
    /// See [`ObjectJournal::open`].
    pub fn open_with(
        url: &ObjectUrl,
        environment: ObjectEnvironment,
    ) -> Result<ObjectJournal, ObjectOpenError> {
        let threads = |error: std::io::Error| ObjectOpenError::Threads(error.to_string());
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("millrace-object")
            .enable_all()
            .build()
            .map_err(threads)?;
        let Connection { store, host } = connect(url, &environment)?;
        let context = RequestContext { url: url.clone(), host, environment, server_time_ms: Arc::default() };
        let keys = ObjectKeys::new(url.prefix.clone());
        let bucket = Bucket { store, context };
        let objects = Arc::new(JournalObjects { bucket, keys, end: ExpectedEnd::default() });
        Ok(ObjectJournal { objects, runtime: Some(runtime) })
    }

    /// Runs requests on the threads of the journal, and waits. The requests have deadlines, so this ends.
    ///
    /// Not `Runtime::block_on`, which panics on the thread of another runtime.
    fn run<T, F>(&self, requests: impl FnOnce(Arc<JournalObjects>) -> F) -> Result<T, JournalError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, JournalError>> + Send + 'static,
    {
        let stopped = || JournalError::Unknown("the threads of the journal have stopped".into());
        let runtime = self.runtime.as_ref().ok_or_else(stopped)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let requests = requests(Arc::clone(&self.objects));
        runtime.spawn(async move {
            // Nobody is gone: this thread waits for the outcome.
            let _ = sender.send(requests.await);
        });
        receiver.recv().map_err(|_| stopped())?
    }
}

impl Journal for ObjectJournal {
    fn check(&self) -> Result<Fitness, JournalError> {
        self.run(|objects| async move { probe::check(&objects).await })
    }

    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        let (n, record) = (placing.n, Bytes::copy_from_slice(placing.record));
        self.run(move |objects| async move {
            match objects.bucket.create(&objects.keys.record(n), record).await? {
                Some(_) => {
                    objects.end.after(n);
                    Ok(Placed::Yes)
                }
                None => Ok(Placed::Taken),
            }
        })
    }

    fn read(&self, from: u64, limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError> {
        self.run(move |objects| async move {
            read_records(&objects.bucket, &objects.keys, &objects.end, from, limit).await
        })
    }

    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        self.run(|objects| async move {
            let Some(object) = objects.bucket.get(&objects.keys.manifest()).await? else { return Ok(None) };
            // `check` has refused a server without entity tags.
            let version = object
                .version
                .ok_or_else(|| JournalError::Unknown("the manifest came without an entity tag".into()))?;
            let version = ManifestVersion(version);
            Ok(Some(ManifestRead { bytes: object.bytes, version, engine_time_ms: object.server_time_ms }))
        })
    }

    fn engine_time_ms(&self) -> Option<u64> {
        let ms = self.objects.bucket.context.server_time_ms.load(Relaxed);
        (ms > 0).then_some(ms)
    }

    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError> {
        let (new, was) = (Bytes::copy_from_slice(new), was.cloned());
        self.run(move |objects| async move {
            let key = objects.keys.manifest();
            let written = match was {
                None => objects.bucket.create(&key, new).await?,
                Some(ManifestVersion(version)) => objects.bucket.replace(&key, new, version).await?,
            };
            Ok(written.is_some())
        })
    }

    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        let (name, bytes) = (checked(name)?, Bytes::copy_from_slice(bytes));
        self.run(
            move |objects| async move { Ok(objects.bucket.write(&objects.keys.part(&name), bytes).await?) },
        )
    }

    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        let name = checked(name)?;
        self.run(move |objects| async move {
            let found = objects.bucket.get(&objects.keys.part(&name)).await?;
            Ok(found.map(|object| object.bytes))
        })
    }

    fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        self.run(|objects| async move {
            let (mut names, mut strangers) = (Vec::new(), 0_u64);
            let folder = objects.keys.parts();
            let mut listing = objects.bucket.list(&folder);
            while let Some(object) = listing.next().await? {
                match objects.keys.part_name(&object.location) {
                    Some(name) => names.push(name),
                    None => strangers += 1,
                }
            }
            warn_of_strangers(&folder, strangers);
            Ok(names)
        })
    }

    fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        let name = checked(name)?;
        self.run(move |objects| async move { Ok(objects.bucket.delete(&[objects.keys.part(&name)]).await?) })
    }

    fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        self.run(move |objects| async move {
            let (mut keys, mut strangers) = (Vec::with_capacity(DELETE_KEYS_MAX), 0_u64);
            let folder = objects.keys.records();
            let mut listing = objects.bucket.list(&folder);
            while let Some(object) = listing.next().await? {
                match objects.keys.record_number(&object.location) {
                    Some(number) if number < n => keys.push(object.location),
                    // Keys are listed in order.
                    Some(_) => break,
                    None => strangers += 1,
                }
                if keys.len() == DELETE_KEYS_MAX {
                    objects.bucket.delete(&keys).await?;
                    keys.clear();
                }
            }
            warn_of_strangers(&folder, strangers);
            Ok(objects.bucket.delete(&keys).await?)
        })
    }
}

fn warn_of_strangers(folder: &Path, strangers: u64) {
    if strangers > 0 {
        tracing::warn!(%folder, strangers, "objects that are not ours lie among those of the journal and are left alone");
    }
}

fn checked(name: &PartName) -> Result<PartName, JournalError> {
    if is_part_name(&name.0) {
        return Ok(name.clone());
    }
    let rule = "digits, lower-case letters, - and one /, at most 100 characters";
    Err(JournalError::Refused(format!("{:?} is no name of a part: {rule}", name.0).into()))
}

impl Drop for ObjectJournal {
    fn drop(&mut self) {
        // Not the runtime's own drop: it waits, which panics on the thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for ObjectJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = &self.objects.bucket.context;
        f.debug_struct("ObjectJournal")
            .field("url", &context.url)
            .field("host", &context.host)
            .finish_non_exhaustive()
    }
}
