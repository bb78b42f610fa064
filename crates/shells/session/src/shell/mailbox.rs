//! The mailbox of a session's loop.
//!
//! Its size is limited by what the engine has asked for: an answer per commit under way, a result per handler that
//! runs, and a commit per handler that waits for it.

use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_claims::{CommitError, Input, RunId};
use millrace_model::StateCommit;

pub(crate) type Answer = Result<Option<StateCommit>, CommitError>;

#[derive(Debug)]
pub(crate) enum Mail {
    Input(Input),
    /// A handler's commit, and the channel on which the handler waits.
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
    /// Another part of this process has appended events.
    pub(crate) news: bool,
    ended: bool,
}

impl Mailbox {
    /// Adds mail. After the end, mail is dropped, so a handler that waits for an answer learns that there will be none.
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

    /// Waits until there is something, at most `wait`, and takes it.
    pub(crate) fn receive(&self, wait: Duration) -> Post {
        let empty = |post: &mut Post| post.mail.is_empty() && !post.news;
        let (mut post, _) =
            self.wake.wait_timeout_while(self.lock(), wait, empty).unwrap_or_else(PoisonError::into_inner);
        let ended = post.ended;
        std::mem::replace(&mut *post, Post { ended, ..Post::default() })
    }

    pub(crate) fn close(&self) {
        let mut post = self.lock();
        post.ended = true;
        let dropped = std::mem::take(&mut post.mail);
        drop(post);
        drop(dropped);
    }

    /// Locks the mailbox, which is consistent after every statement, so a poisoned mutex does no harm.
    fn lock(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
