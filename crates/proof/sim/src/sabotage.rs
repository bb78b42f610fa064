//! The engine's deliberate bugs, and which invariant must notice each.

use crate::claims::Sabotage as ClaimsSabotage;
use crate::cluster::Sabotage as ClusterSabotage;
use crate::reactor::Sabotage as ReactorSabotage;
use crate::router::Sabotage as RouterSabotage;
use crate::runs::Sabotage as RunsSabotage;
use crate::world::Sabotage;

pub const ALL: [Sabotage; 16] = [
    Sabotage::AnswerBeforeCommit,
    Sabotage::CommitPassesHole,
    Sabotage::AckCompletesLaterDelivery,
    Sabotage::ForgetKeys,
    Sabotage::BlameAll,
    Sabotage::KeepLeasesOfClosed,
    Sabotage::IgnoreWindow,
    Sabotage::DoubleLease,
    Sabotage::DeadLetterApart,
    Sabotage::CountTooHigh,
    Sabotage::NoWakeOnAck,
    Sabotage::LoseTail,
    Sabotage::SlipPastSchema,
    Sabotage::TrustEveryAge,
    Sabotage::DelayByWall,
    Sabotage::BelieveEveryStep,
];

/// The invariants of which a seed must report one: whichever it violates first.
pub fn expected(sabotage: Sabotage) -> &'static [&'static str] {
    match sabotage {
        Sabotage::AnswerBeforeCommit => &["durable_first"],
        Sabotage::CommitPassesHole => &["commit_passes_finished_only"],
        Sabotage::AckCompletesLaterDelivery => &["commit_passes_finished_only"],
        Sabotage::ForgetKeys => &["keys_in_order"],
        Sabotage::BlameAll => &["attempts_true"],
        Sabotage::KeepLeasesOfClosed => &["no_ready_work_asleep"],
        Sabotage::IgnoreWindow => &["window_and_credits"],
        Sabotage::DoubleLease => &["one_lease"],
        Sabotage::DeadLetterApart => &["dead_letter_whole", "commit_passes_finished_only"],
        Sabotage::CountTooHigh => &["attempts_true"],
        Sabotage::NoWakeOnAck => &["no_ready_work_asleep"],
        Sabotage::LoseTail => &["no_ready_work_asleep", "all_finished"],
        Sabotage::SlipPastSchema => &["schema_kept"],
        Sabotage::TrustEveryAge => &["trimmed_by_rule"],
        Sabotage::DelayByWall => &["delayed_on_time", "one_lease", "all_finished"],
        Sabotage::BelieveEveryStep => &["stored_once", "trimmed_by_rule"],
    }
}

pub fn parse(name: &str) -> Option<Sabotage> {
    ALL.into_iter().find(|sabotage| format!("{sabotage:?}").eq_ignore_ascii_case(name))
}

pub const CLAIMS: [ClaimsSabotage; 9] = [
    ClaimsSabotage::AckWithoutFence,
    ClaimsSabotage::NeverGiveUp,
    ClaimsSabotage::EmitBeforeAck,
    ClaimsSabotage::ForgetSteps,
    ClaimsSabotage::FireWithoutFence,
    ClaimsSabotage::TrimUnfinished,
    ClaimsSabotage::CountUnstarted,
    ClaimsSabotage::TrustSuspects,
    ClaimsSabotage::ForgetOrder,
];

pub fn expected_of_claims(sabotage: ClaimsSabotage) -> &'static [&'static str] {
    match sabotage {
        ClaimsSabotage::AckWithoutFence => &["lease_respected", "ended_once", "one_place"],
        ClaimsSabotage::NeverGiveUp => &["gives_up"],
        ClaimsSabotage::EmitBeforeAck => &["emitted_with_ack"],
        ClaimsSabotage::ForgetSteps => &["stored_once"],
        ClaimsSabotage::FireWithoutFence => &["fired_once", "stored_once"],
        ClaimsSabotage::TrimUnfinished => &["trims_finished_only"],
        ClaimsSabotage::CountUnstarted => &["attempts_are_runs"],
        // An event that ends its process is then never counted as an attempt, and so never ends.
        ClaimsSabotage::TrustSuspects => &["nothing_lost"],
        ClaimsSabotage::ForgetOrder => &["order_per_key"],
    }
}

pub fn parse_claims(name: &str) -> Option<ClaimsSabotage> {
    CLAIMS.into_iter().find(|sabotage| format!("{sabotage:?}").eq_ignore_ascii_case(name))
}

pub const ROUTER: [RouterSabotage; 7] = [
    RouterSabotage::IgnoreGeneration,
    RouterSabotage::StarveUsers,
    RouterSabotage::FireEarly,
    RouterSabotage::ForgetRow,
    RouterSabotage::KeepPending,
    RouterSabotage::OverfillMailbox,
    RouterSabotage::BelieveCauses,
];

pub fn expected_of_router(sabotage: RouterSabotage) -> &'static [&'static str] {
    match sabotage {
        RouterSabotage::IgnoreGeneration => &["right_generation"],
        RouterSabotage::StarveUsers => &["user_starts"],
        RouterSabotage::FireEarly => &["timer_never_early"],
        RouterSabotage::ForgetRow => &["timer_never_lost"],
        RouterSabotage::KeepPending => &["duplicate_is_real"],
        RouterSabotage::OverfillMailbox => &["mailbox_bound"],
        RouterSabotage::BelieveCauses => &["true_causes"],
    }
}

pub fn parse_router(name: &str) -> Option<RouterSabotage> {
    ROUTER.into_iter().find(|sabotage| format!("{sabotage:?}").eq_ignore_ascii_case(name))
}

