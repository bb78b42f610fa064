//! The behaviour that every store must show, as a test suite that any adapter runs on itself. [`journal`] is the
//! suite of journals.
//!
//! An adapter's tests call [`conformance_suite!`](crate::conformance_suite) with a closure that makes a fresh
//! [`Subject`]; each case becomes one `#[test]`. [`run`] goes through all of them in one call. A case panics when the
//! store is wrong: this module is for tests and stands outside the rule against panics.
//!
//! [`shared`] makes subjects of a store that several handles share; [`engines`] knows the engines that tests run on.

mod appending;
mod batches;
pub mod build;
mod claimed_model;
mod claims;
mod claims_gone;
mod dedupe;
mod delaying;
pub mod engines;
mod feed;
mod forward;
pub mod journal;
mod model;
mod news;
mod ordered;
mod reading;
mod serving;
pub mod shared;
mod state;
mod subject;
mod tables;
mod trimming;
mod twins;
mod upkeep;

/// The port's types, for the macros of this crate.
#[doc(hidden)]
pub mod port {
    pub use millrace_model::{KeyRange, Offset, Page, ReadLimit, Row, Space, Stream, Timestamp};
    pub use millrace_store::{
        Changes, CommitNumber, NewsWake, OtherHandles, Retention, StoreError, StreamBounds,
    };
}

pub use claimed_model::check_claims_against_memory;
pub use model::{HistoryStep, check_against_memory, steps_from_seed};
pub use subject::Subject;
pub use twins::{Follows, Twins};

use appending::*;
use batches::*;
use claimed_model::*;
use claims::*;
use claims_gone::*;
use dedupe::*;
use delaying::*;
use feed::*;
use model::*;
use news::*;
use ordered::*;
use reading::*;
use serving::*;
use state::*;
use tables::*;
use trimming::*;
use upkeep::*;

/// A test of one behaviour of a store. Panics when the store does not show it.
pub type Case = fn(&mut Subject);

/// All cases by name.
pub const CASES: &[(&str, Case)] = crate::conformance_suite!(@all list);

/// Runs every case, each on a fresh store.
pub fn run(open: &dyn Fn() -> Subject) {
    for (_, case) in CASES {
        case(&mut open());
    }
}

/// Runs one case by its name.
pub fn run_case(name: &str, subject: &mut Subject) {
    match CASES.iter().find(|(found, _)| *found == name) {
        Some((_, case)) => case(subject),
        None => panic!("no case is called {name}"),
    }
}

/// `conformance_suite!(open)` makes a `#[test]` of every case; `open` is any `Fn() -> Subject`.
#[macro_export]
macro_rules! conformance_suite {
    (@each tests $open:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::run_case(stringify!($name), &mut $open());
            }
        )*
    };
    (@each list; $($name:ident)*) => { &[$((stringify!($name), $name as $crate::Case)),*] };
    (@all $($what:tt)*) => {
        $crate::conformance_suite! { @each $($what)*;
            a_batch_over_the_limit_is_refused_and_nothing_is_written
            a_full_batch_is_taken
            appended_events_read_back_as_they_were_given
            many_streams_interleave
            minted_ids_are_a_function_of_time_nonce_and_ordinal
            offsets_are_dense_from_one
            time_never_falls_within_a_stream

            a_batch_sees_the_writes_of_those_before_it
            a_commit_of_nothing_does_nothing
            a_refused_batch_leaves_nothing_and_the_others_stand
            a_refusal_names_the_check_and_what_it_found
            operations_of_a_batch_apply_in_order

            a_claim_ends_at_its_byte_limit_but_takes_one
            a_claim_sees_rows_of_this_commit_but_no_events
            a_late_act_of_a_lost_lease_is_refused
            a_lease_ends_exactly_when_it_says
            a_plain_lane_passes_a_bounded_number_of_other_events
            claims_are_in_order_of_priority_time_and_place
            claims_of_many_partitions_are_in_order_of_time
            each_handler_gets_every_event_once
            lanes_can_begin_now
            only_runs_that_started_count_when_a_lease_ends
            waiting_events_come_back_with_their_attempts

            a_handler_with_too_much_open_takes_nothing_new
            a_key_has_one_event_at_a_time_in_the_order_of_the_log
            a_key_in_two_partitions_has_one_event_at_a_time
            an_event_that_is_opened_again_is_the_next_of_its_key
            events_that_are_gone_hold_back_no_key
            events_without_a_row_of_their_lane_are_taken_once_in_order_of_keys
            order_of_keys_wins_over_priority
            the_order_of_a_handler_can_be_switched

            a_claimed_event_that_is_gone_is_lost
            a_dropped_topic_strands_no_handler
            holes_of_compaction_are_passed
            rows_of_events_that_are_gone_go_with_them
            trimmed_events_ahead_of_a_lane_are_passed

            random_claims_match_the_memory_store

            a_row_is_put_only_if_new
            numbers_of_state_commits_are_never_given_twice
            state_is_written_only_where_it_changed

            a_duplicate_in_another_partition_names_the_first
            a_duplicate_in_the_same_batch_is_stored_once
            a_duplicate_in_the_same_commit_is_stored_once
            a_duplicate_later_is_answered_like_the_first
            a_duplicate_of_a_dropped_event_is_new
            a_duplicate_of_a_removed_event_is_answered_like_the_first
            a_duplicate_of_a_trimmed_event_is_answered_like_the_first
            a_duplicate_outside_the_window_is_new
            duplicates_are_known_after_reopening
            an_event_from_the_future_makes_no_topic_forget_its_ids
            ids_are_per_topic_and_a_window_of_zero_means_no_dedupe

            a_delayed_event_takes_its_id
            a_delayed_event_whose_id_is_stored_is_a_duplicate
            an_id_is_free_when_nothing_waits_under_it
            a_check_finds_the_ids_that_an_append_would_find
            delays_and_appends_of_one_commit_see_one_another
            of_two_movers_one_stores_the_event
            a_delayed_event_belongs_to_the_topic_that_stood_when_it_was_confirmed
            a_topic_that_stands_keeps_its_incarnation
            a_watcher_is_told_of_delayed_events

            a_watcher_pages_through_commits
            a_watcher_is_told_of_streams_that_were_trimmed
            a_watcher_that_fell_too_far_behind_is_told_to_start_over
            dropped_topics_are_not_told
            streams_are_listed_with_their_bounds

            a_handle_that_is_told_of_others_misses_no_commit
            a_store_that_tells_nothing_says_that_others_are_silent_or_absent

            a_page_ends_at_its_byte_limit_but_holds_one_event
            a_page_ends_at_its_event_limit
            reading_past_the_end_or_nothing_says_through
            seeking_finds_the_first_event_not_older

            one_handle_serves_the_store_at_a_time
            a_closed_handle_gives_the_right_to_serve_back

            a_check_sees_only_its_own_table
            scans_are_in_key_order_within_range_and_limit

            a_dropped_topic_starts_again_at_one
            removed_events_are_gone_and_the_others_stay
            retention_by_age_and_bytes_names_a_start
            trimming_hides_at_once_and_never_goes_back

            maintenance_reclaims_and_comes_to_an_end
            maintenance_between_commits_changes_nothing
            reopening_keeps_everything

            random_histories_match_the_memory_store
        }
    };
    ($open:expr) => { $crate::conformance_suite!(@all tests $open); };
}
