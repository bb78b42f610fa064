//! Finds trailing whitespace and tabs, which readers do not see but every diff shows.

use super::problem::Problem;
use super::tree::Tree;

pub(crate) fn trailing(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        // `lines` would drop a carriage return, which is trailing whitespace too.
        for (index, line) in file.text.split('\n').enumerate() {
            if line.ends_with(char::is_whitespace) {
                problems.push(Problem::at(&file.path, index + 1, "trailing whitespace"));
            }
        }
    }
    problems
}

pub(crate) fn tabs(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        for (number, _) in file.numbered_lines().filter(|(_, line)| line.contains('\t')) {
            problems.push(Problem::at(&file.path, number, "a tab: use spaces, or \\t in a string"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    #[test]
    fn trailing_whitespace_is_found_in_any_text_file() {
        let tree = tree_of(&[("a.md", "one\ntwo \n"), ("b.toml", "windows\r\n"), ("c.rs", "fine\n\n")]);
        let expected =
            [Problem::at("a.md", 2, "trailing whitespace"), Problem::at("b.toml", 1, "trailing whitespace")];
        assert_eq!(trailing(&tree), expected);
    }

    #[test]
    fn tabs_are_found_in_rust_only() {
        let tree = tree_of(&[("a.rs", "fn a() {\n\tb();\n}\n"), ("Makefile", "all:\n\tcargo build\n")]);
        let found = tabs(&tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("a.rs:2: "), "{found:?}");
    }
}
