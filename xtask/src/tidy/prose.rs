//! Sentences of comments that begin with a word that stands for something they have not named: One, What, Who, Whoever,
//! It. A newcomer has to guess what is meant. The number per crate may only fall.

use std::collections::BTreeMap;

use super::problem::Problem;
use super::tree::{File, Tree};

const OPENERS: [&str; 5] = ["It", "One", "What", "Who", "Whoever"];

/// The sentences that are left, by crate. A change that mends some lowers the number.
const LEFT: &[(&str, usize)] = &[];

pub(crate) fn openers(tree: &Tree) -> Vec<Problem> {
    let mut found: BTreeMap<String, Vec<(String, usize, String)>> = BTreeMap::new();
    for file in tree.rust() {
        let top = file.path.split('/').next().unwrap_or_default();
        let place = file.room().unwrap_or(top).to_owned();
        let sentences = opened(file).into_iter().map(|(line, text)| (file.path.clone(), line, text));
        found.entry(place).or_default().extend(sentences);
    }
    let mut problems = Vec::new();
    for (place, sentences) in found {
        let left = LEFT.iter().find(|(name, _)| *name == place).map_or(0, |(_, left)| *left);
        match sentences.len() {
            count if count > left => problems.extend(sentences.into_iter().map(|(path, line, text)| {
                let message = format!(
                    "a sentence begins with {text:?}: name its subject ({place} has {count}, {left} are left)"
                );
                Problem::at(&path, line, message)
            })),
            count if count < left => {
                let message = format!("{place} has {count} such sentences: lower its number from {left}");
                problems.push(Problem::new("xtask/src/tidy/prose.rs", message));
            }
            _ => {}
        }
    }
    problems
}

/// Returns the lines on which such sentences begin, with their first words.
fn opened(file: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // Whether the next word of the comment begins a sentence.
    let mut at_start = true;
    for (number, line) in file.numbered_lines() {
        let Some(text) = comment(line).filter(|text| !text.trim().is_empty()) else {
            at_start = true;
            continue;
        };
        for word in text.split_whitespace() {
            if at_start && OPENERS.contains(&word) {
                let from = text.find(word).unwrap_or(0);
                found.push((number, text[from..].chars().take(40).collect()));
            }
            at_start = word.ends_with(['.', '!', '?', ':']);
        }
    }
    found
}

/// Returns the text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    fn lines(text: &str) -> Vec<usize> {
        let tree = tree_of(&[("crates/engines/bus/src/lib.rs", text)]);
        opened(&tree.files[0]).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn sentences_are_found_wherever_they_begin() {
        assert_eq!(lines("//! It is.\n//! What it does.\n"), [1, 2]);
        assert_eq!(lines("    /// Returns it. One of\n    /// many: It\n"), [1, 2]);
        assert_eq!(lines("// Begins\n// One line later.\n//\n// Who\n"), [4]);
        assert_eq!(lines("let it = 1; // It is not looked at\n// Items, Oneself, Whatever\n"), [0; 0]);
    }

    #[test]
    fn a_number_may_only_fall() {
        let tree = tree_of(&[("crates/engines/bus/src/lib.rs", "// It is.\n")]);
        let problems = openers(&tree);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().contains("name its subject"), "{}", problems[0]);
        assert_eq!(openers(&tree_of(&[("crates/engines/bus/src/lib.rs", "// The bus.\n")])), []);
    }
}
