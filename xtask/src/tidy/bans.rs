//! The clippy bans of the pure crates. Clippy reads only the nearest clippy.toml and merges nothing, so every pure
//! crate holds a full copy; these checks keep the copies identical.

use std::collections::BTreeSet;

use toml::Table;

use super::problem::Problem;
use super::rooms::{Kind, Room};
use super::tree::{File, Tree};

const CANONICAL: &str = "crates/engines/bus/clippy.toml";
const GENERAL: &str = "clippy.toml";

pub(crate) fn differing_copies(tree: &Tree) -> Vec<Problem> {
    let pure_rooms = pure_rooms(tree);
    if pure_rooms.is_empty() {
        return Vec::new();
    }
    let Some(canonical) = tree.find(CANONICAL) else {
        return vec![Problem::new(CANONICAL, "missing: it is the canonical list of engine bans")];
    };
    let mut problems = Vec::new();
    for room in pure_rooms {
        let path = format!("{}/clippy.toml", room.folder());
        match tree.find(&path) {
            None => problems.push(Problem::new(&path, format!("missing: copy {CANONICAL}"))),
            Some(copy) if copy.text != canonical.text => {
                problems.push(Problem::new(
                    &path,
                    format!("differs from {CANONICAL}: edit that one, then copy it"),
                ));
            }
            Some(_) => {}
        }
    }
    problems
}

pub(crate) fn missing_general_settings(tree: &Tree) -> Vec<Problem> {
    let (Some(general), Some(canonical)) = (tree.find(GENERAL), tree.find(CANONICAL)) else {
        return Vec::new();
    };
    let (general, canonical) = match (general.text.parse::<Table>(), canonical.text.parse::<Table>()) {
        (Ok(general), Ok(canonical)) => (general, canonical),
        (Err(error), _) => return vec![Problem::new(GENERAL, format!("not TOML: {}", error.message()))],
        (_, Err(error)) => return vec![Problem::new(CANONICAL, format!("not TOML: {}", error.message()))],
    };
    let missing = general.iter().filter(|(key, value)| canonical.get(*key) != Some(*value));
    missing
        .map(|(key, value)| Problem::new(CANONICAL, format!("must repeat `{key} = {value}` from {GENERAL}")))
        .collect()
}

fn pure_rooms(tree: &Tree) -> Vec<Room> {
    let folders: BTreeSet<&str> = tree.files.iter().filter_map(File::room).collect();
    folders.into_iter().filter_map(Room::named).filter(|room| room.kind == Kind::Pure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    const BANS: &str = "allow-unwrap-in-tests = true\ndisallowed-types = []\n";

    #[test]
    fn every_pure_crate_holds_the_same_bans() {
        let tree = tree_of(&[
            (CANONICAL, BANS),
            ("crates/words/model/clippy.toml", BANS),
            ("crates/words/wire/clippy.toml", "disallowed-types = []\n"),
            ("crates/engines/claims/src/lib.rs", ""),
            ("crates/faces/server/src/lib.rs", ""),
        ]);
        let found: Vec<String> = differing_copies(&tree).iter().map(Problem::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/engines/claims/clippy.toml: missing: copy crates/engines/bus/clippy.toml",
                "crates/words/wire/clippy.toml: differs from crates/engines/bus/clippy.toml: edit that one, then copy it",
            ]
        );
    }

    #[test]
    fn the_canonical_copy_must_exist_once_a_pure_crate_does() {
        assert_eq!(differing_copies(&tree_of(&[("crates/words/model/src/lib.rs", "")])).len(), 1);
        assert_eq!(differing_copies(&tree_of(&[("crates/faces/server/src/lib.rs", "")])), []);
    }

    #[test]
    fn the_bans_repeat_the_general_settings() {
        let general = "allow-unwrap-in-tests = true\n";
        assert_eq!(missing_general_settings(&tree_of(&[(GENERAL, general), (CANONICAL, BANS)])), []);
        for bans in ["", "allow-unwrap-in-tests = false\n"] {
            let found = missing_general_settings(&tree_of(&[(GENERAL, general), (CANONICAL, bans)]));
            let message = "must repeat `allow-unwrap-in-tests = true` from clippy.toml";
            assert_eq!(found, [Problem::new(CANONICAL, message)]);
        }
    }
}
