//! The way between a process and the engine. Requests and answers get lost, come late or twice; the engine cannot be
//! reached for a while; the process may be stopped or killed while it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use millrace_journal::{
    Fitness, Journal, JournalError, JournalReadLimit, ManifestRead, ManifestVersion, PartName, Placed,
    Placing,
};

use super::engine::SentRecord;
use super::hub::{Hub, State};
use super::sabotage::Sabotage;
use super::truth::violation;
use super::{Happening, Writer};
use crate::dice::Dice;
use crate::fault::Fault;

/// The longest time that a request is on its way after its sender has given up. Far less than the grace time of
/// trimming.
pub(super) const LATE_MS_MAX: u64 = 20_000;

/// The engine's clock when the world begins. Nobody compares it with another clock.
const ENGINE_START_MS: u64 = 1_600_000_000_000;

pub(super) struct Wire {
    hub: Arc<Hub>,
    server: usize,
    life: u64,
    tells_time: bool,
    /// The time of the engine's clock in the newest answer.
    engine_ms: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Check,
    Place,
    Read,
    Manifest,
    SetManifest,
    PutPart,
    GetPart,
    Parts,
    DeletePart,
    DeleteBelow,
}

impl Call {
    /// Returns whether the keeper of a handle makes this request without holding the handle's turn.
    fn is_beside_commits(self) -> bool {
        matches!(self, Call::SetManifest | Call::PutPart | Call::Parts | Call::DeletePart | Call::DeleteBelow)
    }
}

/// A request that arrives although its sender has given up.
#[derive(Clone, Debug)]
pub(super) enum LateRequest {
    Place(SentRecord),
    SetManifest { new: Bytes, was: Option<ManifestVersion> },
}

/// Why a process cannot reach the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Connections are refused at once.
    Refused,
    /// Requests vanish, and are given up after the deadline.
    BlackHole,
    /// Requests arrive, answers do not.
    HalfOpen,
}

/// The fate of one request.
#[derive(Clone, Copy, Debug)]
struct Passage {
    /// The time until the request arrives; `None` if it does not.
    there_ms: Option<u64>,
    /// The time until the answer arrives, or until the sender gives up.
    back_ms: u64,
    is_answered: bool,
    is_repeated: bool,
    is_torn: bool,
    /// The request arrives this long after its sender has given up.
    late_ms: Option<u64>,
}

impl Wire {
    pub(super) fn new(hub: Arc<Hub>, writer: Writer, tells_time: bool) -> Wire {
        let Writer { server, life } = writer;
        Wire { hub, server, life, tells_time, engine_ms: AtomicU64::new(0) }
    }

    fn writer(&self) -> Writer {
        Writer { server: self.server, life: self.life }
    }

    fn request<T>(
        &self,
        call: Call,
        late: impl FnOnce() -> Option<LateRequest>,
        send: impl Fn(&mut State, bool) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let (passage, was_in_turn) = {
            let mut state = self.hub.lock();
            if state.now_ms() > state.over_ms {
                let detail = format!("a call of {} does not end although nothing is wrong", self.writer());
                state.fail(violation("somebody_leads", detail));
            }
            state.ensure_alive(self.writer())?;
            let passage = state.passage(self.server, call);
            if let Some(late_ms) = passage.late_ms {
                let at_ms = self.hub.now_ms() + late_ms;
                match late() {
                    Some(request) => {
                        state.faults.add(Fault::LateRequest);
                        let (by, losses) = (self.writer(), state.truth.losses);
                        let request = Box::new(request);
                        state.schedule.at(at_ms, Happening::Arrive { by, losses, request });
                    }
                    None => state.faults.add(Fault::LostRequest),
                }
            }
            let server = &mut state.servers[self.server];
            let was_in_turn = server.is_in_turn;
            server.is_in_turn &= !call.is_beside_commits();
            (passage, was_in_turn)
        };
        let losses = self.hub.lock().truth.losses;
        let answer = self.pass(passage, losses, send);
        let mut state = self.hub.lock();
        if state.is_alive(self.writer()) {
            state.servers[self.server].is_in_turn = was_in_turn;
        }
        state.ensure_alive(self.writer())?;
        answer
    }

    fn pass<T>(
        &self,
        passage: Passage,
        losses: u64,
        send: impl Fn(&mut State, bool) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let answer = passage.there_ms.map(|there_ms| {
            // A request is on its way, whatever happens to its sender meanwhile.
            self.hub.run_until(self.hub.now_ms() + there_ms);
            let mut state = self.hub.lock();
            if state.truth.losses != losses {
                return (Err(JournalError::Unknown("the engine has failed over".into())), 0);
            }
            if passage.is_repeated {
                let _ = send(&mut state, false);
            }
            let answer = send(&mut state, passage.is_torn);
            (answer, state.now_ms())
        });
        self.hub.wait(self.server, self.life, passage.back_ms);
        let is_answered = passage.is_answered && self.hub.lock().truth.losses == losses;
        match answer {
            Some((answer, engine_ms)) if is_answered => {
                self.engine_ms.fetch_max(ENGINE_START_MS + engine_ms, Relaxed);
                answer
            }
            _ => Err(JournalError::Unknown("no answer in time".into())),
        }
    }

