//! Finds impure words in the sources of pure crates. Clippy bans the calls that it can resolve; this check reads the
//! text, so that it also finds `async` and functions that a new version of std adds.

use super::problem::Problem;
use super::rooms::{Kind, Room};
use super::tree::{File, Tree};
use super::words::contains_word;

const IMPURE_WORDS: &[(&str, &str)] = &[
    ("Instant::now", "take a `now` argument"),
    ("SystemTime", "take a `now` argument"),
    ("std::thread", "return an effect: an engine has one owner"),
    ("std::fs", "return an effect: the store and the edges own files"),
    ("std::net", "return an effect: the edges own sockets"),
    ("std::process", "return an effect: the guests own processes"),
    ("std::env", "take the setting as an argument: the edges read it"),
    ("async fn", "write a synchronous state machine: the runtime waits"),
    ("async move", "write a synchronous state machine: the runtime waits"),
    (".await", "write a synchronous state machine: the runtime waits"),
    ("rand::", "take the value as an input: the runtime draws it"),
    ("HashSet", "use BTreeSet: order may reach an output"),
    (HASH_MAP, "use BTreeMap: order may reach an output"),
];

const HASH_MAP: &str = "HashMap";

/// A line with this comment may use `HashMap`. Clippy's own ban also needs its `#[expect]`.
const ORDERED: &str = "// tidy: ordered, never iterated";

pub(crate) fn impure_lines(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust().filter(|file| is_pure_source(file)) {
        for (number, line) in file.numbered_lines() {
            for (word, instead) in impure_words(line) {
                problems.push(Problem::at(
                    &file.path,
                    number,
                    format!("`{word}` in a pure crate: {instead}"),
                ));
            }
        }
    }
    problems
}

fn is_pure_source(file: &File) -> bool {
    let room = file.room().and_then(Room::named).filter(|room| room.kind == Kind::Pure);
    room.is_some_and(|room| file.path.starts_with(&format!("{}/src/", room.folder())))
}

fn impure_words(line: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    // Comments may name what the code must not use. A `//` inside a string also cuts the line here; clippy still checks
    // the rest.
    let code = line.split_once("//").map_or(line, |(code, _)| code);
    let vouched = line.contains(ORDERED);
    IMPURE_WORDS.iter().filter(move |(word, _)| contains_word(code, word) && !(*word == HASH_MAP && vouched))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::tree_of;

    fn check(line: &str, expected: &[&str]) {
        let found: Vec<&str> = impure_words(line).map(|&(word, _)| word).collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn every_impure_word_is_found_in_code() {
        check("let now = std::time::Instant::now();", &["Instant::now"]);
        check("use std::time::{Duration, SystemTime};", &["SystemTime"]);
        check("std::thread::sleep(d);", &["std::thread"]);
        check("use std::fs::File;", &["std::fs"]);
        check("use std::net::TcpStream;", &["std::net"]);
        check("std::process::exit(1)", &["std::process"]);
        check("let v = std::env::var(\"V\");", &["std::env"]);
        check("pub async fn publish() {", &["async fn"]);
        check("spawn(async move { rx.recv().await })", &["async move", ".await"]);
        check("let x: u8 = rand::random();", &["rand::"]);
        check("use std::collections::{HashMap, HashSet};", &["HashSet", "HashMap"]);
    }

    #[test]
    fn comments_and_longer_words_are_left_alone() {
        check("//! No `HashMap` here, and no std::fs.", &[]);
        check("let x = operand::value(); // unlike rand::random", &[]);
        check("struct HashMapless;", &[]);
        check("use std::time::Duration;", &[]);
    }

    #[test]
    fn the_escape_vouches_for_a_map_and_for_nothing_else() {
        check("index: HashMap<Key, usize>, // tidy: ordered, never iterated", &[]);
        check("index: HashSet<Key>, // tidy: ordered, never iterated", &["HashSet"]);
    }

    #[test]
    fn only_the_sources_of_pure_crates_are_read() {
        let line = "use std::fs;\n";
        let tree = tree_of(&[
            ("crates/engines/bus/src/lib.rs", line),
            ("crates/engines/bus/tests/replay.rs", line),
            ("crates/faces/server/src/lib.rs", line),
        ]);
        let found: Vec<String> = impure_lines(&tree).iter().map(Problem::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/engines/bus/src/lib.rs:1: `std::fs` in a pure crate: return an effect: the store and the edges own files"
            ]
        );
    }
}
