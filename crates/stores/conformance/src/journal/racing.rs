//! Several threads at the same number, on two handles. A pass says something about the server that the case ran on only.

use std::sync::Barrier;
use std::thread;

use millrace_journal::Placed;

use super::placing::pairs;
use super::subject::{JournalSubject, TestHandle};
use super::test_record::{TestChain, TestRecord};

const WRITERS: u64 = 16;
const ROUNDS: usize = 10;
/// Records of each writer that goes on until it has placed them.
const RECORDS_EACH: usize = 8;
/// A writer that loses so often does not see what the others have placed. Starvation is not what this case is about.
const ATTEMPTS_EACH: usize = 10_000;
const RECORDS_READ: usize = 100;

/// Returns the writers, half of them on each handle.
fn writers(s: &JournalSubject) -> Vec<(u64, TestHandle)> {
    let handles = [s.handle(), s.beside()];
    (0..WRITERS).map(|writer| (writer, handles[writer as usize % 2].clone())).collect()
}

pub(super) fn racing_writers_of_one_number_have_one_winner(s: &JournalSubject) {
    let writers = writers(s);
    let mut chain = TestChain::START;
    let mut winners = Vec::new();
    for round in 0..ROUNDS {
        let start = Barrier::new(writers.len());
        let race = |writer: u64, handle: &TestHandle| {
            let record = chain.candidate(writer, 500);
            start.wait();
            (handle.place(&record) == Placed::Yes).then_some(record)
        };
        let mut won: Vec<TestRecord> = thread::scope(|scope| {
            let race = &race;
            let threads: Vec<_> =
                writers.iter().map(|(writer, handle)| scope.spawn(move || race(*writer, handle))).collect();
            threads.into_iter().filter_map(joined).collect()
        });
        assert_eq!(won.len(), 1, "winners in round {round}");
        winners.append(&mut won);
        chain.advance(&winners[round]);
    }
    for (_, handle) in &writers[..2] {
        assert_eq!(handle.read_all(1), pairs(&winners));
    }
}

/// Each writer places its records behind whatever the others have placed.
pub(super) fn racing_writers_lose_no_record(s: &JournalSubject) {
    let writers: Vec<_> = writers(s).into_iter().take(4).collect();
    let work = |writer: u64, handle: &TestHandle| {
        let mut chain = TestChain::START;
        let mut placed = Vec::new();
        for _ in 0..ATTEMPTS_EACH {
            for (n, bytes) in handle.read_all(chain.n + 1) {
                chain = TestChain { n, tip: TestRecord::tip_of(&bytes) };
            }
            let record = chain.candidate(writer, 200);
            if handle.place(&record) == Placed::Yes {
                chain.advance(&record);
                placed.push(record);
            }
            if placed.len() == RECORDS_EACH {
                return placed;
            }
        }
        panic!("writer {writer} has placed {} records, and then no more", placed.len());
    };
    let mut placed: Vec<TestRecord> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            writers.iter().map(|(writer, handle)| scope.spawn(move || work(*writer, handle))).collect();
        threads.into_iter().flat_map(joined).collect()
    });
    placed.sort_by_key(|record| record.n);
    assert_eq!(s.handle().read_all(1), pairs(&placed));
    assert!(
        placed.windows(2).all(|pair| pair[0].tip == pair[1].prev),
        "each record follows the one before it"
    );
}

pub(super) fn a_reader_beside_a_writer_sees_every_record_in_order(s: &JournalSubject) {
    let (handle, beside) = (s.handle(), s.beside());
    let (placed, read) = thread::scope(|scope| {
        let writer = scope.spawn(|| handle.place_first(RECORDS_READ, 200));
        let mut read = Vec::new();
        // Ends at the last record, or with the writer: should that one fail, nothing more will come.
        while read.len() < RECORDS_READ {
            let is_last_look = writer.is_finished();
            let next = read.len() as u64 + 1;
            let page = beside.page(next, 7, usize::MAX);
            assert!(page.first().is_none_or(|(first, _)| *first == next), "{next} was passed over");
            let was_empty = page.is_empty();
            read.extend(page);
            if was_empty && is_last_look {
                break;
            }
        }
        (joined(writer), read)
    });
    assert_eq!(read, pairs(&placed));
}

pub(super) fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
}
