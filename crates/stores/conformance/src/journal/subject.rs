//! A journal under test, with short methods that panic when the journal fails.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use millrace_journal::{
    Fitness, Journal, JournalError, JournalReadLimit, ManifestRead, ManifestVersion, PartName, Placed,
};

use super::test_record::{TestChain, TestRecord};

/// How often a request is made whose outcome is unknown. A journal that fails on purpose needs several attempts.
const ATTEMPTS_MAX: usize = 100;

type OpenBeside = Box<dyn Fn() -> Arc<dyn Journal>>;

/// A fresh journal that nobody has checked yet, and the function that opens a further handle on the same journal.
pub struct JournalSubject {
    journal: Arc<dyn Journal>,
    /// Dropped after `journal`, with the values it captures: a folder or a schema that is to be removed, say.
    open_beside: OpenBeside,
    is_unreliable: bool,
    fitness: OnceCell<Fitness>,
}

impl JournalSubject {
    pub fn new(
        journal: Arc<dyn Journal>,
        open_beside: impl Fn() -> Arc<dyn Journal> + 'static,
    ) -> JournalSubject {
        let open_beside = Box::new(open_beside);
        JournalSubject { journal, open_beside, is_unreliable: false, fitness: OnceCell::new() }
    }

    /// Says that requests and answers may get lost or be repeated. Then the suite accepts that a writer learns only by
    /// reading that a record is its own, as it has to after a lost answer.
    #[must_use]
    pub fn unreliable(mut self) -> JournalSubject {
        self.is_unreliable = true;
        self
    }

    /// Returns the handle of the subject, which was checked before.
    pub fn handle(&self) -> TestHandle {
        self.fitness();
        self.wrap(Arc::clone(&self.journal))
    }

    /// Opens and checks a further handle.
    pub fn beside(&self) -> TestHandle {
        self.fitness();
        let beside = self.unchecked();
        beside.check();
        beside
    }

    /// Opens a further handle and does not check it.
    pub fn unchecked(&self) -> TestHandle {
        self.wrap((self.open_beside)())
    }

    pub fn fitness(&self) -> &Fitness {
        self.fitness.get_or_init(|| self.wrap(Arc::clone(&self.journal)).check())
    }

    fn wrap(&self, journal: Arc<dyn Journal>) -> TestHandle {
        TestHandle { journal, is_unreliable: self.is_unreliable }
    }
}

impl fmt::Debug for JournalSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalSubject").field("fitness", &self.fitness).finish_non_exhaustive()
    }
}

/// A handle on a journal under test. Requests with an unknown outcome are made again, a bounded number of times.
#[derive(Clone)]
pub struct TestHandle {
    journal: Arc<dyn Journal>,
    is_unreliable: bool,
}

impl fmt::Debug for TestHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHandle").field("is_unreliable", &self.is_unreliable).finish_non_exhaustive()
    }
}

impl TestHandle {
    pub fn check(&self) -> Fitness {
        self.retry("check", |journal| journal.check())
    }

    /// Places a record. After an unknown outcome it looks who has the number, like every user of a journal.
    pub fn place(&self, record: &TestRecord) -> Placed {
        let mut may_be_ours = self.is_unreliable;
        for _ in 0..ATTEMPTS_MAX {
            match self.journal.place(&record.placing()) {
                Ok(Placed::Yes) => return Placed::Yes,
                Ok(Placed::Taken) if !may_be_ours => return Placed::Taken,
                Ok(Placed::Taken) => {
                    let is_ours = self.record(record.n).is_some_and(|found| found == record.bytes);
                    return if is_ours { Placed::Yes } else { Placed::Taken };
                }
                Err(JournalError::Unknown(cause)) => {
                    eprintln!("placing {}: {cause}", record.n);
                    may_be_ours = true;
                    match self.record(record.n) {
                        Some(found) if found == record.bytes => return Placed::Yes,
                        Some(_) => return Placed::Taken,
                        None => {}
                    }
                }
                Err(error) => panic!("placing {} failed: {error}", record.n),
            }
        }
        panic!("placing {}: the outcome stayed unknown {ATTEMPTS_MAX} times", record.n);
    }

    /// Places `count` records of at least `size` bytes behind the end, each of which must succeed, and returns them.
    pub fn place_next(&self, chain: &mut TestChain, count: usize, size: usize) -> Vec<TestRecord> {
        let placed = (0..count).map(|_| {
            let record = chain.candidate(0, size);
            assert_eq!(self.place(&record), Placed::Yes, "number {} is free", record.n);
            chain.advance(&record);
            record
        });
        placed.collect()
    }

