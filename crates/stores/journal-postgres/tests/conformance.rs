//! The suite of all journals, on the real engine: plain, with partitions of a few records, and with requests and
//! answers that get lost on the way.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use millrace_conformance::journal::{FaultPlan, FaultyJournal, JournalSubject};
use millrace_journal::Journal;
use millrace_journal_postgres::{PostgresAddress, PostgresJournal};
use support::Schema;

fn open(schema: &Schema, partition_records: u32) -> Arc<dyn Journal> {
    let address = PostgresAddress::parse(&schema.url_with("")).unwrap();
    Arc::new(PostgresJournal::with_partitions(address, partition_records))
}

fn plain_journal() -> Option<JournalSubject> {
    let schema = Schema::new()?;
    let first = Arc::new(schema.journal());
    Some(JournalSubject::new(first, move || Arc::new(schema.journal())))
}

fn small_partitions() -> Option<JournalSubject> {
    let schema = Schema::new()?;
    Some(JournalSubject::new(open(&schema, 7), move || open(&schema, 5)))
}

/// Every fifth request is lost, and every fifth answer; some are repeated, and some are carried out late.
fn faulty_journal() -> Option<JournalSubject> {
    let schema = Schema::new()?;
    let faulty = move |seed| -> Arc<dyn Journal> {
        let plan = FaultPlan {
            seed,
            lose_request_every: 5,
            lose_answer_every: 5,
            repeat_every: 7,
            late_every: 6,
            delay_every: 0,
        };
        Arc::new(FaultyJournal::new(open(&schema, 10), plan))
    };
    Some(JournalSubject::new(faulty(1), move || faulty(2)).unreliable())
}

mod plain {
    millrace_conformance::journal_suite!(super::plain_journal);
}

mod with_small_partitions {
    millrace_conformance::journal_suite!(super::small_partitions);
}

mod with_faults {
    millrace_conformance::journal_suite!(super::faulty_journal);
}
