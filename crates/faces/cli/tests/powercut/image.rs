//! Writes an image: the files that a power cut may have left on the disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::dice::Dice;
use crate::disk::{Change, Disk, Entry, apply_change, apply_name};

/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Which of the unsynced changes are in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    None,
    All,
    /// Those before a random moment.
    Prefix,
    /// Those after a random moment: a disk may write the newest first.
    Suffix,
    /// Any of them.
    Subset,
    /// Any of them, and of each write any of its sectors.
    Torn,
}

impl Kind {
    pub const ALL: [Kind; 6] = [Kind::None, Kind::All, Kind::Prefix, Kind::Suffix, Kind::Subset, Kind::Torn];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::All => "all",
            Kind::Prefix => "prefix",
            Kind::Suffix => "suffix",
            Kind::Subset => "subset",
            Kind::Torn => "torn",
        }
    }
}

/// Decides for each change whether it survives.
struct Luck<'a> {
    kind: Kind,
    /// The last change of a prefix; a suffix contains those after it.
    last: u64,
    /// About how many of 4 changes survive.
    quarters: u64,
    dice: &'a mut Dice,
}

impl Luck<'_> {
    fn survives(&mut self, order: u64) -> bool {
        match self.kind {
            Kind::None => false,
            Kind::All => true,
            Kind::Prefix => order <= self.last,
            Kind::Suffix => order > self.last,
            Kind::Subset | Kind::Torn => self.dice.below(4) < self.quarters,
        }
    }
}

/// Writes the image into `folder`, which must be empty.
pub fn write(disk: &Disk<'_>, kind: Kind, dice: &mut Dice, folder: &Path) {
    let orders = |pending: &mut dyn Iterator<Item = u64>| pending.collect::<Vec<_>>();
    let mut pending = orders(&mut disk.files.iter().flat_map(|file| file.pending.iter().map(|(at, _)| *at)));
    pending.extend(disk.folders.values().flat_map(|node| node.pending.iter().map(|(at, _)| *at)));
    pending.sort_unstable();
    let last = match dice.below(pending.len() as u64 + 1) {
        0 => 0,
        n => pending[n as usize - 1],
    };
    let quarters = 1 + dice.below(3);
    let mut luck = Luck { kind, last, quarters, dice };
    write_folder(disk, "", &mut luck, folder);
}

fn write_folder(disk: &Disk<'_>, path: &str, luck: &mut Luck<'_>, folder: &Path) {
    fs::create_dir_all(folder).expect("a folder");
    let node = &disk.folders[path];
    let mut names: BTreeMap<String, Entry> = node.durable.clone();
    for (order, change) in &node.pending {
        if luck.survives(*order) {
            apply_name(&mut names, change);
        }
    }
    for (name, entry) in names {
        match entry {
            Entry::File(id) => {
                fs::write(folder.join(&name), content(disk, id, luck)).expect("a disk with room");
            }
            Entry::Folder => {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                write_folder(disk, &inner, luck, &folder.join(&name));
            }
        }
    }
}

fn content(disk: &Disk<'_>, id: usize, luck: &mut Luck<'_>) -> Vec<u8> {
    let file = &disk.files[id];
    let mut bytes = file.durable.clone();
    for (order, change) in &file.pending {
        match change {
            Change::Write { at, data } if luck.kind == Kind::Torn => {
                for (at, sector) in sectors(*at, data) {
                    if luck.survives(*order) {
                        apply_change(&mut bytes, &Change::Write { at, data: sector });
                    }
                }
            }
            change if luck.survives(*order) => apply_change(&mut bytes, change),
            _ => {}
        }
    }
    bytes
}

/// Splits a write at the sector boundaries of the file.
fn sectors(at: usize, data: &[u8]) -> Vec<(usize, &[u8])> {
    let (mut pieces, mut done) = (Vec::new(), 0);
    while done < data.len() {
        let room = SECTOR_BYTES - (at + done) % SECTOR_BYTES;
        let end = data.len().min(done + room);
        pieces.push((at + done, &data[done..end]));
        done = end;
    }
    pieces
}

/// Returns the bytes of a file as a process would read them now.
pub fn current(disk: &Disk<'_>, id: usize) -> Vec<u8> {
    let mut bytes = disk.files[id].durable.clone();
    disk.files[id].pending.iter().for_each(|(_, change)| apply_change(&mut bytes, change));
    bytes
}
