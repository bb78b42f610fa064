//! Limits which and how many crates a program that only runs handlers must build: the library must stay a small
//! dependency.

use std::collections::BTreeSet;

use super::problem::Problem;
use crate::repo;

const CRATES_MAX: usize = 100;
/// A program that only runs handlers has no server inside.
const NOT_FOR_HANDLERS: [&str; 5] =
    ["millrace-bus", "millrace-broker", "millrace-router", "millrace-kernel", "millrace-server"];
/// Lists normal and build dependencies, which includes build scripts and macros; dev-dependencies are left out.
const TREE: &str =
    "tree --package millrace --no-default-features --edges normal,build --prefix none --format {p}";

pub(crate) fn too_many() -> Option<Problem> {
    let place = "crates/faces/millrace/Cargo.toml";
    let args: Vec<&str> = TREE.split(' ').collect();
    match repo::cargo_command(&args).output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            if let Some(name) = foreign(&text) {
                let what =
                    format!("a program that only runs handlers must not build {name}: see `cargo {TREE}`");
                return Some(Problem::new(place, what));
            }
            let count = count(&text);
            (count >= CRATES_MAX).then(|| {
                let what = format!("a program that only runs handlers builds {count} crates, fewer than {CRATES_MAX} are promised: see `cargo {TREE}`");
                Problem::new(place, what)
            })
        }
        _ => Some(Problem::new(place, format!("`cargo {TREE}` failed"))),
    }
}

/// Returns a crate of the server that the tree contains.
fn foreign(tree: &str) -> Option<&str> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    names.into_iter().find(|name| NOT_FOR_HANDLERS.contains(name))
}

/// Counts distinct crates: `cargo tree` lists a crate once for each crate that uses it.
fn count(tree: &str) -> usize {
    let names = tree.lines().map(|line| line.trim().trim_end_matches(" (*)")).filter(|line| !line.is_empty());
    names.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_the_server_are_found() {
        assert_eq!(foreign("millrace v0.1.0\nmillrace-claims v0.1.0\nbytes v1.0.0 (*)\n"), None);
        assert_eq!(foreign("millrace v0.1.0\nmillrace-broker v0.1.0 (/x)\n"), Some("millrace-broker"));
    }

    #[test]
    fn a_crate_counts_once_and_two_versions_count_twice() {
        assert_eq!(count("a v1.0.0\nb v1.0.0\na v1.0.0 (*)\n\na v2.0.0\nc v0.1.0 (proc-macro)\n"), 4);
    }
}
