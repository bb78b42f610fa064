//! The rules of the schedule, as data in and data out.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use crate::schedule::{Handover, Happened, Job, Load, Schedule, ScheduleLimits, Step, Wake};

const NOTHING: Load = Load { requests: 0, completions: 0, batches: 0, accepts_requests: true };
const REQUEST: Load = Load { requests: 1, ..NOTHING };
const COMPLETION: Load = Load { completions: 1, ..NOTHING };
const BATCH: Load = Load { batches: 1, ..NOTHING };
const REQUEST_AND_BATCH: Load = Load { requests: 1, ..BATCH };
const LONG_TURN_AND_BATCH: Load = Load { requests: 17, ..BATCH };
const FULL: Load = Load { requests: 1, accepts_requests: false, ..NOTHING };

/// A schedule and its time, which only `pass` moves.
struct Clocked {
    schedule: Schedule,
    now: Instant,
}

/// Milliseconds.
fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Clocked {
    fn new() -> Clocked {
        Clocked::with(true)
    }

    fn with(inline_commits: bool) -> Clocked {
        let now = Instant::now();
        let limits = ScheduleLimits { threads: 2, sleep_max: ms(1000), inline_commits };
        Clocked { schedule: Schedule::new(limits, now), now }
    }

    /// The engine must run again in 500 ms and maintenance is due in 200 ms; no thread sleeps.
    fn settled() -> Clocked {
        Clocked::new().after_start()
    }

    fn after_start(mut self) -> Clocked {
        assert_eq!(self.next(&NOTHING), Step::Do(Job::Decide), "there may be work from before the restart");
        self.decided(500);
        assert_eq!(self.next(&NOTHING), Step::Do(Job::Maintenance));
        self.maintained(200);
        self
    }

    /// As `settled`, and both threads sleep.
    fn asleep() -> Clocked {
        Clocked::settled().with_both_asleep()
    }

    fn with_both_asleep(mut self) -> Clocked {
        assert_eq!(self.next(&NOTHING), self.sleep(200));
        assert_eq!(self.next(&NOTHING), self.sleep(200));
        self
    }

    fn next(&mut self, load: &Load) -> Step {
        self.schedule.next(load, self.now)
    }

    fn at(&self, in_ms: u64) -> Instant {
        self.now + ms(in_ms)
    }

    fn sleep(&self, in_ms: u64) -> Step {
        Step::SleepUntil(self.at(in_ms))
    }

    fn pass(&mut self, count: u64) {
        self.now += ms(count);
    }

    fn report(&mut self, happened: Happened) -> Option<Wake> {
        self.schedule.report(happened)
    }

    /// Whether an edge that cannot gather runs the turn over what it has added.
    fn begins_inline_turn(&mut self, load: &Load) -> bool {
        self.schedule.hand_over(load, false) == Handover::Turn
    }

    /// Hands over as an edge that can gather.
    fn hand_over(&mut self, load: &Load) -> Handover {
        self.schedule.hand_over(load, true)
    }

    /// As `asleep`, and a thread commits.
    fn committing() -> Clocked {
        let mut broker = Clocked::asleep();
        broker.woke(200);
        assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
        broker
    }

    fn decided(&mut self, next_in_ms: u64) {
        let next_at = self.at(next_in_ms);
        assert_eq!(self.report(Happened::Decided { next_at }), None);
    }

    fn maintained(&mut self, next_in_ms: u64) {
        let next_at = self.at(next_in_ms);
        assert_eq!(self.report(Happened::Maintained { next_at }), None);
    }

    fn committed(&mut self) {
        assert_eq!(self.report(Happened::Committed { took: ms(1) }), None);
    }

    fn woke(&mut self, was_until_in_ms: u64) {
        let until = self.at(was_until_in_ms);
        assert_eq!(self.report(Happened::Woke { until }), None);
    }
}

#[test]
fn a_short_turn_runs_before_a_commit_that_waits() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&REQUEST_AND_BATCH), Step::Do(Job::Decide));
    broker.decided(500);
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
}

