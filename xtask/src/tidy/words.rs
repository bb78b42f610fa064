//! Finds whole words in a line, so that `rand::` is not found in `operand::`.

pub(crate) fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let (before, rest) = line.split_at(start);
        let after = &rest[word.len()..];
        !is_one_word(before, word) && !is_one_word(word, after)
    })
}

fn is_one_word(left: &str, right: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    left.ends_with(joins) && right.starts_with(joins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_ends_where_identifiers_end() {
        assert!(contains_word("let m: HashMap<u8, u8>", "HashMap"));
        assert!(contains_word("MyHashMap or HashMap", "HashMap"));
        assert!(!contains_word("MyHashMap", "HashMap"));
        assert!(!contains_word("HashMaps", "HashMap"));
        assert!(!contains_word("operand::x", "rand::"));
        assert!(contains_word("rand::random()", "rand::"));
    }
}
