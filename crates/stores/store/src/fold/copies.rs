//! Where the copy of a shared store is kept.

use std::io::Read;
use std::sync::Arc;

use crate::error::StoreError;
use crate::fold::{CopyPosition, Foldable};

/// The bounds of a shared store that its copies keep, whichever server they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyBounds {
    /// How many ids brought by clients are remembered for dedupe.
    pub dedupe_ids_max: usize,
}

/// The place of one copy: a file under the cache folder of a server, or memory in a simulation.
pub trait Copies: Send + Sync + 'static {
    /// Opens the copy that is there, for this handle alone; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] and [`StoreError::Unreadable`] say that the copy cannot be used: it is set aside and
    /// made anew. Every other error is one of this machine, such as a full disk.
    fn open(&self, bounds: &CopyBounds) -> Result<Option<Arc<dyn Foldable>>, StoreError>;

    /// Returns whether there is a copy, usable or not, also if another process has it open.
    fn is_there(&self) -> Result<bool, StoreError>;

    /// Makes a new copy, of a snapshot or empty, and opens it. There must be none.
    fn create(
        &self,
        snapshot: Option<&mut dyn Read>,
        bounds: &CopyBounds,
    ) -> Result<Arc<dyn Foldable>, StoreError>;

    /// Moves a closed copy out of the way, under a name that contains `reason`. Returns where it is now.
    fn set_aside(&self, reason: &str) -> Result<String, StoreError>;

    /// Notes durably that the copy must be set aside before it is opened again, and why: `reason` becomes part of a
    /// file's name.
    fn condemn(&self, reason: &str) -> Result<(), StoreError>;

    /// Returns the reason that [`Copies::condemn`] has noted.
    fn condemned(&self) -> Result<Option<String>, StoreError>;

    /// Opens a copy that [`Copies::set_aside`] has moved, to read it.
    fn open_aside(&self, aside: &str) -> Result<Arc<dyn Foldable>, StoreError> {
        Err(StoreError::Unusable(format!("{aside} cannot be opened here").into()))
    }

    /// Writes a small file beside the copy, under its name and `suffix`. Returns where it is.
    fn write_beside(&self, suffix: &str, _bytes: &[u8]) -> Result<String, StoreError> {
        Err(StoreError::Unusable(format!("there is no place for {suffix}").into()))
    }

    /// Writes a snapshot of the open copy, of one moment, piece by piece. Returns the position it has. Commits go on
    /// meanwhile.
    fn snapshot(
        &self,
        write: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<CopyPosition, StoreError>;
}
