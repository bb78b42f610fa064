//! Which crate may use which: a crate uses only crates above it in the list of `rooms.rs`, a store adapter uses no
//! other adapter, stores are opened through the crate `stores`, and pure crates use no impure package.

use super::manifest::{self, Dependency, Manifest};
use super::problem::Problem;
use super::rooms::{Kind, MAY_LOOK_DOWN, Room};
use super::tree::Tree;

/// Package names with the reason why pure crates may not use them. A trailing star matches any ending.
const IMPURE_PACKAGES: &[(&str, &str)] = &[
    ("async-*", "engines are synchronous"),
    ("axum*", "edges speak HTTP"),
    ("chrono", "the time is an input: use `Now` of millrace-model"),
    ("crossbeam*", "engines have one owner and no threads"),
    ("dashmap", "engines have one owner: use BTreeMap"),
    ("fastrand", "random values are inputs, drawn by the shells"),
    ("flume", "engines take inputs and return effects"),
    ("futures*", "engines are synchronous"),
    ("getrandom", "random values are inputs, drawn by the shells"),
    ("hyper*", "edges speak HTTP"),
    ("mio", "sockets belong to the edges"),
    ("parking_lot*", "engines have one owner and no locks"),
    ("polling", "sockets belong to the edges"),
    ("rand", "random values are inputs, drawn by the shells"),
    ("rand_*", "random values are inputs, drawn by the shells"),
    ("rayon*", "engines have one owner and no threads"),
    ("reqwest", "edges speak HTTP"),
    ("rusqlite", "the store writes"),
    ("smol", "engines are synchronous"),
    ("socket2", "sockets belong to the edges"),
    ("tempfile", "the store writes"),
    ("time", "the time is an input: use `Now` of millrace-model"),
    ("tokio*", "engines are synchronous"),
    ("tracing-subscriber", "the binary decides where logs go"),
    ("tungstenite", "edges speak WebSocket"),
    ("ulid", "ids are inputs, drawn by the shells"),
];

/// The crates that may name an adapter: `stores` opens each of them, `bench` measures single adapters, and `sim` runs
/// the shared store on simulated machines.
const KNOW_ADAPTERS: [&str; 3] = ["stores", "bench", "sim"];

pub(crate) fn names(tree: &Tree) -> Vec<Problem> {
    let manifests = manifest::of_rooms(tree).into_iter();
    manifests
        .filter(|manifest| manifest.package != manifest.room.package())
        .map(|Manifest { path, room, package, .. }| {
            let expected = room.package();
            Problem::new(&path, format!("package `{package}` lives here: the folder asks for `{expected}`"))
        })
        .collect()
}

pub(crate) fn order(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for manifest in manifest::of_rooms(tree) {
        for dependency in &manifest.dependencies {
            if let Some(message) = wrong_way(manifest.room, dependency) {
                problems.push(Problem::new(&manifest.path, message));
            }
        }
    }
    problems
}

pub(crate) fn impure_dependencies(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for manifest in manifest::of_rooms(tree).iter().filter(|manifest| manifest.room.kind == Kind::Pure) {
        for Dependency { package, .. } in &manifest.dependencies {
            if let Some(reason) = impurity(package) {
                problems.push(Problem::new(&manifest.path, format!("`{package}` in a pure crate: {reason}")));
            }
        }
    }
    problems
}

fn wrong_way(from: Room, dependency: &Dependency) -> Option<String> {
    if !dependency.package.starts_with("millrace") {
        return None;
    }
    let package = &dependency.package;
    let Some(to) = Room::of_package(package) else {
        return Some(format!("`{package}` is not a room of the house: see ROOMS in xtask/src/tidy/rooms.rs"));
    };
    // A shared store keeps its copy in another adapter: its tests use the real one, its code only the port.
    let tests_on_a_real_copy = from.name == "store-journal" && dependency.is_dev;
    if from.kind == Kind::Adapter && to.kind == Kind::Adapter && !tests_on_a_real_copy {
        return Some(format!("`{package}` is another adapter: adapters meet only in the store port"));
    }
    if to.kind == Kind::Adapter && !KNOW_ADAPTERS.contains(&from.name) && !tests_on_a_real_copy {
        return Some(format!("`{package}` is an adapter: open stores through `millrace-stores`"));
    }
    let may_use_all = from.kind == Kind::Product && dependency.is_dev;
    // Scenario tests of an engine run it on the memory store, which does not depend on engines.
    let tries_on_store = from.kind == Kind::Pure && dependency.is_dev && to.name == "store";
    // The suites try what the crates of the ports hold themselves, such as the memory store, too.
    let is_port = matches!(from.name, "store" | "journal");
    let is_tried = is_port && dependency.is_dev && to.name == "conformance";
    let may_look_down = MAY_LOOK_DOWN.contains(&(from.name, to.name));
    if may_use_all || tries_on_store || is_tried || may_look_down || to.is_above(from) {
        return None;
    }
    Some(format!("`{package}` is not above `{}`: a crate uses only crates above it", from.package()))
}

