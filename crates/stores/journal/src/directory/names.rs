//! The names of files: numbers of records, and parts of snapshots.

use crate::port::PartName;

const DIGITS: usize = 20;
const PART_NAME_MAX: usize = 100;

/// Returns the file name of a record: with all its digits, so that names sort like numbers.
pub(super) fn of_record(n: u64) -> String {
    format!("{n:0DIGITS$}")
}

/// Returns the number of the record with this file name; `None` for other files.
pub(super) fn number(name: &str) -> Option<u64> {
    let is_number = name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_digit());
    name.parse().ok().filter(|_| is_number)
}

/// Returns the folder and the file of a part; `None` if the name breaks the rules of [`PartName`]. The rules also keep
/// a name from leaving the folder of the snapshots.
pub(super) fn of_part(name: &PartName) -> Option<(&str, &str)> {
    let (folder, file) = name.0.split_once('/')?;
    (name.0.len() <= PART_NAME_MAX && is_plain(folder) && is_plain(file)).then_some((folder, file))
}

/// Returns whether a part's folder or file may have this name.
pub(super) fn is_plain(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b'-';
    !name.is_empty() && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_records_are_numbers_with_all_digits() {
        assert_eq!(of_record(7), "00000000000000000007");
        for n in [0, 7, u64::MAX] {
            assert_eq!(number(&of_record(n)), Some(n));
        }
        for name in ["7", "", "99999999999999999999", "+0000000000000000007", ".nfs0000000000000007"] {
            assert_eq!(number(name), None, "{name}");
        }
    }

    #[test]
    fn names_of_parts_stay_in_their_folder() {
        assert_eq!(of_part(&PartName("12-ab/000".to_owned())), Some(("12-ab", "000")));
        for name in ["12-ab", "../12", "12/..", "a/b/c", "/a", "a/", "A/b", &format!("a/{}", "b".repeat(99))]
        {
            assert_eq!(of_part(&PartName(name.to_owned())), None, "{name}");
        }
    }
}
