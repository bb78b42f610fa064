//! Requests of clients: a leader commits them together, and every answer is checked against the journal.

use std::sync::Arc;

use millrace_model::{Batch, Done, Op, Outcome};
use millrace_store::{
    CommitVia, CopyPosition, Foldable, MemoryStore, Placement, RecordedChange, Store, StoreError,
};
use millrace_store_journal::JournalStore;

use super::hub::{Hub, State};
use super::load::Fared;
use super::server::{Entry, LeaderMemory, Operation};
use super::truth::{EventPlace, OWN_TOPICS, violation};
use super::{Happening, Writer};
use crate::check::Violation;
use crate::fault::Fault;

/// A commit under way.
struct Commit {
    writer: Writer,
    /// The newest record when it began.
    head: u64,
    losses: u64,
    batches: Vec<Batch>,
    /// Each client, and how many of the batches are its.
    shares: Vec<(usize, usize)>,
    memory: Option<LeaderMemory>,
}

impl Hub {
    pub(super) fn request(self: &Arc<Hub>, client: usize) {
        let writer = {
            let mut state = self.lock();
            if state.clients[client].is_waiting || state.calm && !state.clients[client].has_wish() {
                return;
            }
            let servers = state.servers.len() as u64;
            let any = state.dice.below(servers) as usize;
            let server = state.clients[client].server.unwrap_or(any);
            Writer { server, life: state.servers[server].life }
        };
        match self.begin(writer, Operation::Turn) {
            Entry::Gone => self.lock().ask_another(client, None),
            Entry::Later(_) => {
                let mut state = self.lock();
                let stays = state.dice.chance(800);
                state.ask_another(client, stays.then_some(writer.server));
            }
            Entry::Go(handle) => {
                if self.is_sent_on(writer, client, &handle) {
                    self.finish(writer, Operation::Turn, handle);
                    return;
                }
                let commit = self.lock().gather(writer, client);
                let result = handle.commit(&commit.batches);
                let position = handle.status().position;
                {
                    let mut state = self.lock();
                    let gone = || Err(StoreError::Closed("the process is gone".into()));
                    let result = if state.is_alive(writer) { result } else { gone() };
                    state.answer(&commit, result, position);
                }
                // Afterwards, because a handle that has ended places one more record, which gives the lead back.
                self.finish(writer, Operation::Turn, handle);
            }
        }
    }

    /// A follower names the leader instead of committing. Now and then it tries to commit all the same.
    fn is_sent_on(&self, writer: Writer, client: usize, handle: &JournalStore) -> bool {
        let status = handle.status();
        let mut state = self.lock();
        let believes_to_lead = state.servers[writer.server].bus.is_some();
        if handle.leads() || believes_to_lead || state.dice.chance(30) {
            return false;
        }
        let leader = status.leader_url.and_then(|url| url.strip_prefix("sim://")?.parse().ok());
        state.ask_another(client, leader);
        true
    }
}

impl State {
    /// The client asks again soon, this server if one is named.
    pub(super) fn ask_another(&mut self, client: usize, server: Option<usize>) {
        self.clients[client].server = server;
        let at_ms = self.now_ms() + self.dice.between(100, 2_000);
        self.schedule.at(at_ms, Happening::Request { client });
    }

    /// Collects the batches of the client, and of others that ask at the same time.
    fn gather(&mut self, writer: Writer, client: usize) -> Commit {
        let now_ms = self.servers[writer.server].clock.wall_ms();
        let mut memory = self.servers[writer.server].bus.clone();
        let (mut batches, mut shares) = (Vec::new(), Vec::new());
        let others = (0..self.clients.len()).filter(|other| *other != client).collect::<Vec<_>>();
        for asking in std::iter::once(client).chain(others) {
            let joins = asking == client || !self.calm && self.dice.chance(200);
            let asking_client = &mut self.clients[asking];
            if asking_client.is_waiting || !joins {
                continue;
            }
            asking_client.is_waiting = true;
            let own = asking_client.batches(now_ms, memory.as_mut());
            shares.push((asking, own.len()));
            batches.extend(own);
        }
        self.note(&format!("{writer} commits {} batches", batches.len()));
        let (head, _) = self.truth.head();
        Commit { writer, head, losses: self.truth.losses, batches, shares, memory }
    }

