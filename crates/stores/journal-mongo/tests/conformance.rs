//! The suite of all journals, on the real engine: plain, and with requests and answers that get lost on the way.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use millrace_conformance::journal::{FaultPlan, FaultyJournal, JournalSubject};
use millrace_journal::Journal;
use support::TestDatabase;

fn mongo() -> Option<JournalSubject> {
    let database = TestDatabase::new()?;
    let first = Arc::new(database.open());
    Some(JournalSubject::new(first, move || Arc::new(database.open()) as Arc<dyn Journal>))
}

/// Every fifth request is lost, and every fifth answer; some are repeated, and some are carried out late.
fn faulty_mongo() -> Option<JournalSubject> {
    let database = TestDatabase::new()?;
    let open = move |seed| -> Arc<dyn Journal> {
        let plan = FaultPlan {
            seed,
            lose_request_every: 5,
            lose_answer_every: 5,
            repeat_every: 7,
            late_every: 6,
            delay_every: 0,
        };
        Arc::new(FaultyJournal::new(Arc::new(database.open()), plan))
    };
    Some(JournalSubject::new(open(1), move || open(2)).unreliable())
}

mod plain {
    millrace_conformance::journal_suite!(super::mongo);
}

mod with_faults {
    millrace_conformance::journal_suite!(super::faulty_mongo);
}
