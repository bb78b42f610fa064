//! What the tests of this crate share: journals with made-up credentials, real servers, and the stub.

#![allow(dead_code, reason = "every test file uses another part of it")]

pub(crate) mod http_stub;
pub(crate) mod stub;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use millrace_journal::{Journal, JournalError, JournalReadLimit, PartName, Placed, Placing, Tip};
use millrace_journal_object::{ObjectEnvironment, ObjectJournal, ObjectUrl};

/// Long enough to be told from ordinary words, so that tests can look for it in texts.
pub(crate) const SECRET: &str = "secret-of-the-tests-0123456789";

pub(crate) const NO_LIMIT: JournalReadLimit =
    JournalReadLimit { records_max: usize::MAX, bytes_max: usize::MAX };

pub(crate) fn environment() -> ObjectEnvironment {
    let variables =
        [("AWS_ACCESS_KEY_ID", "tests"), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "us-east-1")];
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(crate) fn open(url: &str) -> ObjectJournal {
    let url = ObjectUrl::parse(url).expect("a scheme of object storage").expect("a right URL");
    ObjectJournal::open_with(&url, environment()).expect("right settings")
}

/// Opens a journal at a server that listens on this machine.
pub(crate) fn open_at(endpoint: &str, bucket: &str, prefix: &str) -> ObjectJournal {
    open(&format!("s3://{bucket}/{prefix}?endpoint={endpoint}&allow_http=true"))
}

pub(crate) fn place(journal: &ObjectJournal, n: u64, record: &[u8]) -> Result<Placed, JournalError> {
    journal.place(&Placing { n, prev: Tip::START, tip: Tip::START, record, settles: &[] })
}

pub(crate) fn read_all(journal: &ObjectJournal, from: u64) -> Vec<(u64, Bytes)> {
    journal.read(from, NO_LIMIT).unwrap()
}

/// The bucket of all tests. SeaweedFS gives every bucket volumes of its own and has few of them, so tests have prefixes
/// and not buckets of their own.
const BUCKET: &str = "millrace-tests";

/// A real server, and a prefix of this test in its bucket, which is emptied at the end.
pub(crate) struct TestPlace {
    pub(crate) endpoint: String,
    pub(crate) prefix: String,
}

impl TestPlace {
    /// Returns `None`, and says so, if the variable with the server's address is not set.
    pub(crate) fn at(variable: &str) -> Option<TestPlace> {
        let Ok(endpoint) = std::env::var(variable) else {
            println!("skipped: {variable} is not set (cargo xtask test starts the engines)");
            return None;
        };
        make_bucket(&endpoint);
        let prefix = format!("test-{:016x}", rand::random::<u64>());
        Some(TestPlace { endpoint: endpoint.trim_end_matches('/').to_owned(), prefix })
    }

    pub(crate) fn open(&self) -> ObjectJournal {
        open_at(&self.endpoint, BUCKET, &format!("{}/snapshot", self.prefix))
    }
}

impl Drop for TestPlace {
    fn drop(&mut self) {
        let journal = self.open();
        // A failed test has its own message; here nothing may panic.
        let _ = journal.delete_below(u64::MAX);
        for part in journal.parts().unwrap_or_default() {
            let _ = journal.delete_part(&part);
        }
        // The port deletes no manifest. To a journal one folder up it is a part of a snapshot.
        let above = open_at(&self.endpoint, BUCKET, &self.prefix);
        let _ = above.delete_part(&PartName("manifest".into()));
    }
}

/// Tries for a while: SeaweedFS takes connections seconds before it can do anything, and tells nobody when it can.
fn make_bucket(endpoint: &str) {
    let mut status = String::new();
    for _ in 0..300 {
        status = exchange(endpoint, "PUT", &format!("/{BUCKET}"));
        if status.contains(" 200 ") || status.contains(" 409 ") {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("the bucket was not made: {status}");
}

/// Sends a request without a body and without credentials. Returns the first line of the answer.
pub(crate) fn exchange(endpoint: &str, method: &str, path: &str) -> String {
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let send = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(host)?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    };
    send().unwrap_or_else(|error| format!("no answer: {error}"))
}
