//! The few operations on objects that a journal needs. Every one is a request with a deadline, except for listing and
//! deleting many, which are several.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, PutMode, PutOptions, PutPayload};

use crate::answer::Verdict;
use crate::notes::ExchangeNotes;
use crate::provider::{Provider, RequestKind};
use crate::request::{RequestContext, RequestFailure};

pub(crate) struct Bucket {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) context: RequestContext,
}

/// An object that was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadObject {
    pub(crate) bytes: Bytes,
    /// Missing only on a server that sends no entity tags.
    pub(crate) version: Option<String>,
    /// The server's clock when it answered.
    pub(crate) server_time_ms: Option<u64>,
    pub(crate) server_name: Option<String>,
}

/// An object that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenObject {
    pub(crate) version: Option<String>,
    /// Whether the bucket keeps the object's former versions.
    pub(crate) is_versioned: bool,
}

impl Bucket {
    /// Creates an object. Returns `None` if the key is taken.
    pub(crate) async fn create(
        &self,
        key: &Path,
        bytes: Bytes,
    ) -> Result<Option<WrittenObject>, RequestFailure> {
        match self.put(key, bytes, PutMode::Create).await {
            Ok(written) => Ok(Some(written)),
            Err(failure) if failure.verdict == Verdict::ConditionUnmet => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Replaces an object that still has a version. Returns `None` if it has another one, or is gone.
    pub(crate) async fn replace(
        &self,
        key: &Path,
        bytes: Bytes,
        version: String,
    ) -> Result<Option<WrittenObject>, RequestFailure> {
        let condition = self.context.url.provider.condition(version);
        match self.put(key, bytes, PutMode::Update(condition)).await {
            Ok(written) => Ok(Some(written)),
            Err(failure) if matches!(failure.verdict, Verdict::ConditionUnmet | Verdict::Missing) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Writes an object, whether there is one or not.
    pub(crate) async fn write(&self, key: &Path, bytes: Bytes) -> Result<(), RequestFailure> {
        self.put(key, bytes, PutMode::Overwrite).await.map(|_| ())
    }

    async fn put(&self, key: &Path, bytes: Bytes, mode: PutMode) -> Result<WrittenObject, RequestFailure> {
        let length = bytes.len();
        let options = PutOptions { mode, ..PutOptions::default() };
        let request = self.store.put_opts(key, PutPayload::from_bytes(bytes), options);
        let put =
            self.context.request(RequestKind::Put, key, length, &ExchangeNotes::default(), request).await?;
        let provider = self.context.url.provider;
        // Google numbers the states of every object.
        let is_versioned = put.version.is_some() && provider.version_put(&put) != put.version;
        Ok(WrittenObject { version: provider.version_put(&put), is_versioned })
    }

    /// Returns an object; `None` if there is none.
    pub(crate) async fn get(&self, key: &Path) -> Result<Option<ReadObject>, RequestFailure> {
        let request = self.store.get_opts(key, GetOptions::default());
        let notes = ExchangeNotes::default();
        let found = match self.context.request(RequestKind::Get, key, 0, &notes, request).await {
            Ok(found) => found,
            Err(failure) if failure.verdict == Verdict::Missing => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let version = self.context.url.provider.version_read(&found.meta);
        let length = usize::try_from(found.meta.size).unwrap_or(usize::MAX);
        let bytes = self.context.request(RequestKind::Get, key, length, &notes, found.bytes()).await?;
        let (server_time_ms, server_name) = (notes.server_time_ms(), notes.server_name());
        Ok(Some(ReadObject { bytes, version, server_time_ms, server_name }))
    }

    /// Lists the objects of a folder, in the order of their keys. A request brings up to 1,000 objects.
    pub(crate) fn list<'a>(&'a self, folder: &'a Path) -> Listing<'a> {
        Listing { context: &self.context, folder, objects: self.store.list(Some(folder)) }
    }

    /// Lists the objects of a folder whose keys come after `before`.
    pub(crate) fn list_after<'a>(&'a self, folder: &'a Path, before: &Path) -> Listing<'a> {
        Listing { context: &self.context, folder, objects: self.store.list_with_offset(Some(folder), before) }
    }

    /// Deletes objects, in order. A missing object is fine. A failure may leave some of the newest
    /// [`Bucket::deleted_at_once`] and all after them.
    pub(crate) async fn delete(&self, keys: &[Path]) -> Result<(), RequestFailure> {
        for keys in keys.chunks(self.deleted_at_once()) {
            let named: Vec<object_store::Result<Path>> = keys.iter().cloned().map(Ok).collect();
            let mut deleted = self.store.delete_stream(stream::iter(named).boxed());
            let all = async {
                while let Some(outcome) = deleted.next().await {
                    match outcome {
                        Err(object_store::Error::NotFound { .. })
                            if !ExchangeNotes::current().is_refused() => {}
                        outcome => drop(outcome?),
                    }
                }
                Ok(())
            };
            self.context.request(RequestKind::Delete, &keys[0], 0, &ExchangeNotes::default(), all).await?;
        }
        Ok(())
    }

    /// Returns how many objects one bulk request deletes, or can be deleted one by one within a deadline.
    fn deleted_at_once(&self) -> usize {
        match self.context.url.provider {
            Provider::S3 => 1_000,
            Provider::Azure => 256,
            Provider::Google => 100,
        }
    }
}

/// A listing that asks for more when what it has is used up.
pub(crate) struct Listing<'a> {
    context: &'a RequestContext,
    folder: &'a Path,
    objects: BoxStream<'static, object_store::Result<ObjectMeta>>,
}

impl Listing<'_> {
    pub(crate) async fn next(&mut self) -> Result<Option<ObjectMeta>, RequestFailure> {
        let next = async { self.objects.next().await.transpose() };
        self.context.request(RequestKind::List, self.folder, 0, &ExchangeNotes::default(), next).await
    }
}
