//! Warns of files with secrets that other users of the machine can read. The files are never changed, because they
//! belong to the user.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use millrace_stores::StoreUrl;

use crate::settings::Effective;

/// The permission bit that lets everybody read. Group permissions are accepted: they are the usual way to let a service
/// read a file of root.
const ANYBODY_READS: u32 = 0o004;
/// All permission bits of group and others. A store belongs to one user: its lock files admit nobody else.
const OTHERS: u32 = 0o077;

/// Returns warnings for the settings file, for the key of the certificate and for the first token.
pub(crate) fn secrets(effective: &Effective) -> Vec<String> {
    let key = &effective.config.tls_key;
    let key = Some(key).filter(|key| !key.is_empty());
    let first_token = &effective.config.first_token;
    let first_token = Some(first_token).filter(|file| !file.is_empty());
    let config = effective.secrets_in.as_ref();
    [
        (config, "tokens"),
        (key, "the private key of the certificate"),
        (first_token, "a token that may do everything"),
    ]
    .into_iter()
    .filter_map(|(path, what)| warning(Path::new(path?), ANYBODY_READS, what))
    .collect()
}

/// Returns a warning for an existing store: older versions created it readable for everybody.
pub(crate) fn store(url: &StoreUrl) -> Option<String> {
    warning(url.file()?, OTHERS, "every event")
}

fn warning(path: &Path, who: u32, what: &str) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.mode() & 0o777;
    let path = path.display();
    (mode & who != 0).then(|| {
        format!(
            "others on this machine can open {path} (mode {mode:04o}), which holds {what}: `chmod 600 {path}`"
        )
    })
}
