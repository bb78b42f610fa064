//! The journal against answers of a stub: replica sets, lost answers, old versions, engines that never answer.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use millrace_journal::{Journal, JournalError, Placed};
use mongodb::bson::{Document, doc};
use support::stub::{StubServer, failure, is_hello, name_of, primary_of_set, standalone};
use support::{impatient, limit, place};

/// Long enough for a request on loopback, short enough to be waited for.
const SHORT: Duration = Duration::from_millis(700);
const PATIENT: Duration = Duration::from_secs(30);

/// Answers `hello` as a standalone server, and everything else by `answer`.
fn standalone_with(answer: impl Fn(&Document) -> Option<Document> + Send + Sync + 'static) -> StubServer {
    StubServer::start(move |command| if is_hello(command) { Some(standalone()) } else { answer(command) })
}

/// A replica set that accepts everything, and whose collections hold one document, or none.
fn replica_set(others: &'static [&'static str]) -> StubServer {
    // The stub must know its address before it can name itself as a member.
    let address = Arc::new(std::sync::OnceLock::new());
    let known = address.clone();
    let was_inserted = AtomicBool::new(false);
    let stub = StubServer::start(move |command| {
        let address = *known.wait();
        Some(match name_of(command) {
            _ if is_hello(command) => primary_of_set(address, others),
            "buildInfo" => doc! { "ok": 1, "version": "7.0.12" },
            "listCollections" => cursor("$cmd.listCollections", vec![]),
            "aggregate" => cursor("journal", vec![doc! { "storageStats": { "wiredTiger": {} } }]),
            "insert" if was_inserted.swap(true, Ordering::Relaxed) => {
                doc! { "ok": 1, "n": 0, "writeErrors": [{ "index": 0, "code": 11000, "errmsg": "E11000" }] }
            }
            "update" => doc! { "ok": 1, "n": 1, "nModified": 1 },
            "find" if is_find(command, "manifest") => cursor("manifest", vec![doc! { "_id": 1 }]),
            "find" => cursor("journal", vec![]),
            _ => doc! { "ok": 1, "n": 1 },
        })
    });
    address.set(stub.address).unwrap();
    stub
}

fn cursor(collection: &str, batch: Vec<Document>) -> Document {
    doc! { "ok": 1, "cursor": { "id": 0_i64, "ns": format!("millrace.{collection}"), "firstBatch": batch } }
}

#[test]
fn a_replica_set_replicates_and_empty_answers_are_made_certain() {
    let stub = replica_set(&["other1.example:27017", "other2.example:27017"]);
    let journal = impatient(stub.address, PATIENT);
    let fitness = journal.check().unwrap();
    assert!(fitness.is_replicated && fitness.remarks.is_empty(), "{fitness:?}");
    assert_eq!(fitness.engine, "MongoDB 7.0.12, replica set rs0 of 3");
    assert_eq!(journal.read(5, limit(10, 1000)).unwrap(), []);
    let concerns: Vec<String> =
        stub.seen("find").iter().filter(|find| is_find(find, "journal")).map(read_concern).collect();
    assert_eq!(concerns, ["majority", "linearizable"]);
    let manifest = stub.seen("find").into_iter().find(|find| is_find(find, "manifest")).unwrap();
    assert_eq!(read_concern(&manifest), "linearizable");
    assert!(manifest.contains_key("maxTimeMS"), "{manifest}");
}

fn is_find(command: &Document, collection: &str) -> bool {
    command.get_str("find").is_ok_and(|found| found == collection)
}

fn read_concern(find: &Document) -> String {
    find.get_document("readConcern").unwrap().get_str("level").unwrap().to_owned()
}

#[test]
fn every_write_asks_for_a_majority_of_journals_and_is_no_retry() {
    let stub = replica_set(&[]);
    let journal = impatient(stub.address, PATIENT);
    journal.check().unwrap();
    place(&journal, 1, b"x").unwrap();
    journal.set_manifest(b"x", None).unwrap();
    journal.put_part(&support::part("a/0"), b"x").unwrap();
    journal.delete_part(&support::part("a/0")).unwrap();
    for name in ["insert", "update", "delete", "create"] {
        let commands = stub.seen(name);
        assert!(!commands.is_empty(), "{name}");
        for command in commands {
            let concern = command.get_document("writeConcern").unwrap();
            assert_eq!(concern.get_str("w").ok(), Some("majority"), "{command}");
            assert_eq!(concern.get_bool("j").ok(), Some(true), "{command}");
            assert!(concern.get_i32("wtimeout").is_ok_and(|limit| limit == 22_500), "{command}");
            assert!(!command.contains_key("txnNumber"), "{command}");
        }
    }
}

