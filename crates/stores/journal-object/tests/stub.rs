//! Servers that break a promise, each in one way: a check refuses them, and requests return the right error.

#![allow(clippy::unwrap_used)]

mod support;

use millrace_journal::{
    HeadGuard, Journal, JournalError, JournalReadLimit, ManifestVersion, PartName, Placed,
};
use millrace_journal_object::{ObjectJournal, ObjectUrl};
use support::stub::{BUCKET, DATE_MS, Fault, Stub};
use support::{NO_LIMIT, SECRET, environment, open, open_at, place, read_all};

fn stub(fault: Fault) -> (Stub, ObjectJournal) {
    let stub = Stub::start(fault);
    let journal = open_at(&stub.http.endpoint, BUCKET, "store");
    (stub, journal)
}

#[track_caller]
fn unfit(fault: Fault, words: &str) {
    let (_stub, journal) = stub(fault);
    match journal.check() {
        Err(JournalError::Unfit(text)) => assert!(text.contains(words), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, JournalError>, words: &str) {
    match outcome {
        Err(JournalError::Refused(cause)) => assert!(cause.text().contains(words), "{cause}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn unknown<T: std::fmt::Debug>(outcome: Result<T, JournalError>, words: &str) {
    match outcome {
        Err(JournalError::Unknown(cause)) => assert!(cause.text().contains(words), "{cause}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_keeps_its_promises_is_fit_and_nothing_is_left_in_the_bucket() {
    let (stub, journal) = stub(Fault::None);
    let fitness = journal.check().unwrap();
    assert_eq!(fitness.engine, "object storage s3://bucket/store at 127.0.0.1 (Stub/1)");
    assert_eq!((fitness.is_replicated, fitness.head_guard), (false, HeadGuard::Manifest));
    assert_eq!(fitness.remarks, Vec::<String>::new());
    assert_eq!(stub.keys(), Vec::<String>::new());
    let races = |requests: &[String]| {
        requests.iter().filter(|request| request.contains("PUT") && request.contains("-race-")).count()
    };
    assert_eq!(races(&stub.take_requests()), 32, "a new store: four races of eight");
    assert!(journal.set_manifest(b"manifest", None).unwrap());
    journal.check().unwrap();
    assert_eq!(races(&stub.take_requests()), 0, "the store is there already");
    assert_eq!(stub.keys(), ["store/manifest"]);
}

#[test]
fn listings_that_lag_are_told_and_no_reason_to_refuse() {
    let (stub, journal) = stub(Fault::ListsNothing);
    let remarks = journal.check().unwrap().remarks;
    assert!(remarks.len() == 1 && remarks[0].contains("not listed"), "{remarks:?}");
    assert_eq!(stub.keys(), Vec::<String>::new());
}

#[test]
fn replication_is_what_the_url_says_where_the_host_is_not_known() {
    let stub = Stub::start(Fault::None);
    let url = |replicated| {
        format!("s3://{BUCKET}/store?endpoint={}&allow_http=true&replicated={replicated}", stub.http.endpoint)
    };
    assert!(open(&url(true)).check().unwrap().is_replicated);
    assert!(!open(&url(false)).check().unwrap().is_replicated);
}

#[test]
fn a_server_that_ignores_if_none_match_is_unfit() {
    unfit(Fault::IgnoresIfNoneMatch, "ignores If-None-Match");
}

#[test]
fn a_server_that_ignores_if_match_is_unfit() {
    unfit(Fault::IgnoresIfMatch, "ignores If-Match");
}

#[test]
fn a_server_whose_conditions_race_is_unfit() {
    unfit(Fault::Races, "8 of 8 creators");
}

#[test]
fn a_server_without_read_after_write_is_unfit() {
    unfit(Fault::LosesReadAfterWrite, "read-after-write");
}

#[test]
fn a_server_that_writes_what_it_refuses_is_unfit() {
    unfit(Fault::WritesWhatItRefuses, "changed the object all the same");
}

#[test]
fn a_server_without_conditions_is_unfit() {
    unfit(Fault::NotImplemented, "501 NotImplemented");
}

#[test]
fn a_server_without_entity_tags_is_unfit() {
    unfit(Fault::NoEntityTags, "the answer cannot be read");
}

#[test]
fn a_busy_server_may_answer_later() {
    let (_stub, journal) = stub(Fault::SlowDown);
    unknown(journal.check(), "503 SlowDown");
    unknown(place(&journal, 1, b"record"), "503 SlowDown");
    unknown(journal.read(1, NO_LIMIT), "503 SlowDown");
    unknown(journal.manifest(), "503 SlowDown");
    unknown(journal.set_manifest(b"new", None), "503 SlowDown");
    unknown(journal.parts(), "503 SlowDown");
    unknown(journal.delete_below(5), "503 SlowDown");
}

#[test]
fn missing_rights_are_named() {
    let (_stub, journal) = stub(Fault::Denied);
    refused(journal.check(), "s3:ListBucket");
    refused(place(&journal, 1, b"record"), "s3:PutObject");
    refused(journal.read(1, NO_LIMIT), "s3:GetObject");
    refused(journal.parts(), "s3:ListBucket");
    refused(journal.delete_part(&PartName("1-a/0".into())), "s3:DeleteObject");
    let (_stub, journal) = stub(Fault::DeniesDeleting);
    refused(journal.check(), "s3:DeleteObject");
    let (_stub, journal) = stub(Fault::DeniesListing);
    refused(journal.check(), "s3:ListBucket");
}

#[test]
fn a_missing_bucket_is_refused_and_not_taken_for_an_empty_one() {
    let (_stub, journal) = stub(Fault::NoBucket);
    refused(journal.check(), "create the bucket first");
    refused(place(&journal, 1, b"record"), "NoSuchBucket");
    refused(journal.read(1, NO_LIMIT), "NoSuchBucket");
    refused(journal.manifest(), "NoSuchBucket");
    refused(journal.set_manifest(b"new", Some(&ManifestVersion("\"1\"".into()))), "NoSuchBucket");
    refused(journal.parts(), "NoSuchBucket");
    refused(journal.delete_part(&PartName("1-a/0".into())), "NoSuchBucket");
    refused(journal.delete_below(7), "NoSuchBucket");
}

#[test]
fn a_bucket_in_another_region_is_refused_and_not_followed() {
    let (_stub, journal) = stub(Fault::OtherRegion);
    refused(journal.check(), "?region=");
    refused(place(&journal, 1, b"record"), "?region=");
}

#[test]
fn a_server_that_hangs_is_given_up_after_the_deadline() {
    let stub = Stub::start(Fault::Hangs);
    let url = format!("s3://{BUCKET}/store?endpoint={}&allow_http=true&timeout_ms=150", stub.http.endpoint);
    let journal = open(&url);
    unknown(journal.check(), "no answer within 150 ms");
    unknown(place(&journal, 1, b"record"), "no answer within 150 ms");
    unknown(journal.read(1, NO_LIMIT), "no answer within 150 ms");
    unknown(journal.delete_below(5), "no answer within 150 ms");
}

#[test]
fn a_server_that_is_not_there_may_come() {
    let endpoint = Stub::start(Fault::None).http.endpoint.clone();
    let journal = open_at(&endpoint, BUCKET, "store");
    unknown(journal.check(), "no connection: ");
    unknown(place(&journal, 1, b"record"), "no connection: ");
}

#[test]
fn a_lost_answer_is_unknown_and_the_record_may_be_there() {
    let (_stub, journal) = stub(Fault::LosesAnswers);
    unknown(place(&journal, 1, b"record"), "the connection broke");
    assert_eq!(read_all(&journal, 1).len(), 1, "this time it is");
    assert_eq!(place(&journal, 1, b"record").unwrap(), Placed::Taken);
}

#[test]
fn a_conflict_with_another_request_is_unknown_and_not_taken() {
    let (_stub, journal) = stub(Fault::Conflict);
    unknown(place(&journal, 1, b"record"), "409 ConditionalRequestConflict");
    unknown(journal.check(), "409 ConditionalRequestConflict");
}

#[test]
fn a_body_that_ends_too_early_is_unknown() {
    let (_stub, journal) = stub(Fault::HalfBodies);
    assert_eq!(place(&journal, 1, &[7; 5_000]).unwrap(), Placed::Yes);
    unknown(journal.read(1, NO_LIMIT), "the connection broke");
    unknown(journal.check(), "the connection broke");
}

#[test]
fn an_idle_read_is_one_get_and_waves_grow_to_sixteen() {
    let (stub, journal) = stub(Fault::None);
    assert!(read_all(&journal, 1).is_empty());
    let get = "GET store/journal/00000000000000000001";
    assert_eq!(
        stub.take_requests(),
        [get, "GET "],
        "the first time records could have been deleted: a listing"
    );
    assert!(read_all(&journal, 1).is_empty());
    assert_eq!(stub.take_requests(), [get]);
    for n in 1..=40 {
        place(&journal, n, format!("record {n}").as_bytes()).unwrap();
    }
    stub.take_requests();
    let read = read_all(&journal, 1);
    assert_eq!(read.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
    assert_eq!(read[39].1, "record 40");
    assert_eq!(stub.take_requests().len(), 1 + 2 + 4 + 8 + 16 + 16, "47 gets for 40 records");
    let two = JournalReadLimit { records_max: 2, bytes_max: usize::MAX };
    assert_eq!(journal.read(38, two).unwrap().iter().map(|(n, _)| *n).collect::<Vec<_>>(), [38, 39]);
    assert_eq!(stub.take_requests().len(), 2);
    assert!(read_all(&journal, 41).is_empty());
    assert_eq!(
        stub.take_requests().len(),
        2,
        "after two pages of old records this handle is not sure of the end"
    );
    assert!(read_all(&journal, 41).is_empty());
    assert_eq!(stub.take_requests().len(), 1);
}

#[test]
fn records_that_are_left_are_found_where_older_ones_were_deleted() {
    let (stub, journal) = stub(Fault::None);
    for n in 1..=6 {
        place(&journal, n, b"record").unwrap();
    }
    journal.delete_below(5).unwrap();
    stub.take_requests();
    for from in [0, 1, 4, 5] {
        let numbers: Vec<u64> = read_all(&journal, from).iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, [5, 6], "from {from}");
    }
    journal.delete_below(7).unwrap();
    stub.take_requests();
    assert!(read_all(&journal, 7).is_empty());
    assert_eq!(
        stub.take_requests(),
        ["GET store/journal/00000000000000000007"],
        "this handle has seen record 6"
    );
}

#[test]
fn the_clock_of_the_server_comes_with_the_manifest() {
    let (_stub, journal) = stub(Fault::None);
    assert_eq!(journal.manifest().unwrap(), None);
    assert!(journal.set_manifest(b"first", None).unwrap());
    assert!(!journal.set_manifest(b"other", None).unwrap());
    let read = journal.manifest().unwrap().unwrap();
    assert_eq!(read.engine_time_ms, Some(DATE_MS));
    assert!(journal.set_manifest(b"second", Some(&read.version)).unwrap());
    assert!(!journal.set_manifest(b"third", Some(&read.version)).unwrap());
    assert_eq!(journal.manifest().unwrap().unwrap().bytes, "second");
}

/// Google compares generations, not entity tags. The stub knows both.
#[test]
fn a_journal_at_google_is_checked_written_and_read() {
    let stub = Stub::start(Fault::IgnoresIfMatch);
    let url = format!("gs://{BUCKET}/store?endpoint={}&allow_http=true", stub.http.endpoint);
    let account = r#"{"private_key":"-","private_key_id":"-","client_email":"-","disable_oauth":true}"#;
    let environment = [("GOOGLE_SERVICE_ACCOUNT_KEY".to_owned(), account.to_owned())].into_iter().collect();
    let url = ObjectUrl::parse(&url).unwrap().unwrap();
    let journal = ObjectJournal::open_with(&url, environment).unwrap();
    let fitness = journal.check().unwrap();
    assert_eq!(fitness.remarks, Vec::<String>::new(), "a generation is no sign of old versions");
    assert_eq!(stub.keys(), Vec::<String>::new());
    assert_eq!(place(&journal, 1, b"record").unwrap(), Placed::Yes);
    assert_eq!(place(&journal, 1, b"another").unwrap(), Placed::Taken);
    assert_eq!(read_all(&journal, 1), [(1, "record".into())]);
    assert!(journal.set_manifest(b"first", None).unwrap());
    let read = journal.manifest().unwrap().unwrap();
    assert!(journal.set_manifest(b"second", Some(&read.version)).unwrap());
    assert!(!journal.set_manifest(b"third", Some(&read.version)).unwrap());
    journal.delete_part(&PartName("1-a/0".into())).unwrap();
    journal.delete_below(2).unwrap();
    assert_eq!(stub.keys(), ["store/manifest"]);
}

#[test]
fn secrets_are_in_no_debug_and_no_error() {
    let (_stub, journal) = stub(Fault::Denied);
    let texts = [format!("{journal:?}"), format!("{:?}", environment()), format!("{:?}", journal.check())];
    for text in texts {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[test]
fn a_journal_may_be_used_and_dropped_on_a_thread_of_a_runtime() {
    let (_stub, journal) = stub(Fault::None);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async move {
        assert_eq!(place(&journal, 1, b"record").unwrap(), Placed::Yes);
        drop(journal);
    });
}

#[test]
fn settings_that_are_missing_or_dangerous_are_named() {
    let refused = |url: &str, variables: &[(&str, &str)]| {
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let url = ObjectUrl::parse(url).unwrap().unwrap();
        ObjectJournal::open_with(&url, variables).unwrap_err().to_string()
    };
    assert!(refused("s3://bucket/x", &[]).contains("AWS_REGION"));
    assert!(refused("s3://bucket/x?endpoint=http://h", &[]).contains("allow_http=true"));
    assert!(refused("s3://bucket/x", &[("AWS_ENDPOINT_URL", "http://h")]).contains("allow_http=true"));
    assert!(refused("az://container/x", &[]).contains("AZURE_STORAGE_ACCOUNT_NAME"));
    let half = [("AWS_REGION", "us-east-1"), ("AWS_ACCESS_KEY_ID", "only-the-id-of-a-key")];
    let text = refused("s3://bucket/x", &half);
    assert!(text.contains("SecretAccessKey") && !text.contains("only-the-id"), "{text}");
}
