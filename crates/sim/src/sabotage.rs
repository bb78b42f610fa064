//! The engine's deliberate bugs, and which invariant must notice each.

use millrace_bus::Sabotage;
use millrace_claims::Sabotage as ClaimsSabotage;
use millrace_router::Sabotage as RouterSabotage;

pub const ALL: [Sabotage; 9] = [
    Sabotage::AnswerBeforeCommit,
    Sabotage::CommitPassesHole,
    Sabotage::KeepLeasesOfClosed,
    Sabotage::IgnoreWindow,
    Sabotage::DoubleLease,
    Sabotage::DeadLetterApart,
    Sabotage::CountTooHigh,
    Sabotage::NoWakeOnAck,
    Sabotage::LoseTail,
];

/// Whichever of them comes first in a seed is reported.
pub fn expected(sabotage: Sabotage) -> &'static [&'static str] {
    match sabotage {
        Sabotage::AnswerBeforeCommit => &["durable_first"],
        Sabotage::CommitPassesHole => &["commit_passes_finished_only"],
        Sabotage::KeepLeasesOfClosed => &["no_ready_work_asleep"],
        Sabotage::IgnoreWindow => &["window_and_credits"],
        Sabotage::DoubleLease => &["one_lease"],
        Sabotage::DeadLetterApart => &["dead_letter_whole", "commit_passes_finished_only"],
        Sabotage::CountTooHigh => &["attempts_true"],
        Sabotage::NoWakeOnAck => &["no_ready_work_asleep"],
        Sabotage::LoseTail => &["no_ready_work_asleep", "all_finished"],
    }
}

pub fn parse(name: &str) -> Option<Sabotage> {
    ALL.into_iter().find(|sabotage| format!("{sabotage:?}").eq_ignore_ascii_case(name))
}

pub const CLAIMS: [ClaimsSabotage; 6] = [
    ClaimsSabotage::AckWithoutFence,
    ClaimsSabotage::NeverGiveUp,
    ClaimsSabotage::EmitBeforeAck,
    ClaimsSabotage::ForgetSteps,
    ClaimsSabotage::FireWithoutFence,
    ClaimsSabotage::TrimUnfinished,
];

pub fn expected_of_claims(sabotage: ClaimsSabotage) -> &'static [&'static str] {
    match sabotage {
        ClaimsSabotage::AckWithoutFence => &["lease_respected", "ended_once", "one_place"],
        ClaimsSabotage::NeverGiveUp => &["gives_up"],
        ClaimsSabotage::EmitBeforeAck => &["emitted_with_ack"],
        ClaimsSabotage::ForgetSteps => &["stored_once"],
        ClaimsSabotage::FireWithoutFence => &["fired_once", "stored_once"],
        ClaimsSabotage::TrimUnfinished => &["trims_finished_only"],
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