    /// Places the first `count` records of an empty journal.
    pub fn place_first(&self, count: usize, size: usize) -> Vec<TestRecord> {
        let mut chain = TestChain::START;
        self.place_next(&mut chain, count, size)
    }

    /// Reads a page. Panics if it has a gap, begins too low, or is longer than its limits allow.
    pub fn page(&self, from: u64, records_max: usize, bytes_max: usize) -> Vec<(u64, Bytes)> {
        let limit = JournalReadLimit { records_max, bytes_max };
        let page = self.retry("read", |journal| journal.read(from, limit));
        if let Some(((first, _), (last, last_record))) = page.first().zip(page.last()) {
            assert!(from <= *first, "a page from {from} begins with {first}");
            assert!(
                page.iter().map(|(n, _)| *n).eq(*first..=*last),
                "a page from {first} to {last} has gaps"
            );
            assert!(page.len() <= records_max, "{} records, at most {records_max}", page.len());
            let before: usize =
                page.iter().map(|(_, record)| record.len()).sum::<usize>() - last_record.len();
            let may_follow = page.len() == 1 || before < bytes_max;
            assert!(may_follow, "a record follows after {before} bytes, at most {bytes_max}");
        }
        page
    }

    /// Reads page after page until one is empty, and returns all records.
    pub fn read_all(&self, from: u64) -> Vec<(u64, Bytes)> {
        let mut all: Vec<(u64, Bytes)> = Vec::new();
        loop {
            let next = all.last().map_or(from, |(n, _)| n + 1);
            let page = self.page(next, 1_000, 64 << 20);
            let Some((first, _)) = page.first() else { return all };
            assert!(all.is_empty() || *first == next, "{first} follows instead of {next}");
            all.extend(page);
        }
    }

    pub fn record(&self, n: u64) -> Option<Bytes> {
        let page = self.page(n, 1, usize::MAX);
        page.into_iter().find(|(found, _)| *found == n).map(|(_, record)| record)
    }

    pub fn manifest(&self) -> Option<ManifestRead> {
        self.retry("manifest", |journal| journal.manifest())
    }

    /// Replaces the manifest. After an unknown outcome it reads the manifest: every text of the suite is set once.
    pub fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> bool {
        let mut may_be_ours = self.is_unreliable;
        for _ in 0..ATTEMPTS_MAX {
            match self.journal.set_manifest(new, was) {
                Ok(true) => return true,
                Ok(false) if !may_be_ours => return false,
                Ok(false) => return self.manifest().is_some_and(|read| read.bytes == new),
                Err(JournalError::Unknown(cause)) => {
                    eprintln!("replacing the manifest: {cause}");
                    may_be_ours = true;
                    let standing = self.manifest();
                    if standing.as_ref().is_some_and(|read| read.bytes == new) {
                        return true;
                    }
                    if standing.as_ref().map(|read| &read.version) != was {
                        return false;
                    }
                }
                Err(error) => panic!("replacing the manifest failed: {error}"),
            }
        }
        panic!("replacing the manifest: the outcome stayed unknown {ATTEMPTS_MAX} times");
    }

    pub fn put_part(&self, name: &PartName, bytes: &[u8]) {
        self.retry("put_part", |journal| journal.put_part(name, bytes));
    }

    pub fn get_part(&self, name: &PartName) -> Option<Bytes> {
        self.retry("get_part", |journal| journal.get_part(name))
    }

    /// Returns the names sorted: the port does not promise an order.
    pub fn parts(&self) -> Vec<PartName> {
        let mut parts = self.retry("parts", |journal| journal.parts());
        parts.sort();
        parts
    }

    pub fn delete_part(&self, name: &PartName) {
        self.retry("delete_part", |journal| journal.delete_part(name));
    }

    pub fn delete_below(&self, n: u64) {
        self.retry("delete_below", |journal| journal.delete_below(n));
    }

    fn retry<T>(&self, what: &str, request: impl Fn(&dyn Journal) -> Result<T, JournalError>) -> T {
        for _ in 0..ATTEMPTS_MAX {
            match request(self.journal.as_ref()) {
                Ok(answer) => return answer,
                Err(JournalError::Unknown(cause)) => eprintln!("{what}: {cause}"),
                Err(error) => panic!("{what} failed: {error}"),
            }
        }
        panic!("{what}: the outcome stayed unknown {ATTEMPTS_MAX} times");
    }
}