pub const RUNS: [RunsSabotage; 7] = [
    RunsSabotage::AnyStep,
    RunsSabotage::WakeEarly,
    RunsSabotage::PushFront,
    RunsSabotage::KeepTimers,
    RunsSabotage::IgnoreBudget,
    RunsSabotage::IgnoreCancel,
    RunsSabotage::ForgetRelease,
];

pub fn expected_of_runs(sabotage: RunsSabotage) -> &'static [&'static str] {
    match sabotage {
        RunsSabotage::AnyStep => &["late_dropped"],
        RunsSabotage::WakeEarly => &["timer_never_early"],
        RunsSabotage::PushFront => &["turns_taken"],
        RunsSabotage::KeepTimers => &["engine_consistent"],
        RunsSabotage::IgnoreBudget => &["budget_kept"],
        RunsSabotage::IgnoreCancel => &["late_dropped"],
        RunsSabotage::ForgetRelease => &["released_once"],
    }
}

pub fn parse_runs(name: &str) -> Option<RunsSabotage> {
    RUNS.into_iter().find(|sabotage| format!("{sabotage:?}").eq_ignore_ascii_case(name))
}

pub const REACTOR: [ReactorSabotage; 16] = [
    ReactorSabotage::FirstWatchFirst,
    ReactorSabotage::WatchesBeforeTimers,
    ReactorSabotage::FireEarly,
    ReactorSabotage::DropCoalesced,
    ReactorSabotage::DriftFromGrid,
    ReactorSabotage::MoreWhenFull,
    ReactorSabotage::KeepEndedHandle,
    ReactorSabotage::ForgetWatchOnReuse,
    ReactorSabotage::ExecuteWhenFull,
    ReactorSabotage::NeverStartOver,
    ReactorSabotage::NeverEdge,
    ReactorSabotage::NeverLevelAgain,
    ReactorSabotage::OneShotTwice,
    ReactorSabotage::LatestArmedFirst,
    ReactorSabotage::SleepThroughTimers,
    ReactorSabotage::OneEventTooMany,
];

pub fn expected_of_reactor(sabotage: ReactorSabotage) -> &'static [&'static str] {
    match sabotage {
        ReactorSabotage::FirstWatchFirst => &["watch_within_bound"],
        ReactorSabotage::WatchesBeforeTimers => &["sides_share"],
        ReactorSabotage::FireEarly => &["timer_never_early"],
        ReactorSabotage::DropCoalesced => &["nothing_lost"],
        ReactorSabotage::DriftFromGrid => &["timer_on_grid"],
        ReactorSabotage::MoreWhenFull => &["more_exact"],
        ReactorSabotage::KeepEndedHandle => &["only_what_is_watched"],
        ReactorSabotage::ForgetWatchOnReuse => &["nothing_lost"],
        ReactorSabotage::ExecuteWhenFull => &["refused_before_executed"],
        ReactorSabotage::NeverStartOver => &["bad_frame_harms_none"],
        ReactorSabotage::NeverEdge => &["no_busy_loop"],
        ReactorSabotage::NeverLevelAgain => &["ready_is_heard"],
        ReactorSabotage::OneShotTwice => &["timer_once"],
        ReactorSabotage::LatestArmedFirst => &["timers_in_order"],
        ReactorSabotage::SleepThroughTimers => &["wakes_in_time"],
        ReactorSabotage::OneEventTooMany => &["queues_bounded"],
    }
}

pub fn parse_reactor(name: &str) -> Option<ReactorSabotage> {
    REACTOR.into_iter().find(|sabotage| format!("{sabotage:?}").eq_ignore_ascii_case(name))
}

pub const CLUSTER: [ClusterSabotage; 12] = [
    ClusterSabotage::TwoWriters,
    ClusterSabotage::UnknownIsYes,
    ClusterSabotage::UnknownIsTaken,
    ClusterSabotage::ReadReplica,
    ClusterSabotage::TrustEveryPlacing,
    ClusterSabotage::IgnoreDeposed,
    ClusterSabotage::ForgetLead,
    ClusterSabotage::SkipRecords,
    ClusterSabotage::CopyAhead,
    ClusterSabotage::SnapshotAhead,
    ClusterSabotage::TrimAtOnce,
    ClusterSabotage::NobodyTakesOver,
];

pub fn expected_of_cluster(sabotage: ClusterSabotage) -> &'static [&'static str] {
    match sabotage {
        ClusterSabotage::TwoWriters => &["acked_is_in_the_journal", "one_record_after_the_other"],
        ClusterSabotage::UnknownIsYes => &["acked_is_in_the_journal"],
        ClusterSabotage::UnknownIsTaken => &["stored_once"],
        ClusterSabotage::ReadReplica => &["answers_of_the_present", "no_false_alarm"],
        ClusterSabotage::TrustEveryPlacing => &["one_record_after_the_other"],
        ClusterSabotage::IgnoreDeposed => &["only_the_leader_writes"],
        ClusterSabotage::ForgetLead => &["one_term_after_the_other"],
        ClusterSabotage::SkipRecords => &["copies_equal"],
        ClusterSabotage::CopyAhead => &["copies_equal"],
        ClusterSabotage::SnapshotAhead => &["copies_equal", "no_false_alarm", "restores"],
        ClusterSabotage::TrimAtOnce => &["acked_is_in_the_journal"],
        ClusterSabotage::NobodyTakesOver => &["somebody_leads"],
    }
}

pub fn parse_cluster(name: &str) -> Option<ClusterSabotage> {
    CLUSTER.into_iter().find(|sabotage| format!("{sabotage:?}").eq_ignore_ascii_case(name))
}
