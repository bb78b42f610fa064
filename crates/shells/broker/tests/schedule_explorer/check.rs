//! The properties that every world must have.

use crate::world::{At, Kind, World};

/// Checks a world, whoever may go on.
pub(crate) fn always(world: &World) -> Result<(), &'static str> {
    if let Some(violation) = world.violation {
        return Err(violation);
    }
    if world.is(|at| matches!(at, At::Decides { .. } | At::Decided)) > 1 {
        return Err("two threads decide");
    }
    if world.is(|at| matches!(at, At::Commits { .. } | At::Committed | At::Maintains)) > 1 {
        return Err("two threads write");
    }
    let gone = |index: usize| world.threads[index].at == At::Gone;
    if gone(0) && gone(1) {
        let is_inline =
            |at: &At| matches!(at, At::Decides { .. } | At::Decided | At::Commits { .. } | At::Committed);
        if world.is(is_inline) > 0 {
            return Err("the workers have ended before an edge");
        }
        if world.has_engine {
            return Err("the workers have ended and the engine is still there");
        }
        if world.batches > 0 && !world.has_failed {
            return Err("the workers have ended and batches are left");
        }
    }
    Ok(())
}

/// Checks a world where nobody goes on by itself: threads sleep, are gone, or are at the disk, perhaps for ever.
pub(crate) fn at_rest(world: &World) -> Result<(), &'static str> {
    let alarm = world.threads.iter().filter_map(|thread| match thread.at {
        At::Sleeps { until, .. } => Some(until),
        _ => None,
    });
    let alarm = alarm.min();
    if world.schedule.has_ended() {
        let at_the_disk = world.is_writing();
        return match alarm {
            Some(_) if !at_the_disk => Err("a thread sleeps although it is to end"),
            _ => Ok(()),
        };
    }
    let load = world.load();
    if world.has_engine && (load.completions > 0 || (load.requests > 0 && load.accepts_requests)) {
        return Err("inputs wait and nobody decides");
    }
    let Some(alarm) = alarm else { return Ok(()) };
    // While an edge commits, the engine's alarm may be late by as long as the commit takes, at most by the longest
    // sleep: no thread is woken before the commit only to set an earlier alarm.
    let inline_commit = world
        .threads
        .iter()
        .any(|thread| matches!(thread.kind, Kind::Edge(_)) && matches!(thread.at, At::Commits { .. }));
    if !inline_commit && world.decide_at < alarm {
        return Err("the engine must run and every thread sleeps longer");
    }
    if world.is_writing() || world.has_failed {
        return Ok(());
    }
    if load.batches > 0 && world.commit_at.is_none() {
        return Err("batches wait and nobody commits");
    }
    if load.batches > 0 && world.commit_at.is_some_and(|at| at < alarm) {
        return Err("a commit is to be repeated and every thread sleeps longer");
    }
    if world.is_told {
        return Err("others have committed and nobody polls");
    }
    if world.maintenance_at < alarm {
        return Err("maintenance is due and every thread sleeps longer");
    }
    Ok(())
}

/// Whether everything is over.
pub(crate) fn is_over(world: &World) -> bool {
    [0, 1].iter().all(|index| world.threads[*index].at == At::Gone)
}
