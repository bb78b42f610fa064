//! No work is ready while everyone sleeps: if an event can be delivered and a member has room and credits, the engine
//! has delivered it.

use millrace_bus::ConnId;
use millrace_model::{Offset, Partition, TopicKey};

use super::Checker;
use crate::facts::Facts;
use crate::ledger::is_done;
use crate::place::{Seat, Spot};
use crate::seen::Seen;
use crate::traffic::{Acked, Conn};

/// How soon the engine must know what another process appended: enough for a few looks around, a failed lookup and its
/// retry.
const NEIGHBOUR_HEARD_MS: u64 = 1000;

pub(super) struct Awake;

impl Checker for Awake {
    fn name(&self) -> &'static str {
        "no_ready_work_asleep"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        let retrying =
            facts.read_failed_ms.is_some_and(|at_ms| facts.now_ms <= at_ms + facts.limits.read_retry_ms);
        if !matches!(seen, Seen::Idle) || facts.ending || retrying {
            return Ok(());
        }
        let heard = |topic: &TopicKey| {
            facts.neighbours_ms.get(topic).is_none_or(|at_ms| facts.now_ms > at_ms + NEIGHBOUR_HEARD_MS)
        };
        let seats = facts.ledger.groups.keys().filter(|seat| !facts.traffic.is_moving(seat));
        for seat in seats.filter(|seat| heard(&seat.topic)) {
            let sticky = facts.sticky.contains(seat);
            let Some(conn) = with_room(facts, seat, sticky) else { continue };
            let partitions = facts.ledger.topics.get(&seat.topic).map_or(0, |config| config.partitions);
            for spot in (0..partitions).map(|partition| seat.spot(Partition(partition))) {
                if let Some(offset) = ready(facts, &spot, sticky) {
                    return Err(format!("{spot} at {offset} is ready, {conn} has room, and everyone sleeps"));
                }
            }
        }
        Ok(())
    }
}

/// Returns a member that can take an event. In a sticky group the event may belong to any member, so all of them must
/// have room.
fn with_room(facts: &Facts, seat: &Seat, all: bool) -> Option<String> {
    let conns = facts.traffic.conns.iter().filter(|(_, conn)| conn.closed_in_turn.is_none());
    let members = conns.filter(|(_, conn)| conn.members.contains_key(seat));
    let has_room = |(id, conn): &(&ConnId, &Conn)| {
        let held = || facts.traffic.held_by(**id, seat, |item| item.possibly_held(facts.now_ms));
        !conn.congested
            && conn.credits != Some(0)
            && conn
                .members
                .get(seat)
                .is_some_and(|member| member.active && held() < member.window_min as usize)
    };
    let (with, without): (Vec<_>, Vec<_>) = members.partition(has_room);
    let found = with.first().filter(|_| !all || without.is_empty());
    found.map(|(id, _)| format!("{id:?}"))
}

/// Returns an event that is ready. In a sticky group only the lowest unfinished event is sure not to wait for another
/// one of its key.
fn ready(facts: &Facts, spot: &Spot, sticky: bool) -> Option<Offset> {
    let stream = spot.stream();
    let (start, next) = facts.ledger.bounds(&stream);
    let row = facts.ledger.cursor(spot);
    let unfinished = (row.committed.0 + 1..next.0).map(Offset).filter(|offset| *offset >= start);
    let unfinished = unfinished.filter(|offset| !is_done(&row, *offset));
    // An event that retention has removed is still with the engine if it was sent.
    let removed = facts.traffic.items.get(spot).into_iter().flatten().any(|(offset, item)| {
        *offset < start && !is_done(&row, *offset) && item.sends_this_life > 0 && item.acked == Acked::No
    });
    let mut candidates = unfinished.take(match sticky {
        true if removed => 0,
        true => 1,
        false => usize::MAX,
    });
    candidates.find(|offset| {
        let item = facts.traffic.item(spot, *offset).cloned().unwrap_or_default();
        let held = item.possibly_held(facts.now_ms).is_some();
        // A delay from before a restart is counted in wall time, which may have stepped since. That such delays end is
        // checked at the end of the world.
        let told_to_wait = facts.ledger.tries.get(&(spot.clone(), *offset)).and_then(|row| row.not_before);
        let waits =
            item.not_before_ms >= facts.now_ms || (item.sends_this_life == 0 && told_to_wait.is_some());
        !held
            && !waits
            && item.acked == Acked::No
            && !facts.may_be_filtered(&spot.seat, facts.ledger.event(&stream, *offset))
    })
}
