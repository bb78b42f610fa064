//! Parts of snapshots: one document `{_id: name, b: bytes}` each, in the collection `parts`.

use bytes::Bytes;
use millrace_journal::PartName;
use mongodb::bson::raw::cstr;
use mongodb::bson::{RawDocumentBuf, doc};

use crate::binary::{append_bytes, bytes_of};
use crate::collections::Collections;
use crate::failure::RequestError;

pub(crate) fn document_of(name: &PartName, bytes: &[u8]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), name.0.as_str());
    append_bytes(&mut document, cstr!("b"), bytes);
    document
}

pub(crate) async fn put(
    collections: &Collections,
    name: &PartName,
    document: RawDocumentBuf,
) -> Result<(), RequestError> {
    collections.parts.replace_one(doc! { "_id": &name.0 }, document).upsert(true).await?;
    Ok(())
}

pub(crate) async fn get(
    collections: &Collections,
    name: &PartName,
    has_elections: bool,
) -> Result<Option<Bytes>, RequestError> {
    let filter = doc! { "_id": &name.0 };
    let found = collections.find_one_settled(&collections.parts, filter, has_elections).await?;
    let Some(document) = found else { return Ok(None) };
    match bytes_of(&document, "b") {
        Some(bytes) => Ok(Some(Bytes::copy_from_slice(bytes))),
        None => Err(RequestError::refused(format!(
            "the part {name} has another form; something else has changed it"
        ))),
    }
}

pub(crate) async fn list(collections: &Collections) -> Result<Vec<PartName>, RequestError> {
    let find = collections.parts.find(doc! {}).projection(doc! { "_id": 1 });
    let mut cursor = find.max_time(collections.engine_timeout).await?;
    let mut names = Vec::new();
    while cursor.advance().await? {
        let name = cursor.current().get_str("_id");
        let name =
            name.map_err(|_| RequestError::refused("the collection parts holds a document that is no part"))?;
        names.push(PartName(name.to_owned()));
    }
    Ok(names)
}

pub(crate) async fn delete(collections: &Collections, name: &PartName) -> Result<(), RequestError> {
    collections.parts.delete_one(doc! { "_id": &name.0 }).await?;
    Ok(())
}
