//! The feed behind [`crate::Store::watch`]: what recent commits have appended, delayed and trimmed.

use std::collections::VecDeque;

use millrace_model::{Offset, Stream, TopicKey};

use crate::port::{Changes, CommitNumber, StreamBounds, StreamRun};

/// Commits that a watcher may lag behind before it has to start over.
const COMMITS_MAX: usize = 4096;

#[derive(Clone, Default)]
pub(super) struct CommitFeed {
    last: u64,
    /// The newest commits; the last of them has the number `last`.
    commits: VecDeque<StreamChanges>,
}

/// The changes that a commit made to streams.
#[derive(Clone, Default)]
pub(super) struct StreamChanges {
    pub(super) runs: Vec<StreamRun>,
    /// The bounds of trimmed streams after this commit.
    pub(super) trimmed: Vec<StreamBounds>,
    pub(super) delayed: bool,
}

impl CommitFeed {
    pub(super) fn last(&self) -> CommitNumber {
        CommitNumber(self.last)
    }

    pub(super) fn push(&mut self, changed: StreamChanges) {
        self.last += 1;
        self.commits.push_back(changed);
        if self.commits.len() > COMMITS_MAX {
            self.commits.pop_front();
        }
    }

    pub(super) fn forget_topic(&mut self, topic: &TopicKey) {
        for changed in &mut self.commits {
            changed.runs.retain(|run| run.stream.topic != *topic);
            changed.trimmed.retain(|bounds| bounds.stream.topic != *topic);
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
        for changed in commits {
            changes.runs.extend(changed.runs.iter().cloned());
            changes.trimmed.extend(changed.trimmed.iter().cloned());
            changes.delayed |= changed.delayed;
        }
        changes
    }
}

/// Adds an append to the runs of the commit under way.
pub(super) fn extend(runs: &mut Vec<StreamRun>, stream: &Stream, offset: Offset) {
    match runs.iter_mut().find(|run| run.stream == *stream) {
        Some(run) => run.count += 1,
        None => runs.push(StreamRun { stream: stream.clone(), first: offset, count: 1 }),
    }
}
