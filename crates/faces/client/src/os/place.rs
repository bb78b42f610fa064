//! Checks the owner of the default socket's folder before a client connects.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::os::error::OsClientError;
use crate::os::options::default_socket;

/// Permission bits that let others than the owner put a socket into the folder.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Refuses the default socket if its folder is not ours alone. In a directory that everybody may write to, somebody
/// else may have created the folder, and would receive tokens and commands that were meant for our own server.
/// `millrace serve` refuses such a folder, too. A path that the caller names is not checked.
pub fn check_socket(path: &Path) -> Result<(), OsClientError> {
    if path != default_socket() {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    check_folder(folder, rustix::process::geteuid().as_raw())
}

fn check_folder(folder: &Path, own_uid: u32) -> Result<(), OsClientError> {
    match fs::symlink_metadata(folder) {
        Ok(found) if found.is_dir() && found.uid() == own_uid && found.mode() & WRITABLE_BY_OTHERS == 0 => {
            Ok(())
        }
        Ok(_) => Err(OsClientError::Foreign { folder: folder.to_owned() }),
        // Without the folder there is no socket: connecting reports that better.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(OsClientError::Unreachable { path: folder.to_owned(), reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_a_folder_of_our_own_is_trusted() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("millrace");
        let own_uid = fs::metadata(base.path()).unwrap().uid();
        assert!(check_folder(&folder, own_uid).is_ok(), "what is not there is nobody's");
        fs::create_dir(&folder).unwrap();
        let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o700);
        assert!(check_folder(&folder, own_uid).is_ok());
        let foreign = check_folder(&folder, own_uid + 1);
        assert!(matches!(foreign, Err(OsClientError::Foreign { .. })), "{foreign:?}");
        mode(0o777);
        assert!(check_folder(&folder, own_uid).is_err(), "anybody may put a socket there");
        mode(0o700);
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(check_folder(&link, own_uid).is_err(), "a link may lead anywhere");
    }
}
