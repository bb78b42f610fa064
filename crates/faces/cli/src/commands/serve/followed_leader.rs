//! Logs whom a server follows, once for every change.

use millrace_stores::JournalStatus;

/// The leader that was logged last.
#[derive(Debug, Default)]
pub(super) struct FollowedLeader {
    told: Option<(u64, Option<String>)>,
}

impl FollowedLeader {
    /// `own_url` is the address that this server advertises.
    pub(super) fn tell(&mut self, status: &JournalStatus, own_url: &str) {
        let leader = (status.term, status.leader_url.clone());
        if !status.is_led || self.told.as_ref() == Some(&leader) {
            return;
        }
        let term = status.term;
        match status.leader_url.as_deref() {
            Some(url) if url == own_url => tracing::warn!(
                term,
                "this server follows one that advertises the same address, {url}: clients that are sent there may come \
                 back here. Give every server an --advertise of its own"
            ),
            Some(url) => tracing::info!(term, "this server follows {url}"),
            None => tracing::info!(term, "this server follows a leader that tells no address"),
        }
        self.told = Some(leader);
    }
}
