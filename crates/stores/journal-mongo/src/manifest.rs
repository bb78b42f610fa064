//! The manifest: one document `{_id: "manifest", version: number, b: bytes}`, replaced only if its version is the
//! expected one.

use bytes::Bytes;
use millrace_journal::{ManifestRead, ManifestVersion};
use mongodb::bson::raw::cstr;
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};

use crate::binary::{append_bytes, bytes_of};
use crate::collections::{Collections, settled};
use crate::failure::{DUPLICATE_KEY, RequestError};

const ID: &str = "manifest";

pub(crate) fn document_of(version: i64, bytes: &[u8]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), ID);
    document.append(cstr!("version"), version);
    append_bytes(&mut document, cstr!("b"), bytes);
    document
}

/// Asks for the engine's clock in the same request, so that the reading and its time belong together.
pub(crate) async fn read(
    collections: &Collections,
    has_elections: bool,
) -> Result<Option<ManifestRead>, RequestError> {
    let find = collections.manifest.find_one(doc! { "_id": ID });
    let find = find.projection(doc! { "version": 1, "b": 1, "now": "$$NOW" });
    let find = find.read_concern(settled(has_elections)).max_time(collections.engine_timeout);
    find.await?.as_deref().map(manifest_of).transpose()
}

fn manifest_of(document: &RawDocument) -> Result<ManifestRead, RequestError> {
    let (Ok(version), Some(bytes)) = (document.get_i64("version"), bytes_of(document, "b")) else {
        return Err(RequestError::refused(
            "the document manifest has another form; something else has changed it",
        ));
    };
    let now = document.get_datetime("now").ok();
    Ok(ManifestRead {
        bytes: Bytes::copy_from_slice(bytes),
        version: ManifestVersion(version.to_string()),
        engine_time_ms: now.and_then(|now| u64::try_from(now.timestamp_millis()).ok()),
    })
}

/// Makes the first manifest. Returns whether there was none.
pub(crate) async fn make(collections: &Collections, document: RawDocumentBuf) -> Result<bool, RequestError> {
    match collections.manifest.insert_one(document).await.map_err(RequestError::from) {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(DUPLICATE_KEY) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces the manifest of version `was`. Returns whether it had that version.
pub(crate) async fn replace(
    collections: &Collections,
    was: i64,
    document: RawDocumentBuf,
) -> Result<bool, RequestError> {
    let replaced = collections.manifest.replace_one(doc! { "_id": ID, "version": was }, document).await?;
    Ok(replaced.matched_count == 1)
}
