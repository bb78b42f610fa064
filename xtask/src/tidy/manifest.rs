//! The parts of a crate's Cargo.toml that the checks read.

use toml::{Table, Value};

use super::problem::Problem;
use super::rooms::Room;
use super::tree::Tree;

#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) path: String,
    pub(crate) room: Room,
    pub(crate) package: String,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    /// The name of the package, also where the manifest renames the dependency.
    pub(crate) package: String,
    pub(crate) is_dev: bool,
}

/// Returns the manifests of all crates listed in `rooms.rs`. `rooms::unknown_folders` and `unreadable` report the
/// others.
pub(crate) fn of_rooms(tree: &Tree) -> Vec<Manifest> {
    let mut manifests = Vec::new();
    for file in &tree.files {
        let Some(room) = file.room().and_then(Room::named) else {
            continue;
        };
        if file.path != path_of(room) {
            continue;
        }
        if let Ok(table) = file.text.parse::<Table>() {
            manifests.push(Manifest {
                path: file.path.clone(),
                room,
                package: package_of(&table).to_owned(),
                dependencies: dependencies_of(&table),
            });
        }
    }
    manifests
}

pub(crate) fn unreadable(tree: &Tree) -> Vec<Problem> {
    let manifests = tree
        .files
        .iter()
        .filter(|file| file.room().and_then(Room::named).is_some_and(|room| file.path == path_of(room)));
    manifests
        .filter_map(|file| {
            let error = file.text.parse::<Table>().err()?;
            Some(Problem::new(&file.path, format!("not TOML: {}", error.message())))
        })
        .collect()
}

fn path_of(room: Room) -> String {
    format!("{}/Cargo.toml", room.folder())
}

fn package_of(manifest: &Table) -> &str {
    let name = manifest.get("package").and_then(|package| package.get("name"));
    name.and_then(Value::as_str).unwrap_or_default()
}

fn dependencies_of(manifest: &Table) -> Vec<Dependency> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let per_target = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut found = Vec::new();
    for scope in std::iter::once(manifest).chain(per_target) {
        for (kind, is_dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            for (name, details) in scope.get(kind).and_then(Value::as_table).into_iter().flatten() {
                let package = details.get("package").and_then(Value::as_str).unwrap_or(name);
                found.push(Dependency { package: package.to_owned(), is_dev });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    #[test]
    fn dependencies_come_from_every_table_and_under_their_real_names() {
        let text = r#"
            [dependencies]
            words = { package = "millrace-model", path = "../model" }
            [build-dependencies]
            cc = "1"
            [dev-dependencies]
            proptest.workspace = true
            [target.'cfg(unix)'.dependencies]
            libc = "0.2"
        "#;
        let table = text.parse::<Table>().expect("it is TOML");
        let found: Vec<_> = dependencies_of(&table).into_iter().map(|d| (d.package, d.is_dev)).collect();
        let expected = [("millrace-model", false), ("cc", false), ("proptest", true), ("libc", false)];
        assert_eq!(found, expected.map(|(name, is_dev)| (name.to_owned(), is_dev)));
    }

    #[test]
    fn a_broken_manifest_is_a_problem_and_not_a_silence() {
        let tree = tree_of(&[
            ("crates/engines/bus/Cargo.toml", "[dependencies\n"),
            ("crates/words/wire/Cargo.toml", ""),
        ]);
        let problems = unreadable(&tree);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().starts_with("crates/engines/bus/Cargo.toml: not TOML"));
    }
}
