//! The mailbox of a session's loop.
//!
//! Its size is limited by what the engine has asked for: an answer per commit under way, a result per handler that
//! runs, and a commit per handler that waits for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use millrace_claims::{CommitError, Input, RunId};
use millrace_model::StateCommit;
use millrace_shell::WorkQueue;

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
    mail: WorkQueue<Mail>,
    /// Another part of this process has appended events.
    news: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct MailBatch {
    pub(crate) mail: VecDeque<Mail>,
    pub(crate) news: bool,
}

impl Mailbox {
    /// Adds mail. After the end, mail is dropped, so a handler that waits for an answer learns that there will be none.
    pub(crate) fn push(&self, mail: Mail) {
        self.mail.push(mail);
    }

    pub(crate) fn push_all(&self, mail: impl Iterator<Item = Mail>) {
        self.mail.push_all(mail);
    }

    pub(crate) fn tell_news(&self) {
        self.news.store(true, Ordering::Relaxed);
        // The queue's lock orders the flag before the wake-up.
        self.mail.nudge();
    }

    /// Waits until there is something, at most `wait`, and takes it.
    pub(crate) fn take_all(&self, wait: Duration) -> MailBatch {
        let mail = self.mail.take_all(wait);
        MailBatch { mail, news: self.news.swap(false, Ordering::Relaxed) }
    }

    pub(crate) fn close(&self) {
        self.mail.end();
    }
}
