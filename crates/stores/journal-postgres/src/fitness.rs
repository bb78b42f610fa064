//! Whether a PostgreSQL server keeps the promises that a journal needs, decided from its settings alone.

use millrace_journal::{Fitness, HeadGuard, JournalError};

/// The first version with `gen_random_uuid`, and the oldest one that the tests of this crate could still be run on.
const VERSION_MIN: i32 = 130_000;

/// The settings that a connection found when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    /// Such as `150018` for 15.18.
    pub(crate) version_number: i32,
    pub(crate) version: String,
    /// `None` if the server does not know the setting, as with databases that only speak PostgreSQL's protocol.
    pub(crate) fsync: Option<String>,
    pub(crate) full_page_writes: Option<String>,
    /// As the server, the database or the role has it, before the connection changed it.
    pub(crate) synchronous_commit: Option<String>,
    pub(crate) synchronous_standby_names: Option<String>,
    pub(crate) is_in_recovery: bool,
    pub(crate) is_read_only: bool,
    pub(crate) encoding: String,
    pub(crate) is_encrypted: bool,
    /// Whether the connection leaves this machine.
    pub(crate) is_remote: bool,
    /// Whether the server's certificate was checked, name included.
    pub(crate) is_verified: bool,
}

impl ServerSettings {
    /// Returns why the server accepts no writes. A failover changes that, so a journal that was usable waits for it.
    pub(crate) fn why_no_writes(&self) -> Option<&'static str> {
        if self.is_in_recovery {
            return Some(
                "this PostgreSQL server is a standby (it is in recovery): give the address of the primary, or several \
                 hosts separated by commas",
            );
        }
        self.is_read_only.then_some(
            "transactions are read-only here: set default_transaction_read_only to off for the role, the database or \
             the server",
        )
    }

    pub(crate) fn is_replicated(&self) -> bool {
        let waits = matches!(self.commit_level(), "on" | "remote_apply");
        waits && self.synchronous_standby_names.as_deref().is_some_and(|names| !names.trim().is_empty())
    }

    /// The level of `synchronous_commit` that our connections use: the server's own, but never `off`.
    fn commit_level(&self) -> &str {
        match self.synchronous_commit.as_deref() {
            None | Some("off") => "on",
            Some(level) => level,
        }
    }
}

/// Decides whether a server may hold a journal, and names what it promises.
pub(crate) fn fitness(found: &ServerSettings) -> Result<Fitness, JournalError> {
    if let Some(reason) = found.why_no_writes() {
        return Err(JournalError::Unfit(reason.to_owned()));
    }
    if found.version_number < VERSION_MIN {
        let version = &found.version;
        return Err(JournalError::Unfit(format!("this is PostgreSQL {version}: 13 or newer is needed")));
    }
    must_be_on("fsync", found.fsync.as_deref(), "a confirmed record would be lost with the power")?;
    must_be_on("full_page_writes", found.full_page_writes.as_deref(), "a page torn by a crash stays torn")?;
    let mut remarks = Vec::new();
    if found.synchronous_commit.as_deref() == Some("off") {
        remarks.push(
            "synchronous_commit is off on the server: the journal's connections set it to on, because a confirmed \
             record must be on disk"
                .to_owned(),
        );
    }
    if found.encoding != "UTF8" {
        let encoding = &found.encoding;
        remarks.push(format!(
            "the database has the encoding {encoding}: events that other clients publish are not limited by it, rows \
             of the outbox are"
        ));
    }
    if found.is_remote && !found.is_encrypted {
        remarks.push(
            "the connection is not encrypted: use sslmode=verify-full if the network is not trusted"
                .to_owned(),
        );
    } else if found.is_remote && !found.is_verified {
        remarks.push(
            "the connection is encrypted, but the server's certificate and name are not both checked: use \
             sslmode=verify-full"
                .to_owned(),
        );
    }
    Ok(Fitness {
        engine: format!("PostgreSQL {}", found.version),
        is_replicated: found.is_replicated(),
        head_guard: HeadGuard::Engine,
        remarks,
    })
}

