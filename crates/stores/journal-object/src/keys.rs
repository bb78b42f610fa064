//! The keys of the objects: the only place that knows how they are spelled.

use millrace_journal::PartName;
use object_store::path::Path;

const JOURNAL: &str = "journal";
const MANIFEST: &str = "manifest";
const SNAPSHOT: &str = "snapshot";
const PROBE: &str = "probe";
/// Digits of a record's number: as many as the largest number has, so that keys sort like numbers.
const NUMBER_DIGITS: usize = 20;
const PART_NAME_CHARS_MAX: usize = 100;

#[derive(Clone, Debug)]
pub(crate) struct ObjectKeys {
    prefix: Path,
}

impl ObjectKeys {
    pub(crate) fn new(prefix: Path) -> ObjectKeys {
        ObjectKeys { prefix }
    }

    /// Returns the folder of the records.
    pub(crate) fn records(&self) -> Path {
        self.prefix.clone().join(JOURNAL)
    }

    pub(crate) fn record(&self, n: u64) -> Path {
        self.records().join(format!("{n:0NUMBER_DIGITS$}"))
    }

    /// Returns the number of a record; `None` for an object that is no record.
    pub(crate) fn record_number(&self, key: &Path) -> Option<u64> {
        let digits = key.as_ref().strip_prefix(self.records().as_ref())?.strip_prefix('/')?;
        let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok()).flatten()
    }

    pub(crate) fn manifest(&self) -> Path {
        self.prefix.clone().join(MANIFEST)
    }

    /// Returns the folder of the snapshots' parts.
    pub(crate) fn parts(&self) -> Path {
        self.prefix.clone().join(SNAPSHOT)
    }

    pub(crate) fn part(&self, name: &PartName) -> Path {
        name.0.split('/').fold(self.parts(), Path::join)
    }

    /// Returns the name of a part; `None` for an object that is no part.
    pub(crate) fn part_name(&self, key: &Path) -> Option<PartName> {
        let name = key.as_ref().strip_prefix(self.parts().as_ref())?.strip_prefix('/')?;
        is_part_name(name).then(|| PartName(name.to_owned()))
    }

    /// Returns the folder of the objects that [`crate::ObjectJournal`] makes to try a provider's conditions.
    pub(crate) fn probes(&self) -> Path {
        self.prefix.clone().join(PROBE)
    }
}

/// Returns whether a name is what the port says a part is called.
pub(crate) fn is_part_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || b"-/".contains(&byte);
    name.len() <= PART_NAME_CHARS_MAX
        && name.bytes().all(is_allowed)
        && name.split('/').all(|piece| !piece.is_empty())
        && name.bytes().filter(|byte| *byte == b'/').count() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str) -> ObjectKeys {
        ObjectKeys::new(Path::parse(prefix).unwrap())
    }

    #[test]
    fn keys_of_records_sort_like_their_numbers() {
        let keys = keys("shop/eu");
        assert_eq!(keys.record(1).as_ref(), "shop/eu/journal/00000000000000000001");
        assert_eq!(keys.record(u64::MAX).as_ref(), "shop/eu/journal/18446744073709551615");
        assert!(keys.record(9) < keys.record(10) && keys.record(99) < keys.record(1_000));
        for n in [1, 42, u64::MAX] {
            assert_eq!(keys.record_number(&keys.record(n)), Some(n));
        }
        for stranger in ["shop/eu/journal/1", "shop/eu/journal/x0000000000000000001", "shop/eu/manifest"] {
            assert_eq!(keys.record_number(&Path::parse(stranger).unwrap()), None, "{stranger}");
        }
    }

    #[test]
    fn a_store_may_lie_at_the_root_of_a_bucket() {
        let keys = keys("");
        assert_eq!(keys.manifest().as_ref(), "manifest");
        assert_eq!(keys.record_number(&keys.record(7)), Some(7));
    }

    #[test]
    fn names_of_parts_survive_and_strangers_are_no_parts() {
        let keys = keys("shop");
        let name = PartName("17-ab12/000003".into());
        assert_eq!(keys.part(&name).as_ref(), "shop/snapshot/17-ab12/000003");
        assert_eq!(keys.part_name(&keys.part(&name)), Some(name));
        for stranger in ["shop/snapshot/README.md", "shop/snapshot/a/b/c", "shop/snapshot"] {
            assert_eq!(keys.part_name(&Path::parse(stranger).unwrap()), None, "{stranger}");
        }
        assert!(!is_part_name("") && !is_part_name("a//b") && !is_part_name(&"a".repeat(101)));
    }
}
