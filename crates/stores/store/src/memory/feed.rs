//! The feed behind [`crate::Store::watch`]: what recent commits have appended, delayed and trimmed.

use std::collections::VecDeque;

use millrace_model::{Append, Offset, TopicKey};

use crate::port::{Changes, CommitNumber, Run, StreamBounds};

/// Commits that a watcher may lag behind before it has to start over.
const COMMITS_MAX: usize = 4096;

#[derive(Clone, Default)]
pub(super) struct Feed {
    last: u64,
    /// The newest commits; the last of them has the number `last`.
    commits: VecDeque<Told>,
}

/// The changes that a commit made to streams.
#[derive(Clone, Default)]
pub(super) struct Told {
    pub(super) runs: Vec<Run>,
    /// The bounds of trimmed streams after this commit.
    pub(super) trimmed: Vec<StreamBounds>,
    pub(super) delayed: bool,
}

impl Feed {
    pub(super) fn last(&self) -> CommitNumber {
        CommitNumber(self.last)
    }

    pub(super) fn push(&mut self, told: Told) {
        self.last += 1;
        self.commits.push_back(told);
        if self.commits.len() > COMMITS_MAX {
            self.commits.pop_front();
        }
    }

    pub(super) fn forget_topic(&mut self, topic: &TopicKey) {
        for told in &mut self.commits {
            told.runs.retain(|run| run.stream.topic != *topic);
            told.trimmed.retain(|bounds| bounds.stream.topic != *topic);
        }
    }

    pub(super) fn after(&self, after: CommitNumber, commits_max: usize) -> Changes {
        let first_kept = self.last - self.commits.len() as u64;
        if after.0 < first_kept || after.0 > self.last {
            return Changes { last: self.last(), ..Changes::default() };
        }
        let commits = self.commits.range((after.0 - first_kept) as usize..).take(commits_max);
        let last = CommitNumber(after.0 + commits.len() as u64);
        let mut changes = Changes { last, complete: true, ..Changes::default() };
        for told in commits {
            changes.runs.extend(told.runs.iter().cloned());
            changes.trimmed.extend(told.trimmed.iter().cloned());
            changes.delayed |= told.delayed;
        }
        changes
    }
}

/// Adds an append to the runs of the commit under way.
pub(super) fn extend(runs: &mut Vec<Run>, append: &Append, offset: Offset) {
    match runs.iter_mut().find(|run| run.stream == append.stream) {
        Some(run) => run.count += 1,
        None => runs.push(Run { stream: append.stream.clone(), first: offset, count: 1 }),
    }
}
