//! Finds absolute paths that exist only on one machine.

use super::problem::Problem;
use super::tree::Tree;

// Split by `concat!`, so that this file passes its own check.
const PLACES: &[&str] = &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];

pub(crate) fn machine_paths(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        for (number, line) in file.numbered_lines() {
            for place in PLACES.iter().filter(|place| starts_a_path(line, place)) {
                problems.push(Problem::at(&file.path, number, format!("`{place}` is a path of one machine")));
            }
        }
    }
    problems
}

/// Returns whether `place` begins a path in the line. The same letters further along a relative path or a URL are
/// harmless.
fn starts_a_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.~*}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    #[test]
    fn a_path_of_one_machine_is_found_in_any_text_file() {
        for place in PLACES {
            for line in [format!("{place}x"), format!("see `{place}x`"), format!("file://{place}x")] {
                let found = machine_paths(&tree_of(&[("docs/a.md", &line)]));
                assert_eq!(
                    found,
                    [Problem::at("docs/a.md", 1, format!("`{place}` is a path of one machine"))]
                );
            }
        }
    }

    #[test]
    fn the_same_letters_inside_a_relative_path_are_left_alone() {
        for place in PLACES {
            for line in [format!("src{place}x"), format!("~{place}x"), format!("https://example.org{place}x")]
            {
                assert_eq!(machine_paths(&tree_of(&[("docs/a.md", &line)])), [], "{line}");
            }
        }
    }
}
