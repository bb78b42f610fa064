//! File trees for tests, built in memory.

use super::tree::{File, Tree};

pub(crate) fn tree_of(files: &[(&str, &str)]) -> Tree {
    let file = |&(path, text): &(&str, &str)| File {
        path: path.to_owned(),
        bytes: text.len() as u64,
        text: text.to_owned(),
    };
    Tree { files: files.iter().map(file).collect() }
}
