//! Servers with settings of their own: those that must not hold a journal are refused, standbys are waited for, and
//! "replicated" is true.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use millrace_journal::{Journal, JournalError, Placed};
use millrace_journal_postgres::PostgresJournal;
use support::server::Server;
use support::*;

/// Changes a setting and waits until new connections have it.
fn set(schema: &Schema, name: &str, value: &str) {
    schema.query(&format!("ALTER SYSTEM SET {name} = '{value}'"));
    schema.query("SELECT pg_reload_conf()");
    while schema.query(&format!("SHOW {name}")) != [value] {
        std::thread::yield_now();
    }
}

#[test]
fn servers_that_would_lose_confirmed_records_are_refused() {
    let Some(server) = Server::start("") else { return };
    let schema = Schema::on(&server.url());
    let journal = schema.checked();
    place_up_to(&journal, 1, 1);
    for (name, expected) in [("fsync", "fsync is off"), ("full_page_writes", "full_page_writes is off")] {
        set(&schema, name, "off");
        assert_unfit(schema.journal().check(), expected);
        assert_unfit(journal.check(), expected);
        // Also a journal that was fit is not used any more, from its next connection on.
        assert_unfit(schema.journal().manifest(), expected);
        set(&schema, name, "on");
        journal.check().unwrap();
    }
    set(&schema, "default_transaction_read_only", "on");
    assert_unfit(schema.journal().check(), "default_transaction_read_only");
    assert_unknown(place(&schema.journal(), 2), "read-only");
    // An administrator's connection is read-only as well and has to say otherwise.
    schema.query(
        "SET default_transaction_read_only = off; SET transaction_read_only = off;
         ALTER ROLE bench SET default_transaction_read_only = off",
    );
    schema.journal().check().unwrap();
    assert_eq!(place(&schema.journal(), 2).unwrap(), Placed::Yes);
    set(&schema, "default_transaction_read_only", "off");
}

#[test]
fn the_settings_of_our_connections_are_our_own() {
    let Some(server) =
        Server::start("synchronous_commit = off\ndefault_transaction_isolation = serializable")
    else {
        return;
    };
    let schema = Schema::on(&server.url());
    schema.query(
        "ALTER ROLE bench SET search_path = 'nowhere';
         ALTER ROLE bench SET statement_timeout = 1; ALTER ROLE bench SET statement_timeout = 0",
    );
    let journal = schema.journal();
    let fitness = journal.check().unwrap();
    assert!(fitness.remarks[0].contains("synchronous_commit is off"), "{:?}", fitness.remarks);
    assert!(!fitness.is_replicated);
    place_up_to(&journal, 1, 1);
    // A function that the placing calls tells what the connection has set.
    schema.query(
        "CREATE TABLE {s}.seen (setting text, value text);
         CREATE FUNCTION {s}.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO {s}.seen SELECT name, setting FROM pg_settings; RETURN NULL;
         END $$;
         CREATE TRIGGER look AFTER UPDATE ON {s}.millrace_head EXECUTE FUNCTION {s}.look()",
    );
    place_up_to(&journal, 2, 2);
    let seen = |name: &str| {
        schema.query(&format!("SELECT value FROM {{s}}.seen WHERE setting = '{name}'"))[0].clone()
    };
    assert_eq!(seen("synchronous_commit"), "on");
    assert_eq!(seen("transaction_isolation"), "read committed");
    assert_eq!(seen("statement_timeout"), "10000");
    assert_eq!(seen("lock_timeout"), "5000");
    assert_eq!(seen("idle_in_transaction_session_timeout"), "10000");
    assert_eq!(seen("search_path"), "pg_catalog,pg_temp");
    assert_eq!(seen("enable_seqscan"), "off");
    assert_eq!(seen("application_name"), "millrace placing");
    // The server's file changes under an open connection: the connection keeps what it has.
    set(&schema, "synchronous_commit", "local");
    place_up_to(&journal, 3, 3);
    let last = schema.query("SELECT DISTINCT value FROM {s}.seen WHERE setting = 'synchronous_commit'");
    assert_eq!(last, ["on"]);
}