    fn plain<T>(
        &self,
        call: Call,
        send: impl Fn(&mut State) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        self.request(call, || None, |state, _| send(state))
    }
}

impl State {
    /// A process that is gone gets no answer it could act on: every loop of it ends.
    fn ensure_alive(&self, writer: Writer) -> Result<(), JournalError> {
        if self.is_alive(writer) && self.violation.is_none() {
            return Ok(());
        }
        Err(JournalError::Refused("this process is gone".into()))
    }

    fn passage(&mut self, server: usize, call: Call) -> Passage {
        let now_ms = self.now_ms();
        let (deadline_ms, rates) = (self.plan.deadline_ms, self.plan.rates.clone());
        let cut = self.servers[server].cut.filter(|(_, until_ms)| now_ms < *until_ms).map(|(cut, _)| cut);
        let is_calm = self.calm;
        let is_reset = std::mem::take(&mut self.servers[server].is_reset);
        let dice = &mut self.servers[server].wire_dice;
        let plain = Passage {
            there_ms: Some(dice.between(1, 15)),
            back_ms: dice.between(1, 15),
            is_answered: true,
            is_repeated: false,
            is_torn: false,
            late_ms: None,
        };
        let given_up = Passage { there_ms: None, back_ms: deadline_ms, is_answered: false, ..plain };
        if is_reset {
            return Passage { back_ms: 1, ..given_up };
        }
        match cut {
            Some(Cut::Refused) => return Passage { back_ms: dice.between(1, 50), ..given_up },
            Some(Cut::BlackHole) => return given_up,
            Some(Cut::HalfOpen) => return Passage { there_ms: plain.there_ms, ..given_up },
            None if is_calm => return plain,
            None => {}
        }
        if dice.chance(rates.lost_request) {
            self.faults.add(Fault::LostRequest);
            return given_up;
        }
        if dice.chance(rates.lost_answer) {
            // A part of a snapshot may have been stored only in part when its connection was lost.
            let is_torn = call == Call::PutPart && dice.chance(500);
            self.faults.add(if is_torn { Fault::TornUpload } else { Fault::LostAnswer });
            return Passage { there_ms: plain.there_ms, is_torn, ..given_up };
        }
        if dice.chance(rates.late) {
            let late_ms = Some(deadline_ms + lateness_ms(dice));
            return Passage { late_ms, ..given_up };
        }
        if dice.chance(rates.repeated) {
            self.faults.add(Fault::Repeated);
            return Passage { is_repeated: true, ..plain };
        }
        if dice.chance(rates.slow) {
            self.faults.add(Fault::SlowRequest);
            let half_ms = deadline_ms / 2;
            let (there_ms, back_ms) = (Some(dice.between(1, half_ms)), dice.between(1, half_ms));
            return Passage { there_ms, back_ms, ..plain };
        }
        plain
    }
}

fn lateness_ms(dice: &mut Dice) -> u64 {
    let most = if dice.chance(500) { 300 } else { LATE_MS_MAX };
    dice.between(1, most)
}

impl Journal for Wire {
    fn check(&self) -> Result<Fitness, JournalError> {
        self.plain(Call::Check, |state| state.engine.check())
    }

    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        let sent = SentRecord::of(placing);
        let late = || Some(LateRequest::Place(sent.clone()));
        let placed = self.request(Call::Place, late, |state, _| state.place(self.writer(), &sent));
        let sabotage = self.hub.lock().sabotage;
        match (sabotage, placed) {
            (Some(Sabotage::UnknownIsYes), Err(JournalError::Unknown(_))) => Ok(Placed::Yes),
            (Some(Sabotage::UnknownIsTaken), Err(JournalError::Unknown(_))) => Ok(Placed::Taken),
            (_, placed) => placed,
        }
    }

    fn read(&self, from: u64, limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError> {
        self.plain(Call::Read, |state| {
            let now_ms = state.now_ms();
            state.engine.read(from, limit, now_ms)
        })
    }

    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        self.plain(Call::Manifest, |state| {
            let engine_time_ms = self.tells_time.then(|| ENGINE_START_MS + state.now_ms());
            Ok(state.engine.manifest()?.map(|read| ManifestRead { engine_time_ms, ..read }))
        })
    }

    fn engine_time_ms(&self) -> Option<u64> {
        self.tells_time.then(|| self.engine_ms.load(Relaxed)).filter(|ms| *ms > 0)
    }

    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError> {
        let late = || Some(LateRequest::SetManifest { new: Bytes::copy_from_slice(new), was: was.cloned() });
        self.request(Call::SetManifest, late, |state, _| state.set_manifest(self.writer(), new, was))
    }

    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        let send = |state: &mut State, is_torn: bool| {
            let stored = if is_torn { &bytes[..bytes.len() / 2] } else { bytes };
            state.engine.put_part(name, stored)
        };
        self.request(Call::PutPart, || None, send)
    }

    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        self.plain(Call::GetPart, |state| state.engine.get_part(name))
    }

    fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        self.plain(Call::Parts, |state| state.engine.parts())
    }

    fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        self.plain(Call::DeletePart, |state| state.engine.delete_part(name))
    }

    fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        self.plain(Call::DeleteBelow, |state| state.delete_below(self.writer(), n))
    }
}
