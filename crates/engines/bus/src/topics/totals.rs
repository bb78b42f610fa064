//! Bounds on products: partitions of all topics, cursors of all groups, windows of all members.
//!
//! Each factor has a bound of its own, and together they would still fill any memory: 1,000 groups of a topic with
//! 1,024 partitions are a million cursors. Partitions, cursors and windows that are there already, such as in a store
//! from before these bounds, are never refused; only additional ones are.
//!
//! A single agent gets at most half of the topics, cursors and windows, so that it cannot keep the others out. Topics
//! and groups outlive the connection that made them, so their rows say which agent made them; those of administrators
//! count against nobody.

use std::collections::BTreeMap;

use millrace_model::{Actor, Requester};

use crate::interface::reply::BusError;
use crate::limits::BusLimits;

/// The role that a token with the scope of the same name has.
const ADMIN: &str = "admin";

#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Partitions of all topics.
    partitions: u64,
    /// Cursors: for each group one per partition of its topic.
    cursors: u64,
    /// `max_inflight` of all members together.
    inflight: u64,
    by_agent: BTreeMap<Actor, Share>,
    /// The agent against whose share topics count that the current request creates; `None` = nobody's share.
    requester: Option<Actor>,
}

/// How much one agent has of everything that is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    topics: u64,
    cursors: u64,
    inflight: u64,
}

/// Returns the agent against whose share a topic or a group counts; `None` for administrators.
pub(crate) fn sharer(by: &Requester) -> Option<Actor> {
    let by = by.principal()?;
    (!by.roles.iter().any(|role| role.as_str() == ADMIN)).then(|| by.agent.clone())
}

impl Totals {
    pub(crate) fn begin_request(&mut self, by: Option<Actor>) {
        self.requester = by;
    }

    pub(crate) fn end_request(&mut self) {
        self.requester = None;
    }

    pub(crate) fn requester(&self) -> Option<&Actor> {
        self.requester.as_ref()
    }

    /// Checks whether a topic may get `more` partitions, with a cursor on each of them for each of its `groups`.
    pub(crate) fn partitions_fit(&self, limits: &BusLimits, more: u64, groups: u64) -> Result<(), BusError> {
        fits("partitions", self.partitions, more, limits.partitions_total_max)?;
        self.cursors_fit(limits, None, more.saturating_mul(groups))
    }

    /// Checks whether the agent of the current request may create one more topic.
    pub(crate) fn topic_fits(&self, limits: &BusLimits) -> Result<(), BusError> {
        let Some(by) = &self.requester else { return Ok(()) };
        fits("topics made by one agent", self.share(by).topics, 1, limits.topics_max as u64 / 2)
    }

    pub(crate) fn topic_made(&mut self, by: Option<&Actor>, partitions: u64) {
        self.partitions += partitions;
        self.change(by, |share| share.topics += 1);
    }

    pub(crate) fn topic_gone(&mut self, by: Option<&Actor>, partitions: u64) {
        self.partitions -= partitions;
        self.change(by, |share| share.topics = share.topics.saturating_sub(1));
    }

    pub(crate) fn partitions_added(&mut self, more: u64) {
        self.partitions += more;
    }

    pub(crate) fn cursors_fit(
        &self,
        limits: &BusLimits,
        by: Option<&Actor>,
        more: u64,
    ) -> Result<(), BusError> {
        let max = limits.cursors_total_max;
        if let Some(by) = by {
            let held = self.share(by).cursors;
            fits("cursors of groups made by one agent (groups x partitions)", held, more, max / 2)?;
        }
        fits("cursors (groups x partitions)", self.cursors, more, max)
    }

    pub(crate) fn cursors_made(&mut self, by: Option<&Actor>, more: u64) {
        self.cursors += more;
        self.change(by, |share| share.cursors += more);
    }

    pub(crate) fn cursors_gone(&mut self, by: Option<&Actor>, less: u64) {
        self.cursors = self.cursors.saturating_sub(less);
        self.change(by, |share| share.cursors = share.cursors.saturating_sub(less));
    }

    /// Checks the totals of partitions and cursors, and what each agent has made. `topics`: the agent of each topic.
    /// `groups`: the agent and the cursors of each group.
    pub(crate) fn check<'a>(
        &self,
        (partitions, cursors): (u64, u64),
        topics: impl Iterator<Item = &'a Actor>,
        groups: impl Iterator<Item = (&'a Actor, u64)>,
    ) {
        assert_eq!((self.partitions, self.cursors), (partitions, cursors), "partitions and cursors");
        let mut made: BTreeMap<&Actor, (u64, u64)> = BTreeMap::new();
        topics.for_each(|by| made.entry(by).or_default().0 += 1);
        groups.for_each(|(by, cursors)| made.entry(by).or_default().1 += cursors);
        for (by, share) in &self.by_agent {
            let (topics, cursors) = made.remove(by).unwrap_or_default();
            assert_eq!((share.topics, share.cursors), (topics, cursors), "topics and cursors made by {by}");
        }
        assert!(made.is_empty(), "{made:?} are counted for nobody");
    }

    /// Checks the total of the members' windows. The windows by agent are not checked: a connection may subscribe as
    /// several agents.
    pub(crate) fn check_windows(&self, windows: u64) {
        assert_eq!(self.inflight, windows, "windows of all members");
    }

    fn share(&self, by: &Actor) -> Share {
        self.by_agent.get(by).copied().unwrap_or_default()
    }

    fn change(&mut self, by: Option<&Actor>, change: impl FnOnce(&mut Share)) {
        let Some(by) = by else { return };
        let mut share = self.share(by);
        change(&mut share);
        match share == Share::default() {
            true => drop(self.by_agent.remove(by)),
            false => drop(self.by_agent.insert(by.clone(), share)),
        }
    }

    /// Checks whether a member's window may become wider by `more`.
    pub(crate) fn window_fits(
        &self,
        limits: &BusLimits,
        agent: Option<&Actor>,
        more: u64,
    ) -> Result<(), BusError> {
        let max = limits.inflight_total_max;
        if let Some(agent) = agent {
            let held = self.share(agent).inflight;
            fits(
                "unacknowledged events of one agent (max_inflight of its subscriptions)",
                held,
                more,
                max / 2,
            )?;
        }
        fits("unacknowledged events (max_inflight of all subscriptions)", self.inflight, more, max)
    }

    /// Accounts for a member's window that was `before` and is now `after`; 0 = there is no such member.
    pub(crate) fn window_changed(&mut self, agent: Option<&Actor>, before: u32, after: u32) {
        let change = |total: u64| (total + u64::from(after)).saturating_sub(u64::from(before));
        self.inflight = change(self.inflight);
        self.change(agent, |share| share.inflight = change(share.inflight));
    }
}

fn fits(what: &'static str, held: u64, more: u64, max: u64) -> Result<(), BusError> {
    if more == 0 || held.saturating_add(more) <= max {
        return Ok(());
    }
    Err(BusError::TotalReached { what, held, more, max })
}
