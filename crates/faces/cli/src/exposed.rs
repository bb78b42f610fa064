//! Files with secrets that others on the machine can read. They are told of and never changed: they are the user's.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use millrace_stores::StoreUrl;

use crate::settings::Effective;

/// Everybody. A group is how a service is let in to a file that is root's.
const ANYBODY_READS: u32 = 0o004;
/// The store belongs to one user: its locks let nobody else in.
const OTHERS: u32 = 0o077;

/// The file of settings and the key of the certificate.
pub(crate) fn secrets(effective: &Effective) -> Vec<String> {
    let key = &effective.config.tls_key;
    let key = Some(key).filter(|key| !key.is_empty());
    let config = effective.secrets_in.as_ref();
    [(config, "tokens"), (key, "the private key of the certificate")]
        .into_iter()
        .filter_map(|(path, what)| warning(Path::new(path?), ANYBODY_READS, what))
        .collect()
}

/// A store that is there already: older versions made it readable for everybody.
pub(crate) fn store(url: &StoreUrl) -> Option<String> {
    match url {
        StoreUrl::Sqlite(path) => warning(path, OTHERS, "every event"),
        StoreUrl::Memory => None,
    }
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