    fn answer(&mut self, commit: &Commit, result: Result<Vec<Outcome>, StoreError>, position: CopyPosition) {
        let writer = commit.writer;
        let fared = match &result {
            Ok(outcomes) => {
                self.note(&format!("{writer} has committed"));
                self.commits += 1;
                if self.is_alive(writer) {
                    self.servers[writer.server].bus.clone_from(&commit.memory);
                }
                let verdict = self.judge(commit, outcomes, position);
                self.require(verdict);
                Fared::Done
            }
            Err(error) if error.wrote_nothing() => {
                self.note(&format!("{writer} has refused to commit"));
                for text in commit.batches.iter().flat_map(own_texts) {
                    let verdict = self.truth.must_not_appear(text);
                    self.require(verdict);
                }
                Fared::Refused
            }
            Err(_) => {
                self.note(&format!("{writer} does not know whether it has committed"));
                Fared::Unknown
            }
        };
        let outcomes = result.unwrap_or_default();
        let mut from = 0;
        for &(client, count) in &commit.shares {
            let own = outcomes.get(from..from + count).unwrap_or_default();
            from += count;
            let done: Vec<&Done> = own.iter().filter_map(done_of).collect();
            // The answer may get lost on its way: the client sends its events again, under their ids.
            let fared = if fared == Fared::Done && !self.calm && self.dice.chance(30) {
                self.faults.add(Fault::Resent);
                Fared::Unknown
            } else {
                fared
            };
            let is_served = fared == Fared::Done;
            self.clients[client].fared(fared, &done);
            let server = is_served.then_some(writer.server);
            let pause_ms = if is_served { self.plan.client_pause_ms_max } else { 1_500 };
            self.clients[client].server = server;
            let at_ms = self.now_ms() + self.clients[client].dice.between(10, pause_ms);
            self.schedule.at(at_ms, Happening::Request { client });
        }
    }

    fn judge(
        &mut self,
        commit: &Commit,
        outcomes: &[Outcome],
        position: CopyPosition,
    ) -> Result<(), Violation> {
        // While the engine loses records, an answer may be right although nothing of it is left.
        let is_ours = self.truth.has(position.n, position.tip);
        if self.truth.losses != commit.losses || self.truth.losses > 0 && !is_ours {
            return Ok(());
        }
        let (placed, _) = self.truth.placed_since(commit.head, commit.writer);
        for (at, (batch, outcome)) in commit.batches.iter().zip(outcomes).enumerate() {
            match outcome {
                // The same commit may have dropped the topic again.
                Outcome::Done(_) if commit.batches[at..].iter().any(drops_topics) => {}
                Outcome::Done(done) => self.events_are_there(placed.unwrap_or(0), batch, done)?,
                Outcome::Refused(_) => {
                    own_texts(batch).into_iter().try_for_each(|text| self.truth.must_not_appear(text))?;
                }
            }
        }
        self.is_of_the_present(commit, outcomes, placed)
    }

    fn events_are_there(&mut self, n: u64, batch: &Batch, done: &Done) -> Result<(), Violation> {
        let events = batch.ops.iter().filter(|op| matches!(op, Op::Append(_) | Op::Delay(_)));
        for (op, appended) in events.zip(&done.appended) {
            let Op::Append(append) = op else { continue };
            if !append.stream.topic.as_str().starts_with(OWN_TOPICS) {
                continue;
            }
            // Duplicates are checked with all outcomes, at the state that they were answered from.
            if !appended.duplicate {
                let told = EventPlace { stream: append.stream.clone(), offset: appended.offset };
                self.truth.acked(n, append.event.body.payload.as_str(), &told)?;
            }
        }
        Ok(())
    }

    /// Checks that the outcomes are those of a state that was the newest one while the commit was under way.
    fn is_of_the_present(
        &self,
        commit: &Commit,
        outcomes: &[Outcome],
        placed: Option<u64>,
    ) -> Result<(), Violation> {
        let (head, _) = self.truth.head();
        let states = match placed {
            Some(n) => n - 1..=n - 1,
            None => commit.head..=head,
        };
        for n in states.clone().rev() {
            // Too long ago to be sure.
            let Some(state) = self.truth.at(n) else { return Ok(()) };
            let (expected, changes) = resolve(state, &commit.batches);
            let recorded = placed.map_or(&[][..], |n| self.truth.changes_of(n));
            if expected == outcomes && changes == recorded {
                return Ok(());
            }
        }
        let detail = format!(
            "{} has answered a commit, placed as {placed:?}, as no state from {} to {} would",
            commit.writer,
            states.start(),
            states.end()
        );
        Err(violation("answers_of_the_present", detail))
    }
}

/// Returns the outcomes that the batches have on a state, and the changes that they come to.
fn resolve(state: &MemoryStore, batches: &[Batch]) -> (Vec<Outcome>, Vec<RecordedChange>) {
    let store = state.snapshot();
    let mut recorded = Vec::new();
    let via = store.commit_via(batches, &mut |changes| {
        recorded = changes.to_vec();
        Placement::NothingToPlace
    });
    match via {
        Ok(CommitVia::Committed { outcomes, .. }) => (outcomes, recorded),
        _ => (Vec::new(), recorded),
    }
}

fn done_of(outcome: &Outcome) -> Option<&Done> {
    match outcome {
        Outcome::Done(done) => Some(done),
        Outcome::Refused(_) => None,
    }
}

fn drops_topics(batch: &Batch) -> bool {
    batch.ops.iter().any(|op| matches!(op, Op::Drop { .. }))
}

/// Returns the texts of the events in our own topics.
fn own_texts(batch: &Batch) -> Vec<String> {
    let own = batch.ops.iter().filter_map(|op| match op {
        Op::Append(append) if append.stream.topic.as_str().starts_with(OWN_TOPICS) => {
            Some(append.event.body.payload.as_str().to_owned())
        }
        _ => None,
    });
    own.collect()
}
