//! Bytes as values of documents, without a copy on the way.

use mongodb::bson::raw::{CStr, RawBinaryRef};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{RawDocument, RawDocumentBuf};

use millrace_journal::JournalError;

/// A document holds 16 MiB. The rest is for its other fields and their names.
pub(crate) const BYTES_MAX: usize = 16 * 1024 * 1024 - 1024;

pub(crate) fn append_bytes(document: &mut RawDocumentBuf, key: &CStr, bytes: &[u8]) {
    document.append(key, RawBinaryRef { subtype: BinarySubtype::Generic, bytes });
}

pub(crate) fn bytes_of<'a>(document: &'a RawDocument, key: &str) -> Option<&'a [u8]> {
    document.get_binary(key).ok().map(|binary| binary.bytes)
}

/// Refuses bytes that no document can hold.
pub(crate) fn check_size(of: &str, bytes: &[u8]) -> Result<(), JournalError> {
    if bytes.len() > BYTES_MAX {
        return Err(JournalError::Refused(
            format!("{of} has {} bytes: a document of MongoDB holds at most {BYTES_MAX}", bytes.len()).into(),
        ));
    }
    Ok(())
}
