//! What waits for the loop of a session.
//!
//! Bounded by what the engine has asked for: one answer per commit under way, one result per handler that runs, and
//! one commit per handler that waits for it.

use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_claims::{CommitError, Input, RunId};
use millrace_model::StateCommit;

pub(crate) type Answer = Result<Option<StateCommit>, CommitError>;

#[derive(Debug)]
pub(crate) enum Mail {
    Input(Input),
    /// A handler's commit, and where it waits.
    Commit {
        run: RunId,
        input: Input,
        reply: SyncSender<Answer>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    post: Mutex<Post>,
    wake: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Post {
    pub(crate) mail: Vec<Mail>,
    /// Somebody in this process has appended events.
    pub(crate) news: bool,
    ended: bool,
}

impl Mailbox {
    /// After the end, mail is dropped: whoever waits for an answer learns that there is none.
    pub(crate) fn push(&self, mail: Mail) {
        let mut post = self.lock();
        if !post.ended {
            post.mail.push(mail);
            drop(post);
            self.wake.notify_one();
        }
    }

    pub(crate) fn push_all(&self, mail: impl Iterator<Item = Mail>) {
        let mut post = self.lock();
        if !post.ended {
            post.mail.extend(mail);
            drop(post);
            self.wake.notify_one();
        }
    }

    pub(crate) fn tell_news(&self) {
        self.lock().news = true;
        self.wake.notify_one();
    }

    /// Waits until there is something, at most `wait`.
    pub(crate) fn take(&self, wait: Duration) -> Post {
        let empty = |post: &mut Post| post.mail.is_empty() && !post.news;
        let (mut post, _) =
            self.wake.wait_timeout_while(self.lock(), wait, empty).unwrap_or_else(PoisonError::into_inner);
        let ended = post.ended;
        std::mem::replace(&mut *post, Post { ended, ..Post::default() })
    }

    pub(crate) fn end(&self) {
        let mut post = self.lock();
        post.ended = true;
        let dropped = std::mem::take(&mut post.mail);
        drop(post);
        drop(dropped);
    }

    /// Consistent after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
