//! Shared by the tests of this crate: journals with made-up credentials, real servers, and the stub.

#![allow(dead_code, reason = "every test file uses another part of it")]

pub(crate) mod http_stub;
pub(crate) mod line;
pub(crate) mod stub;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use millrace_journal::{Journal, JournalError, JournalReadLimit, PartName, Placed, Placing, Tip};
use millrace_journal_object::{ObjectEnvironment, ObjectJournal, ObjectUrl};

use http_stub::{HttpStub, StubAnswer, StubRequest};

pub(crate) const SEAWEED: &str = "TEST_S3_SEAWEED";
pub(crate) const MOTO: &str = "TEST_S3_MOTO";

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
    /// Before a server that may have one request at a time only.
    queue: Option<HttpStub>,
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
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Some(TestPlace { endpoint, prefix, queue: None })
    }

    /// A place on moto, which gets one request at a time: moto itself looks and writes in two steps, so that two of
    /// eight creators can win (a check has found that). moto is the oracle for conditions, not for races.
    pub(crate) fn on_moto() -> Option<TestPlace> {
        let mut place = TestPlace::at(MOTO)?;
        let (server, turn) = (place.endpoint.clone(), Mutex::new(()));
        let queue = HttpStub::start(move |request| {
            let _turn = turn.lock().unwrap();
            forward(&server, request)
        });
        place.endpoint.clone_from(&queue.endpoint);
        place.queue = Some(queue);
        Some(place)
    }

    pub(crate) fn open(&self) -> ObjectJournal {
        self.open_through(&self.endpoint)
    }

    /// Opens a journal that reaches the server by another address.
    pub(crate) fn open_through(&self, endpoint: &str) -> ObjectJournal {
        open_at(endpoint, BUCKET, &format!("{}/snapshot", self.prefix))
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

/// Sends a request on, and returns the answer as it came.
fn forward(server: &str, request: &StubRequest) -> StubAnswer {
    let host = server.trim_start_matches("http://");
    let send = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(host)?;
        let question = if request.query.is_empty() { "" } else { "?" };
        let mut head = format!("{} {}{question}{} HTTP/1.1\r\n", request.method, request.path, request.query);
        for (name, value) in
            request.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("connection"))
        {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("connection: close\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &request.body].concat())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    match send() {
        Ok(answer) if !answer.is_empty() => StubAnswer::Raw(answer),
        _ => StubAnswer::Cut,
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