fn impurity(package: &str) -> Option<&'static str> {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => package.starts_with(start),
        None => package == pattern,
    };
    IMPURE_PACKAGES.iter().find(|(pattern, _)| matches(pattern)).map(|&(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    fn check_order(folder: &str, manifest: &str, expected: &[&str]) {
        let path = format!("{}/Cargo.toml", Room::named(folder).unwrap().folder());
        let found: Vec<String> =
            order(&tree_of(&[(&path, manifest)])).iter().map(Problem::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn tests_of_an_engine_may_use_the_memory_store_and_nothing_else_below() {
        check_order("claims", "[dev-dependencies]\nmillrace-store.workspace = true\n", &[]);
        check_order(
            "claims",
            "[dependencies]\nmillrace-store.workspace = true\n",
            &["`millrace-store` is not above"],
        );
        check_order(
            "claims",
            "[dev-dependencies]\nmillrace-broker.workspace = true\n",
            &["`millrace-broker` is not above"],
        );
    }

    #[test]
    fn a_crate_may_look_up_and_not_down() {
        check_order("bus", "[dependencies]\nmillrace-model.workspace = true\n", &[]);
        check_order(
            "model",
            "[dependencies]\nmillrace-bus.workspace = true\n",
            &["`millrace-bus` is not above"],
        );
        check_order(
            "store",
            "[build-dependencies]\nmillrace-server = \"0\"\n",
            &["`millrace-server` is not above"],
        );
        check_order(
            "store",
            "[dependencies]\nm = { package = \"millrace\" }\n",
            &["`millrace` is not above"],
        );
    }

    #[test]
    fn development_dependencies_look_up_too_except_for_the_binary() {
        let on_sim = "[dev-dependencies]\nmillrace-sim.workspace = true\n";
        check_order("server", on_sim, &["`millrace-sim` is not above"]);
        check_order("cli", on_sim, &[]);
        check_order(
            "cli",
            "[dependencies]\nmillrace-sim.workspace = true\n",
            &["`millrace-sim` is not above"],
        );
        check_order("sim", "[dependencies]\nmillrace-cli.workspace = true\n", &[]);
    }

    #[test]
    fn adapters_are_strangers() {
        let sqlite = Room::named("store-sqlite").expect("it is a room");
        let other = Room { name: "store-later", ..sqlite };
        let dependency = Dependency { package: sqlite.package(), is_dev: false };
        let message = wrong_way(other, &dependency).expect("an adapter may not know another");
        assert!(message.contains("another adapter"), "{message}");
    }

    #[test]
    fn only_the_opener_of_stores_and_the_benchmarks_know_adapters() {
        let on_sqlite = "[dependencies]\nmillrace-store-sqlite.workspace = true\n";
        for may in KNOW_ADAPTERS {
            check_order(may, on_sqlite, &[]);
        }
        let in_tests = "[dev-dependencies]\nmillrace-store-sqlite.workspace = true\n";
        for manifest in [on_sqlite, in_tests] {
            check_order("server", manifest, &["open stores through `millrace-stores`"]);
            check_order("cli", manifest, &["open stores through `millrace-stores`"]);
        }
    }

    #[test]
    fn a_dependency_outside_the_list_is_refused() {
        check_order("cli", "[dependencies]\nmillrace-attic = \"1\"\n", &["not a room of the house"]);
    }

    #[test]
    fn pure_rooms_refuse_impure_packages() {
        let manifest =
            "[dependencies]\ntokio-util = \"1\"\nserde = \"1\"\n[dev-dependencies]\nrand = \"0.9\"\n";
        let pure = tree_of(&[("crates/engines/bus/Cargo.toml", manifest)]);
        let found: Vec<String> = impure_dependencies(&pure).iter().map(Problem::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/engines/bus/Cargo.toml: `tokio-util` in a pure crate: engines are synchronous",
                "crates/engines/bus/Cargo.toml: `rand` in a pure crate: random values are inputs, drawn by the shells",
            ]
        );
        assert_eq!(impure_dependencies(&tree_of(&[("crates/shells/broker/Cargo.toml", manifest)])), []);
    }

    #[test]
    fn a_package_is_named_after_its_folder() {
        let wrong = tree_of(&[("crates/engines/bus/Cargo.toml", "[package]\nname = \"bus\"\n")]);
        assert_eq!(
            names(&wrong),
            [Problem::new(
                "crates/engines/bus/Cargo.toml",
                "package `bus` lives here: the folder asks for `millrace-bus`"
            )]
        );
        let right = tree_of(&[("crates/faces/millrace/Cargo.toml", "[package]\nname = \"millrace\"\n")]);
        assert_eq!(names(&right), []);
    }
}