#[test]
fn a_standby_is_refused_at_the_start_and_waited_for_in_a_failover() {
    let Some(primary) = Server::start("") else { return };
    let schema = Schema::on(&primary.url());
    let standby = Server::standby_of(&primary, "one");
    set(&schema, "synchronous_standby_names", "one");
    let fitness = schema.journal().check().unwrap();
    assert!(fitness.is_replicated);
    let only_standby = Schema::on(&standby.url());
    assert_unfit(only_standby.journal().check(), "standby");

    let both = format!("127.0.0.1:{},127.0.0.1:{}", standby.port, primary.port);
    let journal = PostgresJournal::open(&schema.url_at(&both, "timeout_ms=3000")).unwrap();
    assert!(journal.check().unwrap().is_replicated);
    place_up_to(&journal, 1, 20);
    primary.run_down();
    // Neither the dead primary nor the standby takes records, and both may change.
    for _ in 0..2 {
        assert!(matches!(place(&journal, 21), Err(JournalError::Unknown(_))));
    }
    standby.promote();
    let text = loop {
        match place(&journal, 21) {
            Err(JournalError::Unknown(_)) => {}
            Err(JournalError::Refused(cause)) => break cause.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(text.contains("no longer waits for a synchronous standby"), "{text}");
    assert_eq!(numbers(&PostgresJournal::open(&schema.url_at(&both, "")).unwrap(), 1).len(), 20);
    assert!(!journal.check().unwrap().is_replicated, "the new primary has no standby");
    assert_eq!(place(&journal, 21).unwrap(), Placed::Yes, "nothing more is promised now");
}

#[test]
fn a_record_is_not_confirmed_once_the_server_stops_waiting_for_standbys() {
    let Some(primary) = Server::start("") else { return };
    let schema = Schema::on(&primary.url());
    let _standby = Server::standby_of(&primary, "one");
    set(&schema, "synchronous_standby_names", "one");
    let journal = schema.journal();
    assert!(journal.check().unwrap().is_replicated);
    place_up_to(&journal, 1, 3);
    // The connection stays as it is: only the settings of the server change.
    set(&schema, "synchronous_standby_names", "");
    // The connection may meet the reload a statement later.
    let mut n = 4;
    let refused = loop {
        match place(&journal, n) {
            Ok(Placed::Yes) => n += 1,
            other => break other,
        }
    };
    let Err(JournalError::Refused(cause)) = refused else { panic!("{refused:?}") };
    assert!(cause.to_string().contains("synchronous_standby_names"), "{cause}");
    assert_eq!(
        numbers(&schema.journal(), n),
        [n],
        "it is there, and its writer must not say on how many machines"
    );
    assert!(!journal.check().unwrap().is_replicated);
    place_up_to(&journal, n + 1, n + 2);
}

#[test]
fn a_record_that_no_standby_has_confirmed_is_not_confirmed() {
    let Some(primary) = Server::start("") else { return };
    let schema = Schema::on(&primary.url());
    let standby = Server::standby_of(&primary, "one");
    set(&schema, "synchronous_standby_names", "one");
    let journal = Arc::new(PostgresJournal::open(&schema.url_with("timeout_ms=2000")).unwrap());
    journal.check().unwrap();
    place_up_to(&journal, 1, 3);
    standby.run_down();
    // Nobody answers: the deadline ends the wait.
    assert_unknown(place(&journal, 4), "no answer from PostgreSQL within 2000 ms");
    // An administrator cancels the wait: PostgreSQL reports success with a warning, which must not become a "yes".
    let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' LIMIT 1";
    let cancel = |pid: &str| schema.query(&format!("SELECT pg_cancel_backend({pid})"));
    let left_over = schema.query(waiting);
    left_over.iter().for_each(|pid| drop(cancel(pid)));
    while !schema.query(waiting).is_empty() {
        std::thread::yield_now();
    }
    let patient = Arc::new(PostgresJournal::open(&schema.url_with("timeout_ms=600000")).unwrap());
    let shared = patient.clone();
    let placing = std::thread::spawn(move || place(&shared, 5));
    let pid = loop {
        if let [pid, ..] = &schema.query(waiting)[..] {
            break pid.clone();
        }
    };
    cancel(&pid);
    assert_unknown(placing.join().unwrap(), "synchronous standby");
    assert_eq!(numbers(&patient, 4), [4, 5], "the caller finds them and knows that they are its own");
    standby.run_up();
    assert_eq!(place(&patient, 6).unwrap(), Placed::Yes);
}

#[test]
fn a_restarted_server_is_found_again() {
    let Some(server) = Server::start("") else { return };
    let schema = Schema::on(&server.url());
    let journal = PostgresJournal::open(&schema.url_with("timeout_ms=2000")).unwrap();
    journal.check().unwrap();
    place_up_to(&journal, 1, 5);
    server.run_down();
    assert!(matches!(place(&journal, 6), Err(JournalError::Unknown(_))));
    assert_unknown(journal.check(), "Connection refused");
    server.run_up();
    assert_eq!(place(&journal, 6).unwrap(), Placed::Yes);
    let found = match journal.read(1, EVERYTHING) {
        Err(JournalError::Unknown(_)) => journal.read(1, EVERYTHING),
        other => other,
    };
    assert_eq!(found.unwrap().len(), 6);
}
