//! The limit of file descriptors. Every connection takes one, and the usual limit of 1,024 is less than the settings
//! allow.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::settings::Config;

/// Descriptors for the log, the store's files and locks, timers of the runtime, child processes of capabilities.
const OTHER_DESCRIPTORS: u64 = 64;

/// Raises the soft limit to the hard limit, and warns if that is still less than all connections together may take.
pub(super) fn raise_limit(config: &Config) {
    let promised =
        config.server.sockets_max() as u64 + config.store_options.readers_max as u64 + OTHER_DESCRIPTORS;
    if let Some(available) = raise_to_hard().filter(|available| *available < promised) {
        tracing::warn!(
            "the settings allow connections for {promised} file descriptors, and this process may open {available}: \
             raise its limit (ulimit -Hn, LimitNOFILE=), or lower connections-max, http-connections-max and \
             os-connections-max"
        );
    }
}

/// Raises the soft limit to the hard limit. Returns the limit that now holds, or `None` if there is no limit.
pub(super) fn raise_to_hard() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    let is_below = match (limit.current, limit.maximum) {
        (Some(soft), Some(hard)) => soft < hard,
        (soft, None) => soft.is_some(),
        (None, Some(_)) => false,
    };
    if is_below {
        let (before, hard) = (limit.current, limit.maximum);
        limit.current = hard;
        match setrlimit(Resource::Nofile, limit) {
            Ok(()) => tracing::debug!(?before, ?hard, "the limit of file descriptors was raised"),
            Err(error) => {
                limit.current = before;
                tracing::warn!(%error, "the limit of file descriptors could not be raised to {hard:?}");
            }
        }
    }
    limit.current
}