#[test]
fn answers_that_leave_a_write_in_doubt_are_unknown_and_asked_once() {
    let doubtful = [
        doc! { "ok": 1, "n": 1, "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } },
        failure(10107, "not primary"),
        failure(11602, "operation was interrupted"),
        failure(91, "the server is in quiesce mode and will shut down"),
        doc! { "ok": 1, "n": 1, "writeConcernError": { "code": 91, "errmsg": "shutdown" } },
    ];
    for reply in doubtful {
        let sent = reply.clone();
        let stub = standalone_with(move |_| Some(sent.clone()));
        let journal = impatient(stub.address, PATIENT);
        let error = place(&journal, 1, b"x").unwrap_err();
        assert!(matches!(error, JournalError::Unknown(_)), "{reply}: {error:?}");
        assert!(error.to_string().contains("placing record 1"), "{error}");
        assert_eq!(stub.seen("insert").len(), 1, "{reply}");
    }
}

#[test]
fn missing_rights_are_refused_with_the_role_that_is_needed() {
    let stub = standalone_with(|_| Some(failure(13, "not authorized on millrace to execute command")));
    let journal = impatient(stub.address, PATIENT);
    let error = place(&journal, 1, b"x").unwrap_err();
    assert!(matches!(error, JournalError::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("readWrite"), "{error}");
}

#[test]
fn a_server_older_than_the_driver_speaks_with_is_unfit() {
    let stub = StubServer::start(|_| {
        let mut hello = standalone();
        hello.insert("maxWireVersion", 6);
        Some(hello)
    });
    let error = impatient(stub.address, PATIENT).check().unwrap_err();
    let JournalError::Unfit(text) = error else { panic!("{error:?}") };
    assert!(text.contains("4.4 or newer"), "{text}");
}

#[test]
fn an_old_version_is_unfit_and_nothing_is_written_there() {
    let stub = standalone_with(|_| Some(doc! { "ok": 1, "version": "4.2.24" }));
    let error = impatient(stub.address, PATIENT).check().unwrap_err();
    assert!(matches!(error, JournalError::Unfit(_)), "{error:?}");
    assert!(stub.seen("create").is_empty() && stub.seen("insert").is_empty());
}

#[test]
fn a_server_without_journal_is_unfit() {
    let text = "cannot use 'j' option when a host does not have journaling enabled";
    let stub = standalone_with(move |command| {
        Some(match name_of(command) {
            "buildInfo" => doc! { "ok": 1, "version": "5.0.1" },
            "create" => failure(2, text),
            _ => cursor("journal", vec![]),
        })
    });
    let JournalError::Unfit(said) = impatient(stub.address, PATIENT).check().unwrap_err() else { panic!() };
    assert!(said.contains(text), "{said}");
}

#[test]
fn an_engine_that_is_not_there_is_unknown() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let journal = impatient(address, SHORT);
    let error = journal.check().unwrap_err();
    assert!(matches!(error, JournalError::Unknown(_)), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(!error.to_string().contains("labels"), "{error}");
}

#[test]
fn an_engine_that_accepts_connections_and_never_answers_is_unknown() {
    let stub = StubServer::start(|_| None);
    let journal = impatient(stub.address, SHORT);
    assert!(matches!(journal.check(), Err(JournalError::Unknown(_))));
    assert!(matches!(place(&journal, 1, b"x"), Err(JournalError::Unknown(_))));
}

#[test]
fn a_connection_that_hangs_costs_one_request_and_not_the_next() {
    let inserts = AtomicU32::new(0);
    let stub = standalone_with(move |command| {
        let hangs = name_of(command) == "insert" && inserts.fetch_add(1, Ordering::Relaxed) == 0;
        (!hangs).then(|| doc! { "ok": 1, "n": 1 })
    });
    let journal = impatient(stub.address, SHORT);
    let error = place(&journal, 1, b"x").unwrap_err();
    assert!(error.to_string().contains("no answer within 700 ms"), "{error}");
    assert_eq!(place(&journal, 1, b"x").unwrap(), Placed::Yes);
}

#[test]
fn a_server_that_shuts_down_during_authentication_is_unknown_but_a_wrong_password_is_refused() {
    for (code, is_refused) in [(91, false), (11600, false), (18, true), (8000, true)] {
        let stub = standalone_with(move |_| Some(failure(code, "no")));
        let url = format!("mongodb://ann:hush@{}/millrace", stub.address);
        let settings = millrace_journal_mongo::MongoSettings::from_url(&url).unwrap();
        let error = millrace_journal_mongo::MongoJournal::new(settings).unwrap().check().unwrap_err();
        assert_eq!(matches!(error, JournalError::Refused(_)), is_refused, "{code}: {error:?}");
        assert_eq!(matches!(error, JournalError::Unknown(_)), !is_refused, "{code}: {error:?}");
    }
}