#[test]
fn a_commit_is_deferred_at_most_three_times() {
    let mut broker = Clocked::settled();
    for _ in 0..2 {
        for _ in 0..3 {
            assert_eq!(broker.next(&REQUEST_AND_BATCH), Step::Do(Job::Decide));
            broker.decided(500);
        }
        assert_eq!(broker.next(&REQUEST_AND_BATCH), Step::Do(Job::Commit));
        broker.committed();
    }
}

#[test]
fn turns_during_a_commit_defer_nothing() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    for _ in 0..5 {
        assert_eq!(broker.next(&REQUEST_AND_BATCH), Step::Do(Job::Decide));
        broker.decided(500);
    }
    broker.committed();
    assert_eq!(
        broker.next(&REQUEST_AND_BATCH),
        Step::Do(Job::Decide),
        "the first one before the next commit"
    );
}

#[test]
fn before_a_long_turn_the_commit_is_started_and_the_other_thread_is_woken() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&NOTHING), broker.sleep(200));
    assert_eq!(broker.next(&LONG_TURN_AND_BATCH), Step::Do(Job::Commit));
    let left = Load { batches: 0, ..LONG_TURN_AND_BATCH };
    assert_eq!(broker.schedule.wake_for_rest(&left), Some(Wake::Turn));
    broker.woke(200);
    assert_eq!(broker.next(&left), Step::Do(Job::Decide));
    assert_eq!(broker.schedule.wake_for_rest(&NOTHING), None);
}

#[test]
fn many_completions_make_a_turn_long_as_well() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&Load { completions: 16, ..BATCH }), Step::Do(Job::Decide));
    broker.decided(500);
    assert_eq!(broker.next(&Load { completions: 17, ..BATCH }), Step::Do(Job::Commit));
}

#[test]
fn a_long_turn_without_a_batch_runs_at_once() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&Load { requests: 1000, ..NOTHING }), Step::Do(Job::Decide));
}

#[test]
fn each_job_is_done_by_one_thread_at_a_time() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&REQUEST), Step::Do(Job::Decide));
    assert_eq!(broker.next(&REQUEST_AND_BATCH), Step::Do(Job::Commit));
    assert_eq!(broker.next(&REQUEST_AND_BATCH), broker.sleep(1000));
    assert!(!broker.begins_inline_turn(&REQUEST));
}

#[test]
fn arrivals_wake_a_sleeping_thread_unless_a_thread_decides() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.report(Happened::Arrived), None, "all threads are awake and look for a job");
    assert_eq!(broker.next(&NOTHING), broker.sleep(200));
    assert_eq!(broker.report(Happened::Arrived), Some(Wake::Arrival));
    assert_eq!(broker.next(&REQUEST), Step::Do(Job::Decide));
    assert_eq!(broker.report(Happened::Arrived), None, "the thread that decides looks again");
}

#[test]
fn maintenance_comes_between_two_commits_when_it_is_due() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    broker.pass(200);
    broker.committed();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Maintenance));
    broker.maintained(0);
    assert_eq!(
        broker.next(&BATCH),
        Step::Do(Job::Commit),
        "maintenance that is due again waits for a commit"
    );
    broker.committed();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Maintenance));
}

#[test]
fn maintenance_waits_for_the_first_commit_but_not_for_nothing() {
    let mut broker = Clocked::settled();
    broker.pass(200);
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit), "no commit was made since the last maintenance");
    let mut broker = Clocked::settled();
    broker.pass(200);
    assert_eq!(broker.next(&NOTHING), Step::Do(Job::Maintenance));
}

#[test]
fn a_commit_that_wrote_nothing_is_repeated_after_its_pause() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    let retry_at = broker.at(50);
    assert_eq!(broker.report(Happened::WroteNothing { retry_at }), None);
    assert_eq!(broker.next(&BATCH), broker.sleep(50));
    assert_eq!(broker.schedule.wake_for_rest(&BATCH), None, "nobody is woken to wait");
    assert_eq!(broker.next(&REQUEST_AND_BATCH), Step::Do(Job::Decide), "turns go on");
    broker.decided(500);
    broker.pass(50);
    broker.woke(0);
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    broker.committed();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit), "the pause was for that commit");
}

