//! The capability `fs`: the files of one folder.

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError};
use super::folder::{Folder, FsError, FsErrorKind};
use super::shape::{bytes, bytes_that_fit, fs_result};
use crate::value::Value;

pub(super) const OPS: &[&str] = &[
    "read_bytes",
    "read_string",
    "write_bytes",
    "write_string",
    "exists",
    "list_dir",
    "remove",
    "create_dir_all",
    "rename",
    "write_atomic",
    "create_exclusive",
];

const PATH: &str = "a path must be a string that is not empty";
const WRITE: &str = "a file must be a record {path, bytes} or {path, value}";
const CONTENT: &str =
    "content must be a record {path, kind, bytes} or {path, kind, value} of kind bytes or string";
const RENAME: &str = "a rename must be a record {from, to} of strings";

pub(super) fn call(folder: &Folder, call: &CapabilityCall<'_>) -> Result<CapabilityAnswer, CapabilityError> {
    let generation = call.generation;
    let reply = |result, empty| CapabilityAnswer::Now(fs_result(generation, result, empty));
    let unit = |result: Result<(), FsError>| reply(result.map(|()| Value::Nil), Value::Map(Vec::new()));
    let max = call.reply_bytes_max();
    Ok(match call.op {
        "read_bytes" => {
            let read = fit(call, folder.read(path(call)?, bytes_that_fit(generation, max)));
            reply(read.map(|read| bytes(generation, read)), bytes(generation, Vec::new()))
        }
        "read_string" => {
            let read = fit(call, folder.read(path(call)?, max));
            reply(read.map(|read| String::from_utf8_lossy(&read).into_owned().into()), "".into())
        }
        "write_bytes" => {
            unit(folder.write(call.text_field("path", WRITE)?, &call.bytes_field("bytes", WRITE)?))
        }
        "write_string" => {
            unit(folder.write(call.text_field("path", WRITE)?, call.text_field("value", WRITE)?.as_bytes()))
        }
        "exists" => CapabilityAnswer::Now(folder.exists(path(call)?).into()),
        "list_dir" => {
            let entries = fit(call, folder.list(path(call)?, max));
            let list = |entries: Vec<String>| Value::Array(entries.into_iter().map(Value::Str).collect());
            reply(entries.map(list), Value::Array(Vec::new()))
        }
        "remove" => unit(folder.remove(path(call)?)),
        "create_dir_all" => unit(folder.create_dir_all(path(call)?)),
        "rename" => unit(folder.rename(call.text_field("from", RENAME)?, call.text_field("to", RENAME)?)),
        "write_atomic" => unit(folder.write_atomic(call.text_field("path", CONTENT)?, &content(call)?)),
        "create_exclusive" => unit(folder.create(call.text_field("path", CONTENT)?, &content(call)?)),
        _ => return Err(call.unknown("fs", OPS)),
    })
}

fn path<'a>(call: &CapabilityCall<'a>) -> Result<&'a str, CapabilityError> {
    call.args.first().and_then(Value::as_str).filter(|path| !path.is_empty()).ok_or_else(|| call.bad(PATH))
}

fn content(call: &CapabilityCall<'_>) -> Result<Vec<u8>, CapabilityError> {
    match call.text_field("kind", CONTENT)? {
        "bytes" => call.bytes_field("bytes", CONTENT),
        "string" => Ok(call.text_field("value", CONTENT)?.as_bytes().to_vec()),
        _ => Err(call.bad(CONTENT)),
    }
}

/// Names the operation and the buffer in an error about a reply that is too large, so that the size can be raised.
fn fit<T>(call: &CapabilityCall<'_>, result: Result<T, FsError>) -> Result<T, FsError> {
    result.map_err(|error| match error {
        FsError { kind: FsErrorKind::TooLarge, code, message } => FsError {
            kind: FsErrorKind::TooLarge,
            code,
            message: format!("{}: {message} (the buffer has {} bytes)", call.op, call.buffer_bytes),
        },
        error => error,
    })
}
