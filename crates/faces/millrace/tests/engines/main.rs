//! The library on every engine of a shared store: sessions, the lead, and all examples.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod away;
mod examples;
mod lead;
mod sessions;
mod stores;

use stores::LibraryStore;

macro_rules! library_tests {
    ($module:ident, $store:expr) => {
        mod $module {
            use super::*;

            fn on_a_fresh_store(test: impl FnOnce(&LibraryStore)) {
                if let Some(store) = $store {
                    test(&store);
                }
            }

            #[test]
            fn everything_committed_is_there_after_reopening_on_another_machine() {
                on_a_fresh_store(sessions::reopened);
            }

            #[test]
            fn a_store_that_somebody_leads_is_refused_with_the_address_of_the_leader() {
                on_a_fresh_store(lead::refused);
            }

            #[test]
            fn a_session_that_has_lost_the_lead_writes_nothing_and_says_so() {
                on_a_fresh_store(lead::deposed);
            }

            #[test]
            fn a_handler_whose_session_has_lost_the_lead_writes_nothing_and_says_so() {
                on_a_fresh_store(lead::deposed_handler);
            }

            #[test]
            fn all_examples_run() {
                on_a_fresh_store(examples::all);
            }
        }
    };
}

library_tests!(directory, LibraryStore::in_a_folder());
library_tests!(postgres, LibraryStore::on(millrace_conformance::engines::TestEngine::Postgres));
library_tests!(seaweed, LibraryStore::on(millrace_conformance::engines::TestEngine::Seaweed));
library_tests!(mongo, LibraryStore::on(millrace_conformance::engines::TestEngine::Mongo));
