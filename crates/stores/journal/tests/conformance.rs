//! The journals of this crate pass the suite of all journals, also when requests and answers get lost.

use std::sync::Arc;

use millrace_conformance::journal::{FaultPlan, FaultyJournal, JournalSubject};
use millrace_journal::{DirectoryJournal, Journal, MemoryJournal};

fn memory() -> JournalSubject {
    let journal = Arc::new(MemoryJournal::new());
    let beside = Arc::clone(&journal);
    JournalSubject::new(journal, move || Arc::clone(&beside) as Arc<dyn Journal>)
}

/// Every fifth request is lost, and every fifth answer; some are repeated, and some are carried out late.
fn faulty_memory() -> JournalSubject {
    let journal = Arc::new(MemoryJournal::new());
    let open = move |seed| -> Arc<dyn Journal> {
        let plan = FaultPlan {
            seed,
            lose_request_every: 5,
            lose_answer_every: 5,
            repeat_every: 7,
            late_every: 6,
            delay_every: 0,
        };
        Arc::new(FaultyJournal::new(Arc::clone(&journal), plan))
    };
    JournalSubject::new(open(1), move || open(2)).unreliable()
}

fn directory() -> JournalSubject {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = move || Arc::new(DirectoryJournal::new(folder.path().join("journal"))) as Arc<dyn Journal>;
    JournalSubject::new(open(), open)
}

mod in_a_folder {
    millrace_conformance::journal_suite!(super::directory);
}

mod in_memory {
    millrace_conformance::journal_suite!(super::memory);
}

mod in_memory_with_faults {
    millrace_conformance::journal_suite!(super::faulty_memory);
}