#[test]
fn maintenance_goes_on_during_the_pause_of_a_commit() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    let retry_at = broker.at(400);
    broker.report(Happened::WroteNothing { retry_at });
    broker.pass(200);
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Maintenance));
    broker.maintained(300);
    assert_eq!(broker.next(&BATCH), broker.sleep(200));
}

#[test]
fn while_the_backlog_is_full_requests_wait_and_completions_do_not() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&FULL), broker.sleep(200));
    assert_eq!(broker.schedule.wake_for_rest(&FULL), None);
    assert!(!broker.begins_inline_turn(&FULL));
    let completion = Load { completions: 1, ..FULL };
    assert_eq!(broker.schedule.wake_for_rest(&completion), Some(Wake::Turn));
    assert_eq!(broker.next(&completion), Step::Do(Job::Decide));
}

#[test]
fn a_thread_sleeps_until_the_first_alarm_of_a_job_that_nobody_does() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    assert_eq!(broker.next(&NOTHING), broker.sleep(500), "the writer sees to maintenance");
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&REQUEST), Step::Do(Job::Decide));
    broker.maintained(700);
    assert_eq!(broker.next(&NOTHING), broker.sleep(700), "the thread that decides sees to the next turn");
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&REQUEST), Step::Do(Job::Decide));
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    assert_eq!(broker.next(&NOTHING), broker.sleep(1000), "no longer than the longest sleep");
}

#[test]
fn an_edge_runs_a_short_turn_when_nobody_decides() {
    let mut broker = Clocked::asleep();
    assert!(!broker.begins_inline_turn(&Load { requests: 17, ..NOTHING }));
    assert!(!broker.begins_inline_turn(&Load { completions: 17, ..REQUEST }));
    assert!(broker.begins_inline_turn(&REQUEST));
    assert!(!broker.begins_inline_turn(&REQUEST), "another edge");
    broker.decided(500);
    assert!(!broker.schedule.next_inline_turn(&NOTHING));
    assert!(broker.schedule.next_inline_turn(&COMPLETION));
    broker.decided(500);
    assert!(!broker.schedule.next_inline_turn(&Load { completions: 17, ..NOTHING }));
}

#[test]
fn during_a_commit_the_first_edge_gathers_and_the_others_leave_their_requests_to_it() {
    let mut broker = Clocked::committing();
    assert_eq!(broker.hand_over(&REQUEST), Handover::Gather);
    for requests in 2..=16 {
        let load = Load { requests, ..NOTHING };
        assert_eq!(broker.hand_over(&load), Handover::Other(None));
        assert_eq!(broker.schedule.wake_for_rest(&load), None, "the first edge looks again");
    }
    assert!(broker.schedule.end_gathering(&Load { requests: 16, ..NOTHING }));
    broker.decided(500);
    assert_eq!(broker.report(Happened::InlineFinished), None);
    assert_eq!(broker.hand_over(&REQUEST), Handover::Gather, "the next one gathers again");
}

#[test]
fn a_lone_publisher_is_not_delayed() {
    let mut broker = Clocked::asleep();
    for _ in 0..3 {
        assert_eq!(broker.hand_over(&REQUEST), Handover::Turn);
        broker.decided(500);
        broker.report(Happened::InlineFinished);
    }
}

#[test]
fn edges_gather_until_nobody_has_joined_for_a_while() {
    let mut broker = Clocked::committing();
    for _ in 0..3 {
        assert_eq!(broker.hand_over(&REQUEST), Handover::Gather, "the commit shows that there are others");
        broker.committed();
        for lonely in 0..16 {
            if lonely > 0 {
                assert_eq!(broker.hand_over(&REQUEST), Handover::Gather);
            }
            assert!(broker.schedule.end_gathering(&REQUEST));
            broker.decided(500);
            broker.report(Happened::InlineFinished);
        }
        assert_eq!(broker.hand_over(&REQUEST), Handover::Turn);
        assert_eq!(broker.hand_over(&REQUEST), Handover::Other(None), "the other edge decides");
        broker.decided(500);
        assert_eq!(broker.report(Happened::InlineFinished), None);
    }
}