fn must_be_on(name: &str, value: Option<&str>, otherwise: &str) -> Result<(), JournalError> {
    let text = match value {
        Some("on") => return Ok(()),
        Some(value) => {
            format!("{name} is {value}: {otherwise}. Set it to on in postgresql.conf and reload the server")
        }
        None => format!(
            "the server does not know the setting {name}, so it is not PostgreSQL: only PostgreSQL itself can be used"
        ),
    };
    Err(JournalError::Unfit(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> ServerSettings {
        ServerSettings {
            version_number: 150_018,
            version: "15.18".to_owned(),
            fsync: Some("on".to_owned()),
            full_page_writes: Some("on".to_owned()),
            synchronous_commit: Some("on".to_owned()),
            synchronous_standby_names: Some(String::new()),
            is_in_recovery: false,
            is_read_only: false,
            encoding: "UTF8".to_owned(),
            is_encrypted: false,
            is_remote: false,
            is_verified: false,
        }
    }

    #[test]
    fn a_sound_server_is_fit_and_says_what_it_is() {
        let fitness = fitness(&sound()).unwrap();
        assert_eq!(fitness.engine, "PostgreSQL 15.18");
        assert_eq!((fitness.is_replicated, fitness.head_guard), (false, HeadGuard::Engine));
        assert_eq!(fitness.remarks, [""; 0]);
    }

    #[test]
    fn every_setting_that_breaks_a_promise_is_refused_with_the_remedy() {
        let off = Some("off".to_owned());
        for (found, expected) in [
            (ServerSettings { fsync: off.clone(), ..sound() }, "fsync is off"),
            (ServerSettings { fsync: None, ..sound() }, "not PostgreSQL"),
            (ServerSettings { full_page_writes: off.clone(), ..sound() }, "full_page_writes is off"),
            (ServerSettings { is_in_recovery: true, is_read_only: true, ..sound() }, "standby"),
            (ServerSettings { is_read_only: true, ..sound() }, "default_transaction_read_only"),
            (ServerSettings { version_number: 120_022, version: "12.22".into(), ..sound() }, "13 or newer"),
        ] {
            let Err(JournalError::Unfit(text)) = fitness(&found) else {
                panic!("must be unfit: {found:?}");
            };
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn replicated_needs_both_a_standby_and_a_commit_that_waits_for_it() {
        for (names, commit, expected) in [
            ("", "on", false),
            ("  ", "on", false),
            ("*", "on", true),
            ("ANY 1 (a, b)", "remote_apply", true),
            ("a", "remote_write", false),
            ("a", "local", false),
            ("a", "off", true),
        ] {
            let found = ServerSettings {
                synchronous_standby_names: Some(names.to_owned()),
                synchronous_commit: Some(commit.to_owned()),
                ..sound()
            };
            assert_eq!(fitness(&found).unwrap().is_replicated, expected, "{names:?} {commit}");
        }
    }

    #[test]
    fn an_operator_is_told_what_the_connection_changed_and_what_it_lacks() {
        let remarks = |found: &ServerSettings| fitness(found).unwrap().remarks.join("; ");
        let off = ServerSettings { synchronous_commit: Some("off".to_owned()), ..sound() };
        assert!(remarks(&off).contains("synchronous_commit is off"));
        assert!(remarks(&ServerSettings { encoding: "LATIN1".to_owned(), ..sound() }).contains("LATIN1"));
        assert!(remarks(&ServerSettings { is_remote: true, ..sound() }).contains("not encrypted"));
        let encrypted = ServerSettings { is_remote: true, is_encrypted: true, ..sound() };
        assert!(remarks(&encrypted).contains("not both checked"));
        assert_eq!(remarks(&ServerSettings { is_verified: true, ..encrypted }), "");
    }
}
