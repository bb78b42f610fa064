//! Limits on the lines and the bytes of a file.

use super::problem::Problem;
use super::tree::{File, Tree};

pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
const CODE_LINES_MAX: usize = 700;
const CODE_LINES_QUESTION: usize = 400;

pub(crate) fn too_long(tree: &Tree) -> Vec<Problem> {
    let long = tree.rust().map(|file| (file, code_lines(file))).filter(|&(_, lines)| lines > CODE_LINES_MAX);
    long.map(|(file, lines)| {
        let message = format!(
            "{lines} lines before its tests, at most {CODE_LINES_MAX}: split it by stage of the data"
        );
        Problem::new(&file.path, message)
    })
    .collect()
}

/// Lists files long enough to ask why. This is a question, not an error.
pub(crate) fn worth_a_question(tree: &Tree) -> Vec<Problem> {
    let question = CODE_LINES_QUESTION + 1..=CODE_LINES_MAX;
    let files =
        tree.rust().map(|file| (file, code_lines(file))).filter(|(_, lines)| question.contains(lines));
    files
        .map(|(file, lines)| {
            Problem::new(&file.path, format!("{lines} lines before its tests: why so many?"))
        })
        .collect()
}

pub(crate) fn too_heavy(tree: &Tree) -> Vec<Problem> {
    let heavy = tree.files.iter().filter(|file| file.bytes > FILE_BYTES_MAX);
    heavy
        .map(|file| Problem::new(&file.path, format!("{} bytes, at most {FILE_BYTES_MAX}", file.bytes)))
        .collect()
}

/// Returns the number of lines before the inline test module. `mod tests;` does not open an inline module, and files
/// under `tests/` count zero because they contain only tests.
fn code_lines(file: &File) -> usize {
    if file.path.split('/').any(|part| part == "tests" || part == "tests.rs") {
        return 0;
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let opens_tests = |pair: &[&str]| {
        pair[0] == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].trim_end().ends_with('{')
    };
    lines.windows(2).position(opens_tests).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    fn tree_with(path: &str, code: usize, tests: usize) -> Tree {
        let mut text = "let x = 1;\n".repeat(code);
        text.push_str("#[cfg(test)]\nmod tests {\n");
        text.push_str(&"assert!(true);\n".repeat(tests));
        tree_of(&[(path, &text)])
    }

    #[test]
    fn code_counts_and_inline_tests_do_not() {
        assert_eq!(too_long(&tree_with("src/a.rs", 700, 900)), []);
        let found = too_long(&tree_with("src/a.rs", 701, 0));
        assert!(found[0].to_string().starts_with("src/a.rs: 701 lines"), "{found:?}");
        assert_eq!(too_long(&tree_with("tests/a.rs", 900, 0)), []);
        assert_eq!(too_long(&tree_with("docs/a.md", 900, 0)), []);
    }

    #[test]
    fn a_test_module_in_another_file_does_not_hide_the_code_after_it() {
        let text = format!("#[cfg(test)]\nmod tests;\n{}", "let x = 1;\n".repeat(700));
        assert_eq!(too_long(&tree_of(&[("src/a.rs", &text)])).len(), 1);
    }

    #[test]
    fn the_question_comes_between_the_habit_and_the_limit() {
        for (lines, asked) in [(400, 0), (401, 1), (700, 1), (701, 0)] {
            assert_eq!(worth_a_question(&tree_with("src/a.rs", lines, 0)).len(), asked, "{lines}");
        }
    }

    #[test]
    fn a_file_of_more_than_a_mebibyte_is_too_heavy() {
        let file =
            |bytes| Tree { files: vec![File { path: "logo.png".to_owned(), bytes, text: String::new() }] };
        assert_eq!(too_heavy(&file(FILE_BYTES_MAX)), []);
        assert_eq!(too_heavy(&file(FILE_BYTES_MAX + 1)).len(), 1);
    }
}
