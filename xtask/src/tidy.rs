//! `cargo xtask tidy`: enforces the conventions of this repository. Each check is a function from data to problems;
//! this file only gathers the data, runs all checks, and prints the problems found.

mod bans;
mod crates;
mod direction;
#[cfg(test)]
mod fixture;
mod leftovers;
mod manifest;
mod places;
mod problem;
mod prose;
mod purity;
mod rooms;
mod size;
mod tree;
mod whitespace;
mod words;

use anyhow::{Result, bail};

use self::problem::Problem;
use self::tree::Tree;
use crate::repo;

const CHECKS: &[fn(&Tree) -> Vec<Problem>] = &[
    rooms::unknown_folders,
    manifest::unreadable,
    direction::names,
    direction::order,
    direction::impure_dependencies,
    bans::differing_copies,
    bans::missing_general_settings,
    purity::impure_lines,
    size::too_long,
    size::too_heavy,
    leftovers::unfinished_work,
    leftovers::missing_module_docs,
    places::machine_paths,
    prose::openers,
    whitespace::trailing,
    whitespace::tabs,
];

const CARGO_CHECKS: &[(&str, &str)] = &[
    ("fmt --all --check -- --files-with-diff", "run `cargo fmt --all`"),
    (
        "fmt --manifest-path fuzz/Cargo.toml --check -- --files-with-diff",
        "run `cargo fmt --manifest-path fuzz/Cargo.toml`",
    ),
    (
        "clippy --quiet --keep-going --workspace --all-targets -- -D warnings",
        "clippy says above what to change",
    ),
];

pub(crate) fn run() -> Result<()> {
    let tree = Tree::read(&repo::root(), repo::files()?)?;
    let mut problems: Vec<Problem> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    for (command, remedy) in CARGO_CHECKS {
        if let Err(error) = repo::cargo(command) {
            problems.push(Problem::new("Cargo.toml", format!("{error}: {remedy}")));
        }
    }

    problems.extend(crates::too_many());
    for note in size::worth_a_question(&tree) {
        println!("note: {note}");
    }
    if problems.is_empty() {
        println!("tidy: {} files, nothing to say", tree.files.len());
        return Ok(());
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    bail!("tidy found {} problem(s)", problems.len())
}
