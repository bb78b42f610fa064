//! The list of crates ("rooms") in the order of their dependencies, grouped by the folder below `crates` ("floor").
//! This is the only copy that programs read; ARCHITECTURE.md has the copy for people.

use std::collections::BTreeSet;

use super::problem::Problem;
use super::tree::{File, Tree};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// On the floors `words` and `engines`: no clock, no randomness, no thread, no socket, no file, no `async`.
    Pure,
    /// Implements the store port and uses no other adapter.
    Adapter,
    Plain,
    /// Its tests drive the whole product, so they may use any crate.
    Product,
}

/// The folder below `crates` that a crate is in. A crate may use crates of the floors above its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Floor {
    /// Values and their rules.
    Words,
    /// State machines: they are given the time and an input, decide, and return effects.
    Engines,
    /// The store port (a trait) and its adapters.
    Stores,
    /// Run the engines: threads, clocks, sockets.
    Shells,
    /// Run code of other people, which is reached by messages only.
    Guests,
    /// The parts that users touch.
    Faces,
    /// Simulation and measurement. No crate above depends on this floor, except as listed in `MAY_LOOK_DOWN`.
    Proof,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) floor: Floor,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

/// The order of the crates: a crate may use only crates listed above it, on its own floor or on the floors above.
pub(crate) const ROOMS: &[Room] = &[
    room(Floor::Words, "model", Kind::Pure),
    room(Floor::Words, "wire", Kind::Pure),
    room(Floor::Engines, "bus", Kind::Pure),
    room(Floor::Engines, "claims", Kind::Pure),
    room(Floor::Engines, "resolve", Kind::Pure),
    room(Floor::Engines, "router", Kind::Pure),
    room(Floor::Engines, "runs", Kind::Pure),
    room(Floor::Engines, "reactor", Kind::Pure),
    room(Floor::Stores, "store", Kind::Plain),
    room(Floor::Stores, "journal", Kind::Plain),
    room(Floor::Stores, "conformance", Kind::Plain),
    room(Floor::Stores, "journal-mongo", Kind::Plain),
    room(Floor::Stores, "journal-object", Kind::Plain),
    room(Floor::Stores, "journal-postgres", Kind::Plain),
    room(Floor::Stores, "store-sqlite", Kind::Adapter),
    room(Floor::Stores, "store-journal", Kind::Adapter),
    room(Floor::Stores, "stores", Kind::Plain),
    room(Floor::Shells, "shell", Kind::Plain),
    room(Floor::Shells, "broker", Kind::Plain),
    room(Floor::Shells, "kernel", Kind::Plain),
    room(Floor::Shells, "telemetry", Kind::Plain),
    room(Floor::Shells, "state", Kind::Plain),
    room(Floor::Shells, "admin", Kind::Plain),
    room(Floor::Shells, "session", Kind::Plain),
    room(Floor::Guests, "zabi", Kind::Plain),
    room(Floor::Guests, "zi", Kind::Plain),
    room(Floor::Guests, "wasm", Kind::Plain),
    room(Floor::Guests, "child", Kind::Plain),
    room(Floor::Guests, "sandbox", Kind::Plain),
    room(Floor::Faces, "macros", Kind::Plain),
    room(Floor::Faces, "millrace", Kind::Plain),
    room(Floor::Faces, "client", Kind::Plain),
    room(Floor::Faces, "console", Kind::Plain),
    room(Floor::Faces, "server", Kind::Plain),
    room(Floor::Faces, "cli", Kind::Product),
    room(Floor::Proof, "bench", Kind::Plain),
    room(Floor::Proof, "peers", Kind::Plain),
    room(Floor::Proof, "sim", Kind::Plain),
];

/// The only dependencies on a crate of a floor below, with their reasons.
pub(crate) const MAY_LOOK_DOWN: &[(&str, &str)] = &[
    // The binary that users run contains the `bench` command, which measures it.
    ("cli", "bench"),
];

const fn room(floor: Floor, name: &'static str, kind: Kind) -> Room {
    Room { floor, name, kind }
}

impl Floor {
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Floor::Words => "words",
            Floor::Engines => "engines",
            Floor::Stores => "stores",
            Floor::Shells => "shells",
            Floor::Guests => "guests",
            Floor::Faces => "faces",
            Floor::Proof => "proof",
        }
    }
}

impl Room {
    pub(crate) fn named(name: &str) -> Option<Room> {
        ROOMS.iter().copied().find(|room| room.name == name)
    }

    pub(crate) fn of_package(package: &str) -> Option<Room> {
        ROOMS.iter().copied().find(|room| room.package() == package)
    }

    /// Returns the name of the package. The library for users has the bare name of the product.
    pub(crate) fn package(self) -> String {
        match self.name {
            "millrace" => self.name.to_owned(),
            name => format!("millrace-{name}"),
        }
    }

    /// Returns the crate's folder, such as `crates/engines/bus` for the bus.
    pub(crate) fn folder(self) -> String {
        format!("crates/{}/{}", self.floor.folder(), self.name)
    }

    pub(crate) fn is_above(self, other: Room) -> bool {
        self.place() < other.place()
    }

    fn place(self) -> (Floor, Option<usize>) {
        (self.floor, ROOMS.iter().position(|room| room.name == self.name))
    }
}

/// Reports folders two levels below `crates` that belong to no listed crate.
pub(crate) fn unknown_folders(tree: &Tree) -> Vec<Problem> {
    let folders: BTreeSet<String> = tree.files.iter().filter_map(File::crate_folder).collect();
    let is_known = |folder: &String| ROOMS.iter().any(|room| room.folder() == *folder);
    let unknown = folders.into_iter().filter(|folder| !is_known(folder));
    unknown
        .map(|folder| {
            let message = "unknown crate: add it to ROOMS in xtask/src/tidy/rooms.rs, on its floor and where its \
                           dependencies allow, and to ARCHITECTURE.md";
            Problem::new(&folder, message)
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
            ("crates/engines/bus/src/lib.rs", ""),
            ("crates/faces/attic/Cargo.toml", ""),
            ("crates/faces/attic/src/lib.rs", ""),
            ("crates/faces/wire/src/lib.rs", ""),
        ]);
        let problems = unknown_folders(&tree);
        assert_eq!(problems.len(), 2, "a room on another floor is not that room");
        let text = problems[0].to_string();
        assert!(text.starts_with("crates/faces/attic: unknown crate"), "{text}");
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
    fn the_list_has_the_order_of_the_floors() {
        assert!(ROOMS.is_sorted_by_key(|room| room.floor));
        for room in ROOMS {
            let is_pure = matches!(room.floor, Floor::Words | Floor::Engines);
            assert_eq!(room.kind == Kind::Pure, is_pure, "{}", room.name);
        }
        for (from, to) in MAY_LOOK_DOWN {
            assert!(
                Room::named(from).unwrap().is_above(Room::named(to).unwrap()),
                "{from} may use {to} anyway"
            );
        }
    }

    #[test]
    fn adapters_are_known_by_their_prefix() {
        for room in ROOMS {
            assert_eq!(room.kind == Kind::Adapter, room.name.starts_with("store-"), "{}", room.name);
        }
    }
}
