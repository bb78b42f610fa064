//! The faults of the simulated worlds, and how often each has happened.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The process dies; data that was handed to the operating system stays.
    Kill,
    /// The machine dies; only synced data is sure to stay.
    PowerLoss,
    /// A power loss took a confirmed commit that was not synced.
    LostCommit,
    CommitFailed,
    CommitSlow,
    ReadFailed,
    Stop,
    WallStep,
    /// The wall clock was off by hours or days for a moment.
    FarStep,
    Disconnect,
    /// A consumer received an event and never acked or nacked it.
    Vanished,
    LateAck,
    DuplicateAck,
    StrayAck,
    Nack,
    /// A consumer gave back an event that it had not looked at.
    GiveBack,
    Congested,
    Unsubscribe,
    Seek,
    Reset,
    Grow,
    DeleteTopic,
    FilterConflict,
    Resent,
    /// Another process committed to the same store.
    Neighbour,
    /// Retention removed events while handlers ran.
    Trimmed,
    /// A handler ended its process.
    HandlerKill,
    /// An effect run was cancelled.
    Cancelled,
    /// The engine of effect runs refused a start or an input, or a loop refused a write, because a limit was reached.
    Refused,
    /// A guest wrote a frame that is wrong or cut, or bytes that are no frame.
    BadFrame,
    /// A handle of a guest ended; its number may be used again.
    HandleEnded,
    /// The poller refused registrations for a while.
    NoSpace,
    /// The engine was told late what the poller had found.
    LateReport,
    /// A waiting POLL was interrupted, or the next one was.
    Interrupted,
    /// A process or machine was stopped for a while and went on.
    Freeze,
    /// A server could not reach the engine of its store.
    Cut,
    /// No server could reach the engine.
    EngineAway,
    LostRequest,
    LostAnswer,
    /// A request reached the engine after its sender had given up.
    LateRequest,
    /// A request was carried out twice.
    Repeated,
    SlowRequest,
    /// A part of a snapshot was stored only in part.
    TornUpload,
    /// A loss of power took the end of a copy.
    CopyShortened,
    /// A write to a copy failed.
    CopyFailed,
    /// The engine came back without its newest records.
    TailLost,
    RecordsDeleted,
    /// A record was placed under a number that was free again.
    NumberReused,
    ManifestSet,
    LeadTaken,
    /// A shared store ended for its process, which starts over.
    StoreEnded,
    /// A shared store could not be opened, which is tried again.
    OpenFailed,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::PowerLoss => "power_loss",
            Fault::LostCommit => "lost_commit",
            Fault::CommitFailed => "commit_failed",
            Fault::CommitSlow => "commit_slow",
            Fault::ReadFailed => "read_failed",
            Fault::Stop => "stop",
            Fault::WallStep => "wall_step",
            Fault::FarStep => "far_step",
            Fault::Disconnect => "disconnect",
            Fault::Vanished => "vanished",
            Fault::LateAck => "late_ack",
            Fault::DuplicateAck => "duplicate_ack",
            Fault::StrayAck => "stray_ack",
            Fault::Nack => "nack",
            Fault::GiveBack => "give_back",
            Fault::Congested => "congested",
            Fault::Unsubscribe => "unsubscribe",
            Fault::Seek => "seek",
            Fault::Reset => "reset",
            Fault::Grow => "grow",
            Fault::DeleteTopic => "delete_topic",
            Fault::FilterConflict => "filter_conflict",
            Fault::Resent => "resent",
            Fault::Neighbour => "neighbour",
            Fault::Trimmed => "trimmed",
            Fault::HandlerKill => "handler_kill",
            Fault::Cancelled => "cancelled",
            Fault::Refused => "refused",
            Fault::BadFrame => "bad_frame",
            Fault::HandleEnded => "handle_ended",
            Fault::NoSpace => "no_space",
            Fault::LateReport => "late_report",
            Fault::Interrupted => "interrupted",
            Fault::Freeze => "freeze",
            Fault::Cut => "cut",
            Fault::EngineAway => "engine_away",
            Fault::LostRequest => "lost_request",
            Fault::LostAnswer => "lost_answer",
            Fault::LateRequest => "late_request",
            Fault::Repeated => "repeated",
            Fault::SlowRequest => "slow_request",
            Fault::TornUpload => "torn_upload",
            Fault::CopyShortened => "copy_shortened",
            Fault::CopyFailed => "copy_failed",
            Fault::TailLost => "tail_lost",
            Fault::RecordsDeleted => "records_deleted",
            Fault::NumberReused => "number_reused",
            Fault::ManifestSet => "manifest_set",
            Fault::LeadTaken => "lead_taken",
            Fault::StoreEnded => "store_ended",
            Fault::OpenFailed => "open_failed",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<Fault, u64>);

impl FaultCounts {
    pub fn add(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    pub fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }

    pub fn merge(&mut self, other: &FaultCounts) {
        for (fault, count) in &other.0 {
            *self.0.entry(*fault).or_default() += count;
        }
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (fault, count)) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{}={count}", fault.name())?;
        }
        Ok(())
    }
}
