//! Detects whether the files behind a command have changed: an edited script is a changed capability.

use std::path::Path;
use std::time::SystemTime;

use crate::settings::ChildSettings;

/// Length and modification time of every word of the command that names a file. Programs found through `PATH` are not
/// checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<Option<(u64, Option<SystemTime>)>>);

impl Stamp {
    /// Reads the files' metadata. Blocks.
    pub(crate) fn of(settings: &ChildSettings) -> Stamp {
        let cwd = settings.cwd.as_deref().unwrap_or(Path::new(""));
        let look = |word: &String| {
            let found = std::fs::metadata(cwd.join(word)).ok().filter(std::fs::Metadata::is_file)?;
            Some((found.len(), found.modified().ok()))
        };
        Stamp(settings.command.iter().map(look).collect())
    }
}
