//! Judges errors of the driver and the server: should the caller look and try again, or give up and tell people?
//!
//! Texts hold the server's message, its SQLSTATE and our advice. Details are left out, because PostgreSQL quotes the
//! contents of rows there.

use std::error::Error as _;

use millrace_journal::JournalError;
use tokio_postgres::Error;

/// Names the statements that an administrator needs.
pub(crate) const RIGHTS_PAGE: &str = "docs/formats/journal-postgres.md";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    TryAgain,
    /// With advice.
    GiveUp(&'static str),
}

/// Judges an error that happened while `doing` something, such as "placing record 7".
pub(crate) fn judged(doing: &str, error: &Error) -> JournalError {
    if let Some(reported) = error.as_db_error() {
        let code = reported.code().code();
        let text = format!("{doing}: {} (SQLSTATE {code})", reported.message());
        return match verdict(code, reported.message()) {
            Verdict::TryAgain => unknown(text),
            Verdict::GiveUp(advice) => refused(format!("{text}. {advice}")),
        };
    }
    let mut text = format!("{doing}: {error}");
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    match advice_on(error, &text) {
        Some(advice) => refused(format!("{text}. {advice}")),
        None => unknown(text),
    }
}

pub(crate) fn unknown(text: String) -> JournalError {
    JournalError::Unknown(text.into())
}

pub(crate) fn refused(text: String) -> JournalError {
    JournalError::Refused(text.into())
}

/// Judges an error that the server reported.
fn verdict(code: &str, message: &str) -> Verdict {
    match code {
        "08P01" if message.contains("startup parameter") => Verdict::GiveUp(POOLER),
        // The server does not find what the same connection has prepared, or finds what it has not.
        "26000" | "42P05" => Verdict::GiveUp(POOLER),
        "28000" | "28P01" => Verdict::GiveUp(
            "Check the user and the password (in the URL, PGPASSWORD or a passfile) and the server's pg_hba.conf",
        ),
        // A setting that we send is not known.
        "42704" => Verdict::GiveUp("PostgreSQL 13 or newer is needed"),
        "3D000" | "57P04" => Verdict::GiveUp("Create the database, or name another one in the URL"),
        "42501" => Verdict::GiveUp(
            "Grant the role the rights that docs/formats/journal-postgres.md lists, or let an administrator make the schema",
        ),
        "3F000" | "42P01" | "42703" | "42883" => Verdict::GiveUp(
            "The journal's schema is missing or was changed: name the right one with schema=…, or restore it from a backup",
        ),
        // Another server made the same objects at the same time.
        "42P04" | "42P06" | "42P07" | "42710" | "42723" => Verdict::TryAgain,
        "23505" => Verdict::GiveUp(
            "The head and the journal do not agree: somebody changed the tables, or restored them in part. Restore both from one backup",
        ),
        "XX001" | "XX002" => Verdict::GiveUp("The server reports damaged data: restore it from a backup"),
        code => match code.get(..2).unwrap_or_default() {
            "22" | "23" | "42" | "0A" | "54" => Verdict::GiveUp(
                "This should not happen with tables that nobody changed: compare them with docs/formats/journal-postgres.md",
            ),
            // Among them 08 (connection), 25 (read-only: a failover may resolve that), 40 (deadlock), 53 (disk full, too
            // many connections), 55 (locks), 57 (cancelled, shutting down), 58 and XX (the system below).
            _ => Verdict::TryAgain,
        },
    }
}

pub(crate) const POOLER: &str = "This looks like a connection pooler, which loses settings and prepared statements: connect to PostgreSQL directly";

/// Returns what people have to do about an error of the driver that trying again will not mend.
fn advice_on(error: &Error, text: &str) -> Option<&'static str> {
    if certificate_error(error) {
        return Some("Check the server's certificate, the host name in the URL, sslrootcert and sslmode");
    }
    // The driver has no other way to tell these.
    [
        ("server does not support TLS", "Switch TLS on in the server, or use another sslmode"),
        ("password missing", "Put the password into the URL, PGPASSWORD or a passfile"),
        ("unsupported authentication method", "Let the server's pg_hba.conf ask for scram-sha-256"),
        ("invalid configuration", "Correct the URL"),
        ("error serializing parameter", "The journal's tables differ from those that this version makes"),
        ("error deserializing column", "The journal's tables differ from those that this version makes"),
    ]
    .into_iter()
    .find(|(sign, _)| text.contains(sign))
    .map(|(_, advice)| advice)
}

fn certificate_error(error: &Error) -> bool {
    let mut next = error.source();
    while let Some(source) = next {
        // An I/O error hides the error inside from `source`.
        let inner = source.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let tls = match inner {
            Some(inner) => inner.downcast_ref::<rustls::Error>(),
            None => source.downcast_ref::<rustls::Error>(),
        };
        if matches!(tls, Some(rustls::Error::InvalidCertificate(_))) {
            return true;
        }
        next = source.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(codes: &[&str], is_final: bool) {
        for code in codes {
            let verdict = verdict(code, "");
            assert_eq!(matches!(verdict, Verdict::GiveUp(_)), is_final, "{code}: {verdict:?}");
        }
    }

    #[test]
    fn errors_that_pass_are_tried_again() {
        check(&["08000", "08003", "08006", "08P01"], false);
        check(&["25006", "25P02", "25P03", "40001", "40P01"], false);
        check(&["53000", "53100", "53200", "53300", "53400", "55P03"], false);
        check(&["57014", "57P01", "57P02", "57P03", "57P05", "58030", "XX000"], false);
        check(&["42P06", "42P07", "42710", "42723", "99999", ""], false);
    }

    #[test]
    fn errors_that_stay_are_refused() {
        check(&["28000", "28P01", "3D000", "3F000", "42501", "42P01", "42703", "42883", "57P04"], true);
        check(
            &[
                "22021", "22P02", "23505", "23514", "42601", "42704", "0A000", "54000", "26000", "42P05",
                "XX001",
            ],
            true,
        );
    }

    #[test]
    fn a_pooler_is_recognised_by_its_own_words() {
        let text = "unsupported startup parameter in options: search_path";
        assert_eq!(verdict("08P01", text), Verdict::GiveUp(POOLER));
    }
}
