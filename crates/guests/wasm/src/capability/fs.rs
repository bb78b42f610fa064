//! The capability `fs`: the files of one folder.

use std::sync::Arc;

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError, ReplyRoom};
use super::folder::{Folder, FsError, FsErrorKind};
use super::shape::{bytes, bytes_that_fit, fs_result};
use crate::codec::Generation;
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

/// A request whose arguments have been parsed.
enum FileRequest {
    ReadBytes { path: String },
    ReadString { path: String },
    Write { path: String, bytes: Vec<u8> },
    Exists { path: String },
    ListDir { path: String },
    Remove { path: String },
    CreateDirAll { path: String },
    Rename { from: String, to: String },
    WriteAtomic { path: String, bytes: Vec<u8> },
    Create { path: String, bytes: Vec<u8> },
}

pub(super) fn call(
    folder: &Arc<Folder>,
    call: &CapabilityCall<'_>,
) -> Result<CapabilityAnswer, CapabilityError> {
    let request = read(call)?;
    let folder = folder.clone();
    let reply = FileReply {
        generation: call.generation,
        op: call.op.to_owned(),
        room: call.room(),
        bytes_max: call.reply_bytes_max(),
    };
    Ok(CapabilityAnswer::Brief(Box::new(move || carry_out(&folder, request, &reply))))
}

fn read(call: &CapabilityCall<'_>) -> Result<FileRequest, CapabilityError> {
    let field = |name, expected| call.text_field(name, expected).map(str::to_owned);
    Ok(match call.op {
        "read_bytes" => FileRequest::ReadBytes { path: path(call)? },
        "read_string" => FileRequest::ReadString { path: path(call)? },
        "write_bytes" => {
            FileRequest::Write { path: field("path", WRITE)?, bytes: call.bytes_field("bytes", WRITE)? }
        }
        "write_string" => {
            FileRequest::Write { path: field("path", WRITE)?, bytes: field("value", WRITE)?.into_bytes() }
        }
        "exists" => FileRequest::Exists { path: path(call)? },
        "list_dir" => FileRequest::ListDir { path: path(call)? },
        "remove" => FileRequest::Remove { path: path(call)? },
        "create_dir_all" => FileRequest::CreateDirAll { path: path(call)? },
        "rename" => FileRequest::Rename { from: field("from", RENAME)?, to: field("to", RENAME)? },
        "write_atomic" => FileRequest::WriteAtomic { path: field("path", CONTENT)?, bytes: content(call)? },
        "create_exclusive" => FileRequest::Create { path: field("path", CONTENT)?, bytes: content(call)? },
        _ => return Err(call.unknown("fs", OPS)),
    })
}

fn carry_out(folder: &Folder, request: FileRequest, reply: &FileReply) -> Value {
    let generation = reply.generation;
    match request {
        FileRequest::ReadBytes { path } => {
            let read = folder.read(&path, bytes_that_fit(generation, reply.bytes_max));
            let read = read.map(|read| bytes(generation, read));
            reply.of(&path, read, &bytes(generation, Vec::new()))
        }
        FileRequest::ReadString { path } => {
            let read = folder.read(&path, reply.bytes_max);
            let read = read.map(|read| String::from_utf8_lossy(&read).into_owned().into());
            reply.of(&path, read, &"".into())
        }
        FileRequest::Write { path, bytes } => reply.done(&path, folder.write(&path, &bytes)),
        FileRequest::Exists { path } => folder.exists(&path).into(),
        FileRequest::ListDir { path } => {
            let entries = folder.list(&path, reply.bytes_max);
            let list = |entries: Vec<String>| Value::Array(entries.into_iter().map(Value::Str).collect());
            reply.of(&path, entries.map(list), &Value::Array(Vec::new()))
        }
        FileRequest::Remove { path } => reply.done(&path, folder.remove(&path)),
        FileRequest::CreateDirAll { path } => reply.done(&path, folder.create_dir_all(&path)),
        FileRequest::Rename { from, to } => reply.done(&from, folder.rename(&from, &to)),
        FileRequest::WriteAtomic { path, bytes } => reply.done(&path, folder.write_atomic(&path, &bytes)),
        FileRequest::Create { path, bytes } => reply.done(&path, folder.create(&path, &bytes)),
    }
}

/// Makes the reply to a request.
struct FileReply {
    generation: Generation,
    op: String,
    room: ReplyRoom,
    /// How many bytes of content are worth reading.
    bytes_max: usize,
}

impl FileReply {
    fn done(&self, path: &str, result: Result<(), FsError>) -> Value {
        self.of(path, result.map(|()| Value::Nil), &Value::Map(Vec::new()))
    }

    /// Returns the reply, or the error that it does not fit the buffer: short content may become long when it is
    /// encoded.
    fn of(&self, path: &str, result: Result<Value, FsError>, empty: &Value) -> Value {
        let shaped = |result| fs_result(self.generation, result, empty.clone());
        let reply = shaped(result.map_err(|error| self.named(error)));
        if self.room.fits(&reply) {
            return reply;
        }
        let too_large = self.named(FsError::too_large(path, self.bytes_max));
        let without_text = FsError { message: String::new(), ..too_large.clone() };
        let reply = shaped(Err(too_large));
        if self.room.fits(&reply) { reply } else { shaped(Err(without_text)) }
    }

    /// Adds the operation and the buffer's size to an error about a reply that is too large, so that the size can be
    /// raised.
    fn named(&self, error: FsError) -> FsError {
        match error {
            FsError { kind: FsErrorKind::TooLarge, code, message } => FsError {
                kind: FsErrorKind::TooLarge,
                code,
                message: format!("{}: {message} (the buffer has {} bytes)", self.op, self.room.buffer_bytes),
            },
            error => error,
        }
    }
}

fn path(call: &CapabilityCall<'_>) -> Result<String, CapabilityError> {
    let path = call.args.first().and_then(Value::as_str).filter(|path| !path.is_empty());
    path.map(str::to_owned).ok_or_else(|| call.bad(PATH))
}

fn content(call: &CapabilityCall<'_>) -> Result<Vec<u8>, CapabilityError> {
    match call.text_field("kind", CONTENT)? {
        "bytes" => call.bytes_field("bytes", CONTENT),
        "string" => Ok(call.text_field("value", CONTENT)?.as_bytes().to_vec()),
        _ => Err(call.bad(CONTENT)),
    }
}
