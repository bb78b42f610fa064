//! A job: a request with everything that it needs, executed by a worker thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use millrace_reactor::zcl1::{FieldWriter, HEADER_BYTES};

use super::completion::{JobDone, JobError};
use super::requests::READ_BYTES_MAX;
use super::root::{FileRoot, LinkAtEnd, OpenFlags};
use crate::errno::file_error;
use crate::requests::ANSWER_BYTES_MAX;

const OPEN_READ: u32 = 1;
const OPEN_WRITE: u32 = 2;
const OPEN_CREATE: u32 = 4;
const OPEN_TRUNCATE: u32 = 8;
const OPEN_APPEND: u32 = 0x10;

/// The operations. Paths and data were copied from the guest's memory when the request arrived.
#[derive(Debug)]
pub(super) enum AioJob {
    Open { path: Vec<u8>, flags: u32, mode: u32 },
    Close { file_id: u64 },
    Read { file_id: u64, offset: u64, bytes_max: usize },
    Write { file_id: u64, offset: u64, data: Vec<u8> },
    MakeDir { path: Vec<u8>, mode: u32 },
    RemoveDir { path: Vec<u8> },
    Unlink { path: Vec<u8> },
    Stat { path: Vec<u8> },
    ReadDir { path: Vec<u8>, bytes_max: usize },
}

/// The files that a handle has open, by the ids that the guest knows.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: BTreeMap<u64, File>,
    last_id: u64,
    files_max: usize,
}

impl OpenFiles {
    pub(super) fn new(files_max: usize) -> OpenFiles {
        OpenFiles { files: BTreeMap::new(), last_id: 0, files_max }
    }

    fn get(&self, id: u64) -> Result<&File, JobError> {
        self.files.get(&id).ok_or(JobError::from("unknown file_id"))
    }
}

impl AioJob {
    pub(super) const COMPLETION_BYTES_MAX: usize = HEADER_BYTES + ANSWER_BYTES_MAX + READ_BYTES_MAX as usize;

    /// Returns how many bytes the frame DONE can have at most.
    pub(super) fn completion_bytes_max(&self) -> usize {
        let extra = match self {
            AioJob::Read { bytes_max, .. } | AioJob::ReadDir { bytes_max, .. } => *bytes_max,
            _ => 0,
        };
        HEADER_BYTES + ANSWER_BYTES_MAX + extra
    }

    /// Returns how many bytes of data the job holds.
    pub(super) fn data_bytes(&self) -> usize {
        if let AioJob::Write { data, .. } = self { data.len() } else { 0 }
    }

    pub(super) fn execute(self, files: &mut OpenFiles, root: &FileRoot) -> Result<JobDone, JobError> {
        match self {
            AioJob::Open { path, flags, mode } => open(files, root, &path, flags, mode),
            AioJob::Close { file_id } => {
                files.files.remove(&file_id).map(|_| JobDone::nothing()).ok_or("unknown file_id".into())
            }
            AioJob::Read { file_id, offset, bytes_max } => read(files.get(file_id)?, offset, bytes_max),
            AioJob::Write { file_id, offset, data } => write(files.get(file_id)?, offset, &data),
            AioJob::MakeDir { path, mode } => {
                let path = allowed(root, &path, LinkAtEnd::Refuse)?;
                finished("mkdir", root.make_dir(&path, or_default(mode, 0o755)))
            }
            AioJob::RemoveDir { path } => {
                let path = allowed(root, &path, LinkAtEnd::Refuse)?;
                finished("rmdir", root.remove_dir(&path))
            }
            // A link is removed or described itself; it is not followed.
            AioJob::Unlink { path } => {
                finished("unlink", root.remove_file(&allowed(root, &path, LinkAtEnd::Keep)?))
            }
            AioJob::Stat { path } => {
                let extra = root.stat(&allowed(root, &path, LinkAtEnd::Keep)?);
                extra.map(|extra| JobDone { count: 0, extra }).map_err(|error| failed("stat", &error))
            }
            AioJob::ReadDir { path, bytes_max } => read_dir(root, &path, bytes_max),
        }
    }
}

fn open(
    files: &mut OpenFiles,
    root: &FileRoot,
    path: &[u8],
    flags: u32,
    mode: u32,
) -> Result<JobDone, JobError> {
    let has = |flag| flags & flag != 0;
    let known = OPEN_READ | OPEN_WRITE | OPEN_CREATE | OPEN_TRUNCATE | OPEN_APPEND;
    if flags & !known != 0 || !(has(OPEN_READ) || has(OPEN_WRITE)) {
        return Err("bad oflags".into());
    }
    if (has(OPEN_TRUNCATE) || has(OPEN_APPEND)) && !has(OPEN_WRITE) {
        return Err("TRUNC/APPEND requires write".into());
    }
    if files.files.len() >= files.files_max {
        return Err("too many open files".into());
    }
    let path = allowed(root, path, LinkAtEnd::Follow)?;
    let flags = OpenFlags {
        read: has(OPEN_READ),
        write: has(OPEN_WRITE),
        create: has(OPEN_CREATE),
        truncate: has(OPEN_TRUNCATE),
        append: has(OPEN_APPEND),
    };
    let file =
        root.open_file(&path, flags, or_default(mode, 0o644)).map_err(|error| failed("open", &error))?;
    files.last_id += 1;
    files.files.insert(files.last_id, file);
    let mut extra = Vec::new();
    FieldWriter::new(&mut extra).u64(files.last_id);
    Ok(JobDone { count: 0, extra })
}

fn read(file: &File, offset: u64, bytes_max: usize) -> Result<JobDone, JobError> {
    let mut bytes = vec![0; bytes_max];
    let mut count = 0;
    // A short read is not the end of a file, but reading nothing is.
    while count < bytes_max {
        match file.read_at(&mut bytes[count..], offset.saturating_add(count as u64)) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if count > 0 => break,
            Err(_) => return Err("read failed".into()),
        }
    }
    bytes.truncate(count);
    Ok(JobDone::counted(count, bytes))
}

fn write(file: &File, offset: u64, data: &[u8]) -> Result<JobDone, JobError> {
    let mut count = 0;
    while count < data.len() {
        match file.write_at(&data[count..], offset.saturating_add(count as u64)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(more) if more > 0 => count += more,
            _ if count > 0 => break,
            _ => return Err("write failed".into()),
        }
    }
    Ok(JobDone::counted(count, Vec::new()))
}

fn read_dir(root: &FileRoot, path: &[u8], bytes_max: usize) -> Result<JobDone, JobError> {
    let path = allowed(root, path, LinkAtEnd::Follow)?;
    let entries = root.read_dir(&path, bytes_max).map_err(|_| JobError::from("readdir open failed"))?;
    let mut extra = Vec::with_capacity(4 + entries.bytes.len());
    FieldWriter::new(&mut extra).u32(u32::from(entries.is_truncated));
    extra.extend_from_slice(&entries.bytes);
    Ok(JobDone::counted(entries.count, extra))
}

fn allowed(root: &FileRoot, path: &[u8], end: LinkAtEnd) -> Result<PathBuf, JobError> {
    root.resolve(path, end).ok_or("denied".into())
}

fn finished(what: &str, result: io::Result<()>) -> Result<JobDone, JobError> {
    result.map(|()| JobDone::nothing()).map_err(|error| failed(what, &error))
}

fn failed(what: &str, error: &io::Error) -> JobError {
    JobError(format!("{what} failed: {}", file_error(error).code()))
}

fn or_default(mode: u32, default: u32) -> u32 {
    if mode == 0 { default } else { mode }
}
