//! The behaviour that every journal must show, as a test suite that each engine's crate runs on itself.
//!
//! An engine's tests call [`journal_suite!`](crate::journal_suite) with a closure that makes a fresh
//! [`JournalSubject`]; each case becomes one `#[test]`. [`FaultyJournal`] is for the tests of the code that uses a
//! journal: a journal whose requests and answers get lost.

mod deleting;
mod fault_plan;
mod faulty;
mod manifest;
mod opening;
mod parts;
mod placing;
mod racing;
mod reading;
mod subject;
mod test_record;

pub use fault_plan::{FaultCounts, FaultPlan};
pub use faulty::{DelayHook, FaultyJournal, JournalCall};
pub use subject::{JournalSubject, TestHandle};
pub use test_record::{TestChain, TestRecord};

use deleting::*;
use manifest::*;
use opening::*;
use parts::*;
use placing::*;
use racing::*;
use reading::*;

/// A test of one behaviour of a journal. Panics when the journal does not show it.
pub type JournalCase = fn(&JournalSubject);

/// All cases by name.
pub const CASES: &[(&str, JournalCase)] = crate::journal_suite!(@all list);

/// Runs one case by its name. `None` is the subject of an engine that is not there: its case passes without looking.
pub fn run_case(name: &str, subject: impl Into<Option<JournalSubject>>) {
    let Some((_, case)) = CASES.iter().find(|(found, _)| *found == name) else {
        panic!("no case is called {name}");
    };
    if let Some(subject) = subject.into() {
        case(&subject);
    }
}

/// `journal_suite!(open)` makes a `#[test]` of every case. `open` is any `Fn() -> JournalSubject`, or any
/// `Fn() -> Option<JournalSubject>` for an engine that may be missing: `open` prints that the test is skipped.
#[macro_export]
macro_rules! journal_suite {
    (@each tests $open:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::journal::run_case(stringify!($name), $open());
            }
        )*
    };
    (@each list; $($name:ident)*) => { &[$((stringify!($name), $name as $crate::journal::JournalCase)),*] };
    (@all $($what:tt)*) => {
        $crate::journal_suite! { @each $($what)*;
            a_new_journal_is_empty
            checking_again_changes_nothing
            handles_that_check_at_the_same_time_all_succeed

            records_are_read_back_as_they_were_placed
            a_taken_number_is_refused_and_the_first_record_stays
            a_placed_record_is_visible_to_another_handle_at_once
            two_handles_place_in_turn
            large_records_are_placed_and_read
            an_engine_that_guards_its_head_refuses_gaps_and_other_histories

            racing_writers_of_one_number_have_one_winner
            racing_writers_lose_no_record
            a_reader_beside_a_writer_sees_every_record_in_order

            pages_end_at_their_record_limit
            pages_end_at_their_byte_limit_but_hold_one_record
            reading_beyond_the_end_is_empty

            deleting_leaves_all_numbers_from_the_given_one_on
            deleting_again_or_less_changes_nothing
            more_records_than_one_request_holds_are_deleted
            records_follow_after_all_were_deleted
            a_deleted_number_stays_taken_where_the_engine_guards_its_head

            a_manifest_is_created_once
            a_manifest_is_replaced_only_at_its_version
            racing_writers_of_the_manifest_have_one_winner
            a_manifest_of_some_size_is_kept_as_it_is

            parts_are_kept_listed_and_deleted
            a_part_may_be_stored_twice
            a_missing_part_is_none
            large_parts_are_kept_as_they_are
            more_parts_than_one_page_are_listed
            parts_and_records_are_kept_apart
        }
    };
    ($open:expr) => { $crate::journal_suite!(@all tests $open); };
}
