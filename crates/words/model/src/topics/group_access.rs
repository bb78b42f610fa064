//! Access to the groups of a topic: one access list per group, and one for all groups without a list of their own.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::topics::access::AccessList;
use crate::topics::name::{Group, NameError};

/// Most groups of one topic that may have a list, the entry for all others included.
pub const GROUP_LISTS_MAX: usize = 256;
/// Most entries of all these lists together.
pub const GROUP_ENTRIES_MAX: usize = 4096;
/// Instead of a group's name: every group without a list of its own.
const OTHERS: &str = "*";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupAccessError {
    #[error("{name:?}: {source}; * stands for every group without a list of its own")]
    BadGroup { name: String, source: NameError },
    #[error("{0} groups have a list: at most {GROUP_LISTS_MAX} are allowed")]
    TooManyGroups(usize),
    #[error("the lists have {0} entries together: at most {GROUP_ENTRIES_MAX} are allowed")]
    TooManyEntries(usize),
}

/// The key of one list: a group, or all groups without a list of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GroupKey {
    Others,
    Named(Group),
}

impl GroupKey {
    pub fn new(text: &str) -> Result<GroupKey, GroupAccessError> {
        if text == OTHERS {
            return Ok(GroupKey::Others);
        }
        let shown = || text.chars().take(40).collect();
        Group::new(text)
            .map(GroupKey::Named)
            .map_err(|source| GroupAccessError::BadGroup { name: shown(), source })
    }

    pub fn as_str(&self) -> &str {
        match self {
            GroupKey::Others => OTHERS,
            GroupKey::Named(group) => group.as_str(),
        }
    }
}

impl TryFrom<String> for GroupKey {
    type Error = GroupAccessError;
    fn try_from(text: String) -> Result<GroupKey, GroupAccessError> {
        GroupKey::new(&text)
    }
}

impl From<GroupKey> for String {
    fn from(key: GroupKey) -> String {
        key.as_str().to_owned()
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The lists of who may join, seek and delete the groups of a topic. Never empty: a topic without such lists has `None`
/// in [`crate::TopicConfig`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupAccess(BTreeMap<GroupKey, AccessList>);

/// A change to the lists: a list replaces the group's list, `None` removes it, groups that are not named keep theirs.
pub type GroupAccessPatch = BTreeMap<GroupKey, Option<AccessList>>;

impl GroupAccess {
    /// Returns `None` if no group has a list.
    pub fn new(lists: BTreeMap<GroupKey, AccessList>) -> Result<Option<GroupAccess>, GroupAccessError> {
        if lists.len() > GROUP_LISTS_MAX {
            return Err(GroupAccessError::TooManyGroups(lists.len()));
        }
        let entries = lists.values().map(AccessList::len).sum();
        if entries > GROUP_ENTRIES_MAX {
            return Err(GroupAccessError::TooManyEntries(entries));
        }
        Ok((!lists.is_empty()).then_some(GroupAccess(lists)))
    }

    pub fn patched(
        current: Option<&GroupAccess>,
        patch: &GroupAccessPatch,
    ) -> Result<Option<GroupAccess>, GroupAccessError> {
        let mut lists = current.map(|current| current.0.clone()).unwrap_or_default();
        for (group, list) in patch {
            match list {
                Some(list) => drop(lists.insert(group.clone(), list.clone())),
                None => drop(lists.remove(group)),
            }
        }
        GroupAccess::new(lists)
    }

    /// Returns the change that sets these lists.
    pub fn into_patch(self) -> GroupAccessPatch {
        self.0.into_iter().map(|(group, list)| (group, Some(list))).collect()
    }

    /// Returns the list that applies to a group: its own, or the one for all others. `None`: no list concerns this
    /// group.
    pub fn list(&self, group: &Group) -> Option<&AccessList> {
        self.0.get(&GroupKey::Named(group.clone())).or_else(|| self.0.get(&GroupKey::Others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::access::{Actor, Principal};

    fn group(name: &str) -> Group {
        Group::new(name).unwrap()
    }

    fn read(json: &str) -> GroupAccess {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_group_has_its_own_list_or_that_of_all_others() {
        let lists = read(r#"{"billing":["bob"],"*":["ops"],"closed":[]}"#);
        let may = |name: &str, agent: &str| {
            let who = Principal { agent: Actor::new(agent).unwrap(), roles: Vec::new(), namespaces: None };
            lists.list(&group(name)).is_none_or(|list| list.permits(&who))
        };
        assert!(may("billing", "bob") && !may("billing", "ops"), "its own list, not that of the others");
        assert!(may("other", "ops") && !may("other", "bob"));
        assert!(!may("closed", "ops"), "an empty list is nobody");
        assert_eq!(read(r#"{"billing":["bob"]}"#).list(&group("other")), None, "no list concerns it");
    }

    #[test]
    fn a_patch_changes_the_groups_it_names_and_the_last_list_leaves_nothing() {
        let lists = read(r#"{"a":["x"],"b":["y"]}"#);
        let patch = |json: &str| -> GroupAccessPatch { serde_json::from_str(json).unwrap() };
        let changed = GroupAccess::patched(Some(&lists), &patch(r#"{"b":null,"c":["z"]}"#)).unwrap();
        assert_eq!(changed, Some(read(r#"{"a":["x"],"c":["z"]}"#)));
        assert_eq!(GroupAccess::patched(Some(&lists), &patch(r#"{"a":null,"b":null}"#)).unwrap(), None);
        assert_eq!(GroupAccess::patched(None, &patch("{}")).unwrap(), None);
    }

    #[test]
    fn lists_are_bounded_and_written_as_they_were_read() {
        let text = r#"{"*":["!eve"],"a.b":[]}"#;
        assert_eq!(serde_json::to_string(&read(text)).unwrap(), text);
        assert!(GroupKey::new("a b").is_err() && GroupKey::new("").is_err());
        let many = |count: usize, entries: usize| {
            let key = |n| GroupKey::new(&format!("g{n}")).unwrap();
            let list = || AccessList::new(vec!["a"; entries].into_iter()).unwrap();
            GroupAccess::new((0..count).map(|n| (key(n), list())).collect())
        };
        assert!(many(GROUP_LISTS_MAX, 1).is_ok());
        assert_eq!(many(GROUP_LISTS_MAX + 1, 1).unwrap_err(), GroupAccessError::TooManyGroups(257));
        assert_eq!(many(17, 256).unwrap_err(), GroupAccessError::TooManyEntries(4352));
    }
}
