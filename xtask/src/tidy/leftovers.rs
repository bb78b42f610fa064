//! Unfinished work: markers such as a to-do, disabled tests, and modules without module documentation.

use super::problem::Problem;
use super::tree::Tree;
use super::words::contains_word;

// Split by `concat!`, so that this file passes its own check.
const MARKERS: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "do it now, or record the gap in docs/decisions"),
    (concat!("FIX", "ME"), "fix it now, or record the gap in docs/decisions"),
    (concat!("X", "XX"), "settle it now, or record the gap in docs/decisions"),
    (concat!("to", "do!"), "write the code, or leave the item out"),
    (concat!("unimple", "mented!"), "write the code, or leave the item out"),
    (concat!("db", "g!"), "remove it"),
    (concat!("#[ig", "nore"), "make the test pass, or assert the wrong behaviour with a note"),
];

pub(crate) fn unfinished_work(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["rs", "ts", "js"])) {
        for (number, line) in file.numbered_lines() {
            for (marker, remedy) in MARKERS.iter().filter(|(marker, _)| contains_word(line, marker)) {
                problems.push(Problem::at(&file.path, number, format!("`{marker}` left behind: {remedy}")));
            }
        }
    }
    problems
}

pub(crate) fn missing_module_docs(tree: &Tree) -> Vec<Problem> {
    let silent = tree.rust().filter(|file| !file.text.starts_with("//!"));
    silent
        .map(|file| Problem::at(&file.path, 1, "must open with a `//!` line that says what it is for"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    #[test]
    fn every_marker_is_found_in_every_source_language() {
        for (marker, _) in MARKERS {
            for path in ["src/a.rs", "sdk/js/a.ts", "console/a.js"] {
                let tree = tree_of(&[(path, &format!("fine\n    {marker} later\n"))]);
                let found = unfinished_work(&tree);
                assert_eq!(found.len(), 1, "{marker} in {path}: {found:?}");
                assert!(found[0].to_string().starts_with(&format!("{path}:2: `{marker}`")), "{found:?}");
            }
        }
    }

    #[test]
    fn prose_and_longer_words_are_left_alone() {
        let longer = format!("tmp.{0}{0}", concat!("X", "XX"));
        let tree =
            tree_of(&[("a.md", concat!("TO", "DO")), ("a.rs", &longer), ("b.rs", "todos, a todo list")]);
        assert_eq!(unfinished_work(&tree), []);
    }

    #[test]
    fn every_rust_file_opens_with_its_purpose() {
        let tree = tree_of(&[
            ("src/a.rs", "//! Says what it is.\n"),
            ("tests/b.rs", "use std::fmt;\n//! Too late.\n"),
            ("build.rs", ""),
            ("c.md", ""),
        ]);
        let found: Vec<String> = missing_module_docs(&tree).iter().map(Problem::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("tests/b.rs:1: ") && found[1].starts_with("build.rs:1: "), "{found:?}");
    }
}
