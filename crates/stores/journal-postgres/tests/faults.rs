//! Faults between the journal and the server: lost requests, lost answers, silence, killed connections, wrong
//! passwords. No error shows a secret.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use millrace_journal::{Journal, JournalError, Placed};
use millrace_journal_postgres::PostgresJournal;
use support::proxy::{Proxy, Weather};
use support::*;

fn kill_connections(schema: &Schema, purpose: &str) -> i64 {
    let tables = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name =";
    schema.count(&format!("{tables} '{purpose} {}'", schema.name))
}

/// A journal whose connections can be told from those of other tests.
fn named(schema: &Schema, name: &str) -> PostgresJournal {
    let journal =
        PostgresJournal::open(&schema.url_with(&format!("application_name={name}%20{}", schema.name)))
            .unwrap();
    journal.check().unwrap();
    journal
}

#[test]
fn a_lost_request_is_unknown_and_the_record_is_not_there() {
    let Some(schema) = Schema::new() else { return };
    let direct = schema.checked();
    let proxy = Proxy::start();
    let journal =
        PostgresJournal::open(&schema.url_at(&proxy.address.to_string(), "sslmode=disable")).unwrap();
    place_up_to(&journal, 1, 3);
    proxy.set(Weather::LosesRequests);
    assert_unknown(place(&journal, 4), "placing a record");
    proxy.set(Weather::Fine);
    assert_eq!(numbers(&direct, 4), [0; 0]);
    assert_eq!(place(&journal, 4).unwrap(), Placed::Yes);
}

#[test]
fn a_lost_answer_is_unknown_and_the_record_is_found_by_reading() {
    let Some(schema) = Schema::new() else { return };
    let direct = schema.checked();
    schema.query("SELECT {s}.millrace_publish('orders', '1')");
    let settles = [direct.outbox(None, 1).unwrap()[0].id];
    let proxy = Proxy::start();
    let journal =
        PostgresJournal::open(&schema.url_at(&proxy.address.to_string(), "sslmode=disable")).unwrap();
    place_up_to(&journal, 1, 3);
    // Prepares the statement, so that the answer which is lost is that of the placing.
    assert_eq!(place_settling(&journal, 3, &settles).unwrap(), Placed::Taken);
    proxy.set(Weather::LosesAnswers);
    assert_unknown(place_settling(&journal, 4, &settles), "placing a record");
    proxy.set(Weather::Fine);
    assert_eq!(numbers(&journal, 4), [4]);
    assert_eq!(journal.outbox(None, 1).unwrap(), []);
    assert_eq!(place(&journal, 4).unwrap(), Placed::Taken);
    assert_eq!(place(&journal, 5).unwrap(), Placed::Yes);
}

#[test]
fn silence_ends_with_the_deadline_and_the_next_request_connects_again() {
    let Some(schema) = Schema::new() else { return };
    schema.checked();
    let proxy = Proxy::start();
    let url = schema.url_at(&proxy.address.to_string(), "sslmode=disable&timeout_ms=700");
    let journal = PostgresJournal::open(&url).unwrap();
    place_up_to(&journal, 1, 3);
    journal.manifest().unwrap();
    journal.outbox(None, 1).unwrap();
    proxy.set(Weather::BlackHole);
    assert_unknown(place(&journal, 4), "placing a record: no answer from PostgreSQL within 700 ms");
    assert_unknown(journal.read(1, EVERYTHING), "no answer");
    assert_unknown(journal.manifest(), "no answer");
    assert_unknown(journal.check(), "no answer");
    proxy.set(Weather::Fine);
    assert_eq!(place(&journal, 4).unwrap(), Placed::Yes);
    assert_eq!(numbers(&journal, 1), [1, 2, 3, 4]);
    journal.manifest().unwrap();
}

#[test]
fn a_caller_does_not_wait_for_ever_behind_another_one() {
    let Some(schema) = Schema::new() else { return };
    let journal = PostgresJournal::open(&schema.url_with("timeout_ms=700")).unwrap();
    journal.check().unwrap();
    let journal = Arc::new(journal);
    let mut blocker = schema.client();
    let mut transaction = blocker.transaction().unwrap();
    let lock = format!("LOCK TABLE {}.millrace_head IN ACCESS EXCLUSIVE MODE", schema.name);
    transaction.batch_execute(&lock).unwrap();
    let shared = journal.clone();
    for outcome in together(6, move |_| place(&shared, 1)) {
        assert_unknown(outcome, "placing a record");
    }
    transaction.rollback().unwrap();
    assert_eq!(place(&journal, 1).unwrap(), Placed::Yes);
}

