//! Checks what must be true between two steps: every sum and every index that is kept incrementally is computed anew
//! and compared, and the invariants 3 to 6 of ARCHITECTURE.md are checked as far as they can be seen in memory.
//!
//! Debug builds check after every step, so all tests and the simulator do. A check takes as long as the state is large.
//! So that tests with a large state stay fast, the larger the state was at the last check, the more steps pass before
//! the next one: see [`CheckPace`].

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::TopicKey;

use crate::bus::Bus;
use crate::groups::group::{CursorRef, GroupId, GroupState};
use crate::interface::input::ConnId;
use crate::lifecycle::pending::PendingEffect;
use crate::topics::topic::TopicId;

/// For each so many things that the last check looked at, a step passes without a check.
const THINGS_PER_STEP: usize = 256;

/// When the next check is due. Up to [`THINGS_PER_STEP`] things, every step is checked.
#[derive(Debug, Default)]
pub(crate) struct CheckPace {
    steps_left: usize,
}

impl CheckPace {
    /// Whether this step is to be checked.
    fn is_due(&mut self) -> bool {
        let due = self.steps_left == 0;
        self.steps_left = self.steps_left.saturating_sub(1);
        due
    }

    fn checked(&mut self, things: usize) {
        self.steps_left = things / THINGS_PER_STEP;
    }
}

/// Sums over all groups.
#[derive(Default)]
struct Sums {
    cursors: u64,
    windows: u64,
    members: BTreeMap<TopicId, usize>,
}

impl Bus {
    /// Called after every step: checks the invariants in debug builds.
    pub(crate) fn check_step(&mut self) {
        if cfg!(debug_assertions) && self.check_pace.is_due() {
            let things = self.check_invariants();
            self.check_pace.checked(things);
        }
    }

    /// Computes every sum and every index anew, and compares. Returns how many things were looked at.
    ///
    /// # Panics
    /// If something differs.
    pub fn check_invariants(&self) -> usize {
        let mut sums = Sums::default();
        let mut things = self.topics.check() + self.groups.check();
        for (id, topic) in self.topics.iter() {
            for (name, group) in &topic.groups {
                let Some(state) = self.groups.get(*group) else {
                    panic!("topic {} lists group {name}, which does not exist", topic.key);
                };
                assert!(state.topic == id && state.key == topic.key && state.name == *name);
                assert_eq!(
                    state.cursors.len(),
                    topic.logs.len(),
                    "a cursor for each partition of {}",
                    topic.key
                );
            }
        }
        let listed: usize = self.topics.iter().map(|(_, topic)| topic.groups.len()).sum();
        assert_eq!(listed, self.groups.len(), "every group is listed by its topic");
        for (id, group) in self.groups.iter() {
            things += self.check_group(id, group, &mut sums);
        }
        self.check_connections();
        self.check_totals(&sums);
        self.agenda.check_wakes(|at| self.groups.cursor(at).map(|cursor| cursor.registered()));
        self.check_pending();
        things
    }

    fn check_group(&self, id: GroupId, group: &GroupState, sums: &mut Sums) -> usize {
        let mut held: BTreeMap<ConnId, u32> = BTreeMap::new();
        let mut things = 1;
        for (cursor, partition) in group.cursors.iter().zip(0..) {
            let at = CursorRef { group: id, partition };
            things += cursor.check(at);
            assert_eq!(
                cursor.window.is_keyed(),
                group.sticky,
                "{at:?} keeps order per key if its group is sticky"
            );
            match cursor.registered() {
                Some(when) => assert!(self.agenda.has_wake(at, when), "{at:?} is not woken at {when:?}"),
                None => assert!(cursor.next_wake().is_none(), "{at:?} has to be woken and is not registered"),
            }
            if cursor.flush.is_requested() {
                assert!(
                    self.agenda.lists_flush(at) || cursor.flush.token().is_some(),
                    "{at:?} is never written"
                );
            }
            for (_, lease) in cursor.window.leases() {
                *held.entry(lease.conn).or_default() += 1;
            }
            for conn in cursor.window.awaited() {
                assert!(
                    group.members.contains(conn) || self.lifecycle.is_stopping(),
                    "{at:?} waits for {conn:?}"
                );
            }
        }
        group.members.check(&held, group.sticky, self.lifecycle.is_stopping());
        assert!(group.has_position || group.members.is_empty(), "{id:?} has members and no position");
        sums.cursors += group.cursors.len() as u64;
        sums.windows += group.members.iter().map(|(_, member)| u64::from(member.window())).sum::<u64>();
        *sums.members.entry(group.topic).or_default() += group.members.len();
        things
    }

