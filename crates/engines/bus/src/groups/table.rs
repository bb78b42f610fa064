//! All groups, and the sums that are kept over them.

use std::collections::BTreeMap;

use millrace_model::{Broken, Filter, Group, never};

use crate::groups::cursor::Cursor;
use crate::groups::group::{CursorRef, GroupId, GroupState};
use crate::groups::members::Members;
use crate::topics::table::Topics;
use crate::topics::topic::Topic;

#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_id: BTreeMap<GroupId, GroupState>,
    /// The number of the group that was created last; no number is used again.
    created: u32,
    /// Bytes of events read ahead, for all groups together.
    fetched_bytes: usize,
    /// How many keys have a remembered member, over all sticky groups.
    sticky_keys: usize,
    /// How many events wait for their key or its member, over all sticky groups.
    sticky_waiting: usize,
}

/// A cursor with its group and its topic.
pub(crate) struct Located<'a> {
    pub(crate) topic: &'a mut Topic,
    pub(crate) name: &'a Group,
    pub(crate) filter: &'a Filter,
    pub(crate) members: &'a mut Members,
    pub(crate) cursor: &'a mut Cursor,
}

impl Groups {
    /// Returns the group, `None` if it was deleted.
    pub(crate) fn get(&self, id: GroupId) -> Option<&GroupState> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: GroupId) -> Option<&mut GroupState> {
        self.by_id.get_mut(&id)
    }

    /// Returns a group that the caller knows to exist.
    #[track_caller]
    pub(crate) fn must(&self, id: GroupId, broken: &Broken) -> Option<&GroupState> {
        let group = self.by_id.get(&id);
        if group.is_none() {
            never!(broken, "there is no group {id:?}");
        }
        group
    }

    #[track_caller]
    pub(crate) fn must_mut(&mut self, id: GroupId, broken: &Broken) -> Option<&mut GroupState> {
        let group = self.by_id.get_mut(&id);
        if group.is_none() {
            never!(broken, "there is no group {id:?}");
        }
        group
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (GroupId, &GroupState)> {
        self.by_id.iter().map(|(id, group)| (*id, group))
    }

    pub(crate) fn cursor(&self, at: CursorRef) -> Option<&Cursor> {
        self.by_id.get(&at.group)?.cursors.get(at.partition as usize)
    }

    /// Checks the sums over all groups. Returns how many groups there are.
    pub(crate) fn check(&self) -> usize {
        let sum = |part: fn(&GroupState) -> usize| self.by_id.values().map(part).sum::<usize>();
        assert_eq!(self.fetched_bytes, sum(GroupState::fetched_bytes), "bytes read ahead");
        assert_eq!(self.sticky_keys, sum(|group| group.members.keys()), "keys with a member");
        assert_eq!(self.sticky_waiting, sum(GroupState::waiting_counted), "events that wait for their key");
        self.by_id.len()
    }

    pub(crate) fn ids(&self) -> Vec<GroupId> {
        self.by_id.keys().copied().collect()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut GroupState> {
        self.by_id.values_mut()
    }

    pub(crate) fn insert(&mut self, group: GroupState) -> GroupId {
        self.created += 1;
        let id = GroupId(self.created);
        self.by_id.insert(id, group);
        id
    }

    pub(crate) fn remove(&mut self, id: GroupId) -> Option<GroupState> {
        let group = self.by_id.remove(&id)?;
        self.fetched_bytes -= group.fetched_bytes();
        self.sticky_keys = self.sticky_keys.saturating_sub(group.members.keys());
        self.sticky_waiting = self.sticky_waiting.saturating_sub(group.waiting_counted());
        Some(group)
    }

    /// Returns the cursor, `None` if its group was deleted.
    pub(crate) fn cursor_mut(&mut self, at: CursorRef) -> Option<&mut Cursor> {
        self.by_id.get_mut(&at.group)?.cursors.get_mut(at.partition as usize)
    }

    /// Returns a cursor that the caller knows to exist.
    #[track_caller]
    pub(crate) fn must_cursor_mut(&mut self, at: CursorRef, broken: &Broken) -> Option<&mut Cursor> {
        let cursor = self.cursor_mut(at);
        if cursor.is_none() {
            never!(broken, "there is no cursor {at:?}");
        }
        cursor
    }

    /// Like `locate`, for a caller who knows that the group exists: it was looked up for the same input.
    #[track_caller]
    pub(crate) fn must_locate<'a>(
        &'a mut self,
        topics: &'a mut Topics,
        at: CursorRef,
        broken: &Broken,
    ) -> Option<Located<'a>> {
        let located = self.locate(topics, at);
        if located.is_none() {
            never!(broken, "there is no cursor {at:?}, or its topic is gone");
        }
        located
    }

    /// Returns the topic, the group and the cursor that a reference names. `None` if the group was deleted since the
    /// reference was taken: the agenda and the effects under way keep references.
    pub(crate) fn locate<'a>(&'a mut self, topics: &'a mut Topics, at: CursorRef) -> Option<Located<'a>> {
        let GroupState { topic, name, filter, members, cursors, .. } = self.by_id.get_mut(&at.group)?;
        let topic = topics.get_mut(*topic)?;
        let cursor = cursors.get_mut(at.partition as usize)?;
        Some(Located { topic, name, filter, members, cursor })
    }

    pub(crate) fn fetched_bytes(&self) -> usize {
        self.fetched_bytes
    }

    /// Bytes of events read ahead for one group; 0 if it was deleted.
    pub(crate) fn fetched_bytes_of(&self, id: GroupId) -> usize {
        self.get(id).map_or(0, GroupState::fetched_bytes)
    }

    /// Updates the total of `fetched_bytes`. To be called after anything that may have changed what the group has read
    /// ahead; `before` is the group's number of bytes before that.
    pub(crate) fn account_fetched(&mut self, id: GroupId, before: usize) {
        let after = self.fetched_bytes_of(id);
        self.fetched_bytes = (self.fetched_bytes + after).saturating_sub(before);
    }

    pub(crate) fn sticky_waiting(&self) -> usize {
        self.sticky_waiting
    }

    /// Counts one more waiting event. The count holds until `account_waiting` counts anew, so that one group cannot
    /// pass the bound by far.
    pub(crate) fn count_waiting(&mut self, id: GroupId) {
        if let Some(group) = self.by_id.get_mut(&id) {
            group.set_waiting_counted(group.waiting_counted() + 1);
            self.sticky_waiting += 1;
        }
    }

    /// Counts a group's waiting events anew. To be called after anything that may have changed their number.
    pub(crate) fn account_waiting(&mut self, id: GroupId) {
        let Some(group) = self.by_id.get_mut(&id) else { return };
        let waiting = group.cursors.iter().map(|cursor| cursor.window.unsent()).sum();
        let before = group.set_waiting_counted(waiting);
        self.sticky_waiting = (self.sticky_waiting + waiting).saturating_sub(before);
    }

    pub(crate) fn sticky_keys(&self) -> usize {
        self.sticky_keys
    }

    /// Changes which member keys of a group belong to, and keeps the total.
    pub(crate) fn change_keys(&mut self, id: GroupId, change: impl FnOnce(&mut GroupState)) {
        let Some(group) = self.by_id.get_mut(&id) else { return };
        let before = group.members.keys();
        change(group);
        self.sticky_keys = (self.sticky_keys + group.members.keys()).saturating_sub(before);
    }
}
