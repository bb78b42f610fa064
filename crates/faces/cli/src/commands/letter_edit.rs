//! `millrace dead-letters replay --edit`: changes a letter in the user's editor before its event is published again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_model::Offset;
use millrace_wire::Envelope;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::failure::Failure;

/// Headers that say where the letter comes from; the server keeps them, whatever the editor writes.
const KEPT: [&str; 2] = ["x-dlq-", "x-replayed-"];

/// The file that the editor is given.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditedFile {
    key: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    payload: Box<RawValue>,
}

/// Opens the letter in the editor. Returns the request that publishes what the user left; `None` if nothing was changed.
pub(super) fn edited(letter: &Envelope, partition: u32, offset: Offset) -> Result<Option<String>, Failure> {
    let before = text_of(letter);
    let file = TempFile::create(&before)?;
    run_editor(&file.0)?;
    let after = fs::read_to_string(&file.0)
        .map_err(|error| Failure::Failed(format!("the edited letter cannot be read: {error}")))?;
    if after == before {
        return Ok(None);
    }
    let EditedFile { key, headers, payload } = serde_json::from_str(&after).map_err(|error| {
        Failure::Failed(format!("the edited letter is not JSON with key, headers and payload: {error}"))
    })?;
    // The payload stays as it was written: a number keeps all its digits.
    let (key, headers) = (json(&key)?, json(&headers)?);
    Ok(Some(format!(
        "{{\"edited\":[{{\"partition\":{partition},\"offset\":{offset},\"key\":{key},\"headers\":{headers},\"payload\":{}}}]}}",
        payload.get()
    )))
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::Failed(error.to_string()))
}

fn text_of(letter: &Envelope) -> String {
    let headers = letter.headers.as_ref().map(millrace_model::Headers::to_map).unwrap_or_default();
    let own = headers.into_iter().filter(|(name, _)| !KEPT.iter().any(|kept| name.starts_with(kept)));
    let own: BTreeMap<String, String> = own.collect();
    let (key, headers) = (serde_json::json!(letter.key), serde_json::json!(own));
    format!("{{\n\"key\": {key},\n\"headers\": {headers},\n\"payload\": {}\n}}\n", letter.payload.as_str())
}

/// A file that only its owner can read, because letters may hold secrets. Removed when it is dropped.
struct TempFile(PathBuf);

impl TempFile {
    fn create(text: &str) -> Result<TempFile, Failure> {
        let name = format!("millrace-letter-{}-{:016x}.json", std::process::id(), rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        let write = || {
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(text.as_bytes())
        };
        write().map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))?;
        Ok(TempFile(path))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A file that stays in the folder of temporary files harms nobody but its owner.
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs `$VISUAL`, else `$EDITOR`, else `vi`.
fn run_editor(path: &Path) -> Result<(), Failure> {
    let named = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    let line = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let words = shlex::split(&line).unwrap_or_default();
    let Some((program, rest)) = words.split_first() else {
        return Err(Failure::Usage(format!("EDITOR is {line:?}: it names no program")));
    };
    let status = Command::new(program).args(rest).arg(path).status();
    let status =
        status.map_err(|error| Failure::Failed(format!("cannot start the editor {program}: {error}")))?;
    if !status.success() {
        return Err(Failure::Failed(format!("the editor ended with {status}: nothing was replayed")));
    }
    Ok(())
}