#[test]
fn an_edge_that_cannot_gather_decides_at_once() {
    let mut broker = Clocked::committing();
    assert!(broker.begins_inline_turn(&REQUEST));
}

#[test]
fn too_many_gathered_requests_wake_a_thread() {
    let mut broker = Clocked::committing();
    assert_eq!(broker.hand_over(&REQUEST), Handover::Gather);
    let flood = Load { requests: 17, ..NOTHING };
    assert_eq!(broker.hand_over(&flood), Handover::Other(Some(Wake::Arrival)));
    assert_eq!(broker.schedule.wake_for_rest(&flood), Some(Wake::Turn));
    assert!(!broker.schedule.end_gathering(&flood));
    assert_eq!(broker.schedule.wake_for_rest(&flood), Some(Wake::Turn));
}

#[test]
fn completions_are_not_left_to_an_edge_that_gathers() {
    let mut broker = Clocked::committing();
    assert_eq!(broker.hand_over(&REQUEST), Handover::Gather);
    assert_eq!(broker.report(Happened::Arrived), Some(Wake::Arrival));
    let load = Load { completions: 1, ..REQUEST };
    assert_eq!(broker.schedule.wake_for_rest(&load), Some(Wake::Turn));
}

#[test]
fn a_thread_that_is_awake_takes_what_an_edge_gathers_and_the_edge_finds_nothing() {
    let mut broker = Clocked::committing();
    assert_eq!(broker.hand_over(&REQUEST), Handover::Gather);
    broker.committed();
    assert_eq!(broker.next(&REQUEST), Step::Do(Job::Decide));
    assert!(!broker.schedule.end_gathering(&NOTHING));
}

#[test]
fn a_gathering_that_is_dropped_wakes_a_thread() {
    let mut broker = Clocked::committing();
    assert_eq!(broker.hand_over(&REQUEST), Handover::Gather);
    assert_eq!(broker.report(Happened::GatheringDropped), Some(Wake::Arrival));
    assert_eq!(broker.schedule.wake_for_rest(&REQUEST), Some(Wake::Turn));
}

#[test]
fn an_edge_commits_a_lone_batch_while_everybody_else_sleeps() {
    let mut broker = Clocked::asleep();
    assert!(broker.begins_inline_turn(&REQUEST));
    broker.decided(500);
    for other in
        [NOTHING, REQUEST_AND_BATCH, Load { completions: 1, ..BATCH }, Load { batches: 2, ..NOTHING }]
    {
        assert!(!broker.schedule.begin_inline_commit(&other), "{other:?}");
    }
    assert!(broker.schedule.begin_inline_commit(&BATCH));
    assert_eq!(broker.schedule.wake_for_rest(&BATCH), None, "it is being committed");
    broker.committed();
    assert!(broker.schedule.next_inline_turn(&COMPLETION), "the edge also handles the outcome");
}

#[test]
fn an_edge_leaves_the_commit_to_the_workers_until_the_disk_was_quick() {
    let mut broker = Clocked::asleep();
    for (took, edge_commits) in [(21, false), (20, true)] {
        assert!(broker.begins_inline_turn(&REQUEST));
        broker.decided(500);
        broker.report(Happened::Committed { took: ms(took) });
        assert_eq!(broker.schedule.begin_inline_commit(&BATCH), edge_commits, "{took} ms");
        broker.report(Happened::InlineFinished);
    }
}

#[test]
fn an_edge_leaves_the_commit_to_the_workers_when_one_of_them_is_awake() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&NOTHING), broker.sleep(200));
    assert!(broker.begins_inline_turn(&REQUEST));
    broker.decided(500);
    assert!(!broker.schedule.begin_inline_commit(&BATCH));
    assert_eq!(broker.schedule.wake_for_rest(&BATCH), Some(Wake::Commit));
}

