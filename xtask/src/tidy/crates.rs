//! Limits how many crates a program that only runs handlers must build: the library must stay a small dependency.

use std::collections::BTreeSet;

use super::problem::Problem;
use crate::repo;

const CRATES_MAX: usize = 100;
/// Lists normal and build dependencies, which includes build scripts and macros; dev-dependencies are left out.
const TREE: &str =
    "tree --package millrace --no-default-features --edges normal,build --prefix none --format {p}";

pub(crate) fn too_many() -> Option<Problem> {
    let place = "crates/faces/millrace/Cargo.toml";
    let args: Vec<&str> = TREE.split(' ').collect();
    match repo::cargo_command(&args).output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            let count = count(&text);
            (count >= CRATES_MAX).then(|| {
                let what = format!("a program that only runs handlers builds {count} crates, fewer than {CRATES_MAX} are promised: see `cargo {TREE}`");
                Problem::new(place, what)
            })
        }
        _ => Some(Problem::new(place, format!("`cargo {TREE}` failed"))),
    }
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
    fn a_crate_counts_once_and_two_versions_count_twice() {
        assert_eq!(count("a v1.0.0\nb v1.0.0\na v1.0.0 (*)\n\na v2.0.0\nc v0.1.0 (proc-macro)\n"), 4);
    }
}
