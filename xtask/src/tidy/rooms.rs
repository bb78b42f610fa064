//! The rooms of the house, in order. This list is the only copy that machines read; ARCHITECTURE.md
//! holds the one for people.

use std::collections::BTreeSet;

use super::problem::Problem;
use super::tree::{File, Tree};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Words and engines: no clock, no randomness, no thread, no socket, no file, no `async`.
    Pure,
    /// Implements the store port and knows no other adapter.
    Adapter,
    Plain,
    /// Its tests drive the whole product, so they may use any crate.
    Product,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

/// A crate may use only crates above it.
pub(crate) const ROOMS: &[Room] = &[
    room("model", Kind::Pure),
    room("wire", Kind::Pure),
    room("bus", Kind::Pure),
    room("claims", Kind::Pure),
    room("router", Kind::Pure),
    room("runs", Kind::Pure),
    room("reactor", Kind::Pure),
    room("store", Kind::Plain),
    room("store-sqlite", Kind::Adapter),
    room("stores", Kind::Plain),
    room("shell", Kind::Plain),
    room("zabi", Kind::Plain),
    room("zi", Kind::Plain),
    room("runtime", Kind::Plain),
    room("actors", Kind::Plain),
    room("wasm", Kind::Plain),
    room("session", Kind::Plain),
    room("macros", Kind::Plain),
    room("millrace", Kind::Plain),
    room("client", Kind::Plain),
    room("server", Kind::Plain),
    room("bench", Kind::Plain),
    room("peers", Kind::Plain),
    room("cli", Kind::Product),
    room("sim", Kind::Plain),
];

const fn room(name: &'static str, kind: Kind) -> Room {
    Room { name, kind }
}

impl Room {
    pub(crate) fn named(name: &str) -> Option<Room> {
        ROOMS.iter().copied().find(|room| room.name == name)
    }

    pub(crate) fn of_package(package: &str) -> Option<Room> {
        ROOMS.iter().copied().find(|room| room.package() == package)
    }

    /// The face of the library carries the bare name of the product.
    pub(crate) fn package(self) -> String {
        match self.name {
            "millrace" => self.name.to_owned(),
            name => format!("millrace-{name}"),
        }
    }

    pub(crate) fn is_above(self, other: Room) -> bool {
        self.floor() < other.floor()
    }

    fn floor(self) -> Option<usize> {
        ROOMS.iter().position(|room| room.name == self.name)
    }
}

pub(crate) fn unknown_folders(tree: &Tree) -> Vec<Problem> {
    let folders: BTreeSet<&str> = tree.files.iter().filter_map(File::room).collect();
    let unknown = folders.into_iter().filter(|folder| Room::named(folder).is_none());
    unknown
        .map(|folder| {
            let message = "unknown crate: add it to ROOMS in xtask/src/tidy/rooms.rs, where its dependencies \
                           allow, and to ARCHITECTURE.md";
            Problem::new(&format!("crates/{folder}"), message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    #[test]
    fn a_folder_missing_from_the_list_is_reported_once() {
        let tree = tree_of(&[
            ("crates/bus/src/lib.rs", ""),
            ("crates/attic/Cargo.toml", ""),
            ("crates/attic/src/lib.rs", ""),
        ]);
        let problems = unknown_folders(&tree);
        assert_eq!(problems.len(), 1);
        let text = problems[0].to_string();
        assert!(text.starts_with("crates/attic: unknown crate"), "{text}");
        assert!(text.contains("ROOMS") && text.contains("ARCHITECTURE.md"), "{text}");
    }

    #[test]
    fn every_room_is_listed_once_and_found_by_its_package() {
        for room in ROOMS {
            assert_eq!(ROOMS.iter().filter(|other| other.name == room.name).count(), 1);
            assert_eq!(Room::of_package(&room.package()).map(|found| found.name), Some(room.name));
        }
    }

    #[test]
    fn adapters_are_known_by_their_prefix() {
        for room in ROOMS {
            assert_eq!(room.kind == Kind::Adapter, room.name.starts_with("store-"), "{}", room.name);
        }
    }
}
