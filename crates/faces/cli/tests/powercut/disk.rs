//! A model of the disk: synced data is there, unsynced data may be there or not.
//!
//! The model follows the strict reading of POSIX. A change of a file is durable when a sync of that file that began
//! after the change has ended. A name (created, removed, renamed) is durable when the same holds for its folder: a
//! synced file whose folder was not synced may be gone. Common file systems promise more (they keep the order of names,
//! and a sync of a new file also keeps its name); a store that survives in this model also survives there.
//!
//! The model leaves out `-shm` files: SQLite changes them through memory, and creates them anew after every crash.

use std::collections::{BTreeMap, HashMap};

use crate::trace::{Record, Trace, What};

/// The name of the model's own folder within the model.
const ROOT: &str = "";

pub type FileId = usize;

#[derive(Clone, Debug, PartialEq)]
pub enum Change<'a> {
    Write { at: usize, data: &'a [u8] },
    Resize { bytes: usize },
}

#[derive(Clone, Debug, PartialEq)]
pub enum NameChange {
    Put(String, Entry),
    Remove(String),
    Rename { from: String, to: String },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entry {
    File(FileId),
    Folder,
}

/// A file or folder: its durable content, and the changes since, each with its place in the order of all changes.
#[derive(Clone, Debug)]
pub struct Node<D, C> {
    pub durable: D,
    pub pending: Vec<(u64, C)>,
}

impl<D: Default, C> Default for Node<D, C> {
    fn default() -> Self {
        Node { durable: D::default(), pending: Vec::new() }
    }
}

pub type FileNode<'a> = Node<Vec<u8>, Change<'a>>;
pub type FolderNode = Node<BTreeMap<String, Entry>, NameChange>;

/// Syncs that the disk lies about, to test that the checks notice it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lie {
    None,
    /// The sync after the new header when the WAL is restarted.
    WalHeader,
    /// Every sync of the WAL whose number is a multiple of this.
    WalEvery(u64),
}

pub struct Disk<'a> {
    trace: &'a Trace,
    root: String,
    lie: Lie,
    wal_syncs: u64,
    pub files: Vec<FileNode<'a>>,
    pub folders: BTreeMap<String, FolderNode>,
    /// The newest file of an inode number, because inode numbers are reused.
    by_inode: HashMap<u64, FileId>,
    /// The names that a process would see now.
    pub names: BTreeMap<String, FileId>,
    /// Syncs in progress, with the number of changes when they began.
    syncs: HashMap<u64, u64>,
    changes: u64,
}