    /// The subscriptions of connections and the members of groups mirror each other.
    fn check_connections(&self) {
        let subscriptions = self.conns.iter().flat_map(|(conn, connection)| {
            connection.subscription_entries().map(move |(key, group)| (conn, key, group))
        });
        let mut listed = BTreeSet::new();
        for (conn, (topic, name), group) in subscriptions {
            let state = self.groups.get(group).filter(|state| state.members.contains(conn));
            assert!(
                state.is_some_and(|state| state.key == *topic && state.name == *name),
                "{conn:?} subscribes to {topic}/{name} and is not a member"
            );
            listed.insert((group, conn));
        }
        let members = self.groups.iter().map(|(_, group)| group.members.len()).sum::<usize>();
        assert_eq!(listed.len(), members, "every member has a subscription");
    }

    fn check_totals(&self, sums: &Sums) {
        let partitions = self.topics.iter().map(|(_, topic)| topic.logs.len() as u64).sum();
        self.totals.check(
            (partitions, sums.cursors),
            self.topics.iter().filter_map(|(_, topic)| topic.made_by.as_ref()),
            self.groups
                .iter()
                .filter_map(|(_, group)| Some((group.made_by.as_ref()?, group.cursors.len() as u64))),
        );
        // A stop removes all members at once, and nobody subscribes any more.
        if !self.lifecycle.is_stopping() {
            self.totals.check_windows(sums.windows);
            for (id, topic) in self.topics.iter() {
                let members = sums.members.get(&id).copied().unwrap_or(0);
                assert_eq!(topic.members(), members, "members of {}", topic.key);
            }
        }
    }

    /// Tokens that are waited for belong to effects under way, and the other way round. A failed store gives all tokens
    /// up.
    fn check_pending(&self) {
        if self.lifecycle.failed().is_some() {
            return;
        }
        let mut refetches = BTreeSet::new();
        let (mut moves, mut scans, mut looked_up) = (0, 0, BTreeSet::<&TopicKey>::new());
        for pending in self.pending.iter() {
            match pending {
                PendingEffect::Refetch { cursor, offset } => {
                    refetches.insert((*cursor, *offset));
                }
                PendingEffect::MoveDue { .. } | PendingEffect::MoveAlone { .. } => moves += 1,
                PendingEffect::ScanDue(_) => scans += 1,
                PendingEffect::ReadTopic { topic } => {
                    looked_up.insert(topic);
                }
                _ => {}
            }
        }
        self.due.check(moves, scans);
        self.foreign.check(&looked_up, |token| self.pending.get(token).is_some());
        if let Some(token) = self.compaction.token() {
            assert!(
                matches!(self.pending.get(token), Some(PendingEffect::Compact)),
                "compaction waits for nothing"
            );
        }
        for (group, state) in self.groups.iter() {
            for (cursor, partition) in state.cursors.iter().zip(0..) {
                let at = CursorRef { group, partition };
                if let Some(token) = cursor.read_ahead.token() {
                    let read = self.pending.get(token);
                    assert!(
                        matches!(read, Some(PendingEffect::Read { cursor }) if *cursor == at),
                        "{at:?} reads nothing"
                    );
                }
                if let Some(token) = cursor.flush.token() {
                    let flush = self.pending.get(token);
                    let own = matches!(flush, Some(PendingEffect::Flush { cursor, .. }) if *cursor == at);
                    assert!(own, "{at:?} writes nothing");
                }
                for offset in cursor.window.refetching() {
                    assert!(refetches.contains(&(at, offset)), "offset {offset} of {at:?} is not being read");
                }
            }
        }
    }
}