#[test]
fn an_edge_leaves_the_commit_to_the_workers_beside_another_edge() {
    let mut broker = Clocked::asleep();
    assert!(broker.begins_inline_turn(&REQUEST));
    broker.decided(500);
    assert!(broker.begins_inline_turn(&REQUEST_AND_BATCH));
    assert!(!broker.schedule.begin_inline_commit(&BATCH), "the other edge decides");
    broker.decided(500);
    assert!(!broker.schedule.begin_inline_commit(&BATCH), "the other edge has not finished");
    assert_eq!(broker.report(Happened::InlineFinished), None);
    assert!(broker.schedule.begin_inline_commit(&BATCH));
}

#[test]
fn an_edge_does_not_repeat_a_commit_that_wrote_nothing() {
    let mut broker = Clocked::asleep();
    assert!(broker.begins_inline_turn(&REQUEST));
    broker.decided(500);
    assert!(broker.schedule.begin_inline_commit(&BATCH));
    let retry_at = broker.at(50);
    broker.report(Happened::WroteNothing { retry_at });
    assert!(!broker.schedule.begin_inline_commit(&BATCH));
    assert_eq!(
        broker.schedule.wake_for_rest(&BATCH),
        Some(Wake::Alarm),
        "the retry comes before other alarms"
    );
}

#[test]
fn no_edge_commits_when_the_settings_forbid_it() {
    let mut broker = Clocked::with(false).after_start().with_both_asleep();
    assert!(broker.begins_inline_turn(&REQUEST));
    broker.decided(500);
    assert!(!broker.schedule.begin_inline_commit(&BATCH));
    assert_eq!(broker.schedule.wake_for_rest(&BATCH), Some(Wake::Commit));
}

#[test]
fn a_thread_is_woken_when_all_alarms_would_be_late() {
    let mut broker = Clocked::asleep();
    assert!(broker.begins_inline_turn(&REQUEST));
    broker.decided(100);
    assert_eq!(broker.schedule.wake_for_rest(&NOTHING), Some(Wake::Alarm));
    broker.woke(200);
    assert_eq!(broker.next(&NOTHING), broker.sleep(100));
    assert_eq!(broker.schedule.wake_for_rest(&NOTHING), None, "one of them is in time");
}

#[test]
fn nobody_is_woken_to_set_an_alarm_while_a_thread_decides() {
    let mut broker = Clocked::asleep();
    broker.maintained(50);
    assert_eq!(broker.schedule.wake_for_rest(&NOTHING), Some(Wake::Alarm));
    assert!(broker.begins_inline_turn(&REQUEST));
    assert_eq!(broker.schedule.wake_for_rest(&NOTHING), None);
}

#[test]
fn a_thread_that_goes_to_the_disk_wakes_another_for_the_engine_s_alarm() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&REQUEST), Step::Do(Job::Decide));
    assert_eq!(broker.next(&NOTHING), broker.sleep(200));
    broker.decided(100);
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    assert_eq!(broker.schedule.wake_for_rest(&NOTHING), Some(Wake::Alarm));
}

#[test]
fn nobody_is_woken_for_a_commit_that_a_deciding_thread_has_deferred() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&NOTHING), broker.sleep(200));
    assert_eq!(broker.next(&REQUEST_AND_BATCH), Step::Do(Job::Decide));
    assert_eq!(broker.schedule.wake_for_rest(&BATCH), None);
}

#[test]
fn nobody_is_woken_when_nobody_sleeps() {
    let broker = Clocked::settled();
    assert_eq!(broker.schedule.wake_for_rest(&REQUEST_AND_BATCH), None);
}

#[test]
fn a_store_that_has_failed_is_never_written_again() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    // The commit is not reported as over.
    broker.pass(400);
    assert_eq!(broker.next(&BATCH), broker.sleep(100));
    assert_eq!(broker.next(&COMPLETION), Step::Do(Job::Decide), "turns go on");
    broker.decided(500);
    assert_eq!(broker.report(Happened::Ended), Some(Wake::End));
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Retire));
    assert_eq!(broker.next(&BATCH), Step::Do(Job::End));
}