impl<'a> Disk<'a> {
    /// Returns an empty disk that models everything below the folder `root`.
    pub fn new(trace: &'a Trace, root: &str, lie: Lie) -> Disk<'a> {
        Disk {
            trace,
            root: root.to_owned(),
            lie,
            wal_syncs: 0,
            files: Vec::new(),
            folders: BTreeMap::from([(ROOT.to_owned(), Node::default())]),
            by_inode: HashMap::new(),
            names: BTreeMap::new(),
            syncs: HashMap::new(),
            changes: 0,
        }
    }

    pub fn apply(&mut self, record: &Record) {
        let Some(path) = self.inside(&record.path) else { return };
        self.changes += 1;
        match &record.what {
            What::Opened => self.open(&path, record.inode),
            What::Written { at, data } => {
                let change = Change::Write { at: *at as usize, data: self.trace.data(data) };
                self.change_file(record.inode, change);
            }
            What::Resized { bytes } => {
                self.change_file(record.inode, Change::Resize { bytes: *bytes as usize });
            }
            What::Renamed { to } => {
                let to = self.inside(to).expect("a store renames only within its folder");
                let id = self.names.remove(&path).expect("a known file is renamed");
                self.names.insert(to.clone(), id);
                let (folder, from) = split(&path);
                let (target, to) = split(&to);
                assert_eq!(folder, target, "the model knows no rename from one folder to another");
                self.change_folder(folder, NameChange::Rename { from: from.to_owned(), to: to.to_owned() });
            }
            What::Unlinked => {
                self.names.remove(&path);
                let (folder, name) = split(&path);
                self.change_folder(folder, NameChange::Remove(name.to_owned()));
            }
            What::FolderMade => {
                let (folder, name) = split(&path);
                self.change_folder(folder, NameChange::Put(name.to_owned(), Entry::Folder));
                self.folders.entry(path).or_default();
            }
            What::SyncBegun { number } => {
                self.syncs.insert(*number, self.changes);
            }
            What::SyncEnded { number } => {
                let begun = self.syncs.remove(number).expect("a sync begins before it ends");
                self.sync(&path, record.inode, begun);
            }
        }
    }

    /// Returns the path within the model; `None` for files that the model leaves out.
    fn inside(&self, path: &str) -> Option<String> {
        let path = path.strip_prefix(&self.root)?.trim_start_matches('/');
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        (!path.ends_with("-shm")).then(|| path.to_owned())
    }

    fn open(&mut self, path: &str, inode: u64) {
        let known = self.by_inode.get(&inode).copied();
        if known.is_some() && self.names.get(path).copied() == known {
            return;
        }
        let id = self.files.len();
        self.files.push(Node::default());
        self.by_inode.insert(inode, id);
        self.names.insert(path.to_owned(), id);
        let (folder, name) = split(path);
        self.change_folder(folder, NameChange::Put(name.to_owned(), Entry::File(id)));
    }

    fn change_file(&mut self, inode: u64, change: Change<'a>) {
        let id = self.by_inode[&inode];
        self.files[id].pending.push((self.changes, change));
    }

    fn change_folder(&mut self, folder: &str, change: NameChange) {
        let folder = self.folders.get_mut(folder).expect("a folder is made before what is in it");
        folder.pending.push((self.changes, change));
    }

    fn sync(&mut self, path: &str, inode: u64, begun: u64) {
        if let Some(folder) = self.folders.get_mut(path) {
            settle(folder, begun, apply_name);
            return;
        }
        let file = &mut self.files[self.by_inode[&inode]];
        if path.ends_with("-wal") {
            self.wal_syncs += 1;
            let lies = match self.lie {
                Lie::None => false,
                Lie::WalHeader => is_new_header(file),
                Lie::WalEvery(nth) => self.wal_syncs.is_multiple_of(nth),
            };
            if lies {
                return;
            }
        }
        settle(file, begun, apply_change);
    }
}

/// Returns whether the last change that waits for this sync is a header in an existing WAL.
fn is_new_header(wal: &FileNode<'_>) -> bool {
    let is_header = |change: &Change<'_>| matches!(change, Change::Write { at: 0, .. });
    !wal.durable.is_empty() && wal.pending.last().is_some_and(|(_, change)| is_header(change))
}

fn settle<D, C>(node: &mut Node<D, C>, begun: u64, apply: impl Fn(&mut D, &C)) {
    let later = node.pending.iter().position(|(order, _)| *order > begun).unwrap_or(node.pending.len());
    for (_, change) in node.pending.drain(..later) {
        apply(&mut node.durable, &change);
    }
}

pub fn apply_change(bytes: &mut Vec<u8>, change: &Change<'_>) {
    match change {
        Change::Write { at, data } => {
            let end = at + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*at..end].copy_from_slice(data);
        }
        Change::Resize { bytes: size } => bytes.resize(*size, 0),
    }
}

pub fn apply_name(names: &mut BTreeMap<String, Entry>, change: &NameChange) {
    match change {
        NameChange::Put(name, entry) => {
            names.insert(name.clone(), *entry);
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
        NameChange::Rename { from, to } => {
            // If the creation of the file was lost, the rename is lost as well.
            if let Some(entry) = names.remove(from) {
                names.insert(to.clone(), entry);
            }
        }
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or((ROOT, path))
}