#[test]
fn killed_connections_are_replaced() {
    let Some(schema) = Schema::new() else { return };
    let journal = named(&schema, "victim");
    place_up_to(&journal, 1, 2);
    journal.outbox(None, 1).unwrap();
    assert_eq!(kill_connections(&schema, "victim"), 3);
    // The outcome of a request on a dead connection is not known; nothing is lost by asking again.
    let again = |attempt: &dyn Fn() -> Result<(), JournalError>| match attempt() {
        Ok(()) => {}
        Err(JournalError::Unknown(_)) => attempt().unwrap(),
        Err(other) => panic!("{other:?}"),
    };
    again(&|| place(&journal, 3).map(|placed| assert_eq!(placed, Placed::Yes)));
    again(&|| journal.outbox(None, 1).map(drop));
    again(&|| journal.manifest().map(drop));
    assert_eq!(numbers(&journal, 1), [1, 2, 3]);
}

#[test]
fn connections_killed_in_the_middle_lose_nothing_and_store_nothing_twice() {
    let Some(schema) = Schema::new() else { return };
    let schema = Arc::new(schema);
    let journal = named(&schema, "target");
    let (kill, kills) = std::sync::mpsc::sync_channel::<()>(0);
    let shared = schema.clone();
    let killer =
        std::thread::spawn(move || kills.iter().map(|()| kill_connections(&shared, "target")).sum::<i64>());
    let mut unknown = 0;
    for n in 1..=150 {
        // Killed while the record is on its way, sooner or later.
        kill.send(()).unwrap();
        loop {
            match place(&journal, n) {
                Ok(Placed::Yes) => break,
                Err(JournalError::Unknown(_)) => {}
                other => panic!("{other:?}"),
            }
            unknown += 1;
            let found = loop {
                match journal.read(n, EVERYTHING) {
                    Ok(found) => break found,
                    Err(JournalError::Unknown(_)) => {}
                    Err(other) => panic!("{other:?}"),
                }
            };
            if found.first().is_some_and(|(found, _)| *found == n) {
                break;
            }
        }
    }
    drop(kill);
    println!("{} connections killed, {unknown} outcomes unknown", killer.join().unwrap());
    assert_eq!(numbers(&schema.checked(), 1), (1..=150).collect::<Vec<_>>());
}

#[test]
fn a_journal_can_be_used_and_dropped_inside_a_tokio_runtime() {
    let Some(schema) = Schema::new() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let journal = schema.checked();
        place_up_to(&journal, 1, 3);
        assert_eq!(numbers(&journal, 1), [1, 2, 3]);
    });
}

#[test]
fn a_server_that_is_not_there_is_unknown_and_a_database_that_is_not_there_is_refused() {
    let Some(schema) = Schema::new() else { return };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let journal = PostgresJournal::open(&format!("postgres://ann:hunter2@{free}/shop")).unwrap();
    assert_unknown(journal.check(), "onnect");
    let journal = PostgresJournal::open(&schema.url_with("dbname=no_such_database")).unwrap();
    assert_refused(journal.check(), "Create the database");
    // A list of hosts is tried in turn.
    let here = schema.url_with("");
    let (user, rest) = here.split_once('@').unwrap();
    let journal = PostgresJournal::open(&format!("{user}@{free},{rest}")).unwrap();
    journal.check().unwrap();
    place_up_to(&journal, 1, 1);
}

#[test]
fn secrets_are_in_no_text() {
    let Some(schema) = Schema::new() else { return };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rest = schema.url_with("");
    let rest = rest.split_once('@').unwrap().1;
    for url in [
        format!("postgres://ann:hunter2@{free}/shop"),
        format!("postgres://no_such_role:hunter2@{rest}"),
        format!("postgres://no_such_role@{rest}&password=hunter2"),
        format!("postgres://ann:hunter2@{rest}&sslmode=verify-full"),
        "postgres://ann:hunter2@[::1]:port/shop".to_owned(),
        "postgres://ann:hun/hunter2@host/shop".to_owned(),
        "postgres://ann:hun@hunter2@host/shop".to_owned(),
        "postgres://ann:hun%ZZ@host/shop?hunter=2".to_owned(),
    ] {
        let texts = match PostgresJournal::open(&url) {
            Err(error) => format!("{error} {error:?}"),
            Ok(journal) => {
                let error = journal.check().unwrap_err();
                format!("{error} {error:?} {journal:?}")
            }
        };
        assert!(!texts.contains("hunter2") && !texts.contains("hun%"), "{texts}");
        println!("{texts}");
    }
}