#[test]
fn at_the_end_the_owner_is_dropped_once_and_batches_are_committed() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.report(Happened::Ended), Some(Wake::End));
    assert!(broker.schedule.has_ended());
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Retire));
    assert_eq!(
        broker.report(Happened::Ended),
        Some(Wake::End),
        "the owner ends the inbox when it is dropped"
    );
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    assert_eq!(broker.next(&BATCH), Step::Do(Job::End), "the other thread");
    broker.committed();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit), "a commit holds only so much");
    broker.committed();
    assert_eq!(broker.next(&NOTHING), Step::Do(Job::End));
}

#[test]
fn a_thread_that_decides_at_the_end_drops_the_owner_itself() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&REQUEST), Step::Do(Job::Decide));
    broker.report(Happened::Ended);
    assert_eq!(broker.next(&NOTHING), Step::Do(Job::End), "the other thread");
    broker.decided(500);
    assert_eq!(broker.next(&NOTHING), Step::Do(Job::Retire));
    assert_eq!(broker.next(&NOTHING), Step::Do(Job::End));
}

#[test]
fn an_engine_that_has_panicked_is_never_run_again() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&REQUEST), Step::Do(Job::Decide));
    // The turn is not reported as over, but unwinding ends the inbox.
    broker.report(Happened::Ended);
    assert_eq!(broker.next(&REQUEST_AND_BATCH), Step::Do(Job::Commit));
    broker.committed();
    assert_eq!(broker.next(&REQUEST), Step::Do(Job::End));
}

#[test]
fn after_the_end_a_commit_is_tried_once_more_without_its_pause() {
    let mut broker = Clocked::settled();
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
    let retry_at = broker.at(50);
    broker.report(Happened::WroteNothing { retry_at });
    broker.report(Happened::Ended);
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Retire));
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Commit));
}

#[test]
fn the_end_waits_for_every_edge_and_the_last_one_wakes_the_threads() {
    let mut broker = Clocked::asleep();
    assert!(broker.begins_inline_turn(&REQUEST));
    broker.decided(500);
    assert!(broker.begins_inline_turn(&REQUEST));
    broker.decided(500);
    broker.report(Happened::Ended);
    broker.woke(200);
    assert_eq!(broker.next(&BATCH), broker.sleep(1000));
    assert!(!broker.schedule.next_inline_turn(&REQUEST), "no edge begins anything after the end");
    assert!(!broker.begins_inline_turn(&REQUEST));
    assert!(!broker.schedule.begin_inline_commit(&BATCH));
    assert_eq!(broker.schedule.wake_for_rest(&BATCH), None);
    assert_eq!(broker.report(Happened::InlineFinished), None);
    assert_eq!(broker.report(Happened::InlineFinished), Some(Wake::LastInline));
    broker.woke(1000);
    assert_eq!(broker.next(&BATCH), Step::Do(Job::Retire));
}

/// A thread that slept until such an alarm would return at once, for as long as the commit takes.
#[test]
fn after_the_end_a_thread_that_waits_for_an_edge_heeds_no_alarm_that_has_passed() {
    let mut broker = Clocked::asleep();
    assert!(broker.begins_inline_turn(&REQUEST));
    broker.decided(10);
    assert!(broker.schedule.begin_inline_commit(&BATCH));
    broker.report(Happened::Ended);
    broker.woke(200);
    broker.pass(300);
    assert_eq!(broker.next(&NOTHING), broker.sleep(1000));
}

#[test]
fn only_the_end_wakes_all_threads() {
    let for_all = |wakes: &[Wake]| wakes.iter().all(|wake| wake.is_for_all());
    assert!(for_all(&[Wake::End, Wake::LastInline]));
    assert!([Wake::Arrival, Wake::Turn, Wake::Commit, Wake::Alarm].iter().all(|wake| !wake.is_for_all()));
}
