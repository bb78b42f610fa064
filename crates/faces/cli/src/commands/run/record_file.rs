//! The file of `--record`. Only a recording or an empty file is overwritten.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use millrace_wasm::record::is_recording_head;

use crate::failure::Failure;

/// How many bytes of the first line are read to find out whether a file is a recording; the head of a recording is
/// shorter.
const HEAD_BYTES_MAX: u64 = 4_096;

/// Opens the file for a new recording. `inputs` are the files that the command reads.
pub(super) fn create(path: &Path, inputs: &[&Path]) -> Result<File, Failure> {
    let unwritable = |error: io::Error| Failure::Usage(format!("cannot write {}: {error}", path.display()));
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        // A pipe or a device holds nothing that could be lost.
        return File::create(path).map_err(unwritable);
    }
    // The checks below use the opened file, because the name may refer to another file by now.
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = file.map_err(unwritable)?;
    let found = file.metadata().map_err(unwritable)?;
    if let Some(input) = inputs.iter().find(|input| is_same_file(&found, input)) {
        let (path, input) = (path.display(), input.display());
        return Err(Failure::Usage(format!("--record {path} is the same file as {input}, which is read")));
    }
    if found.len() > 0 && !is_recording(&file).map_err(unwritable)? {
        return Err(Failure::Usage(format!(
            "--record {}: the file exists and is no recording; remove it, or give another name",
            path.display()
        )));
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(unwritable)?;
    Ok(file)
}

fn is_same_file(found: &Metadata, input: &Path) -> bool {
    input.metadata().is_ok_and(|input| (input.dev(), input.ino()) == (found.dev(), found.ino()))
}

fn is_recording(file: &File) -> io::Result<bool> {
    let mut head = Vec::new();
    BufReader::new(file.take(HEAD_BYTES_MAX)).read_until(b'\n', &mut head)?;
    Ok(std::str::from_utf8(&head).is_ok_and(is_recording_head))
}
