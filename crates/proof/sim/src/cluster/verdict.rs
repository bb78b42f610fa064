//! The end of a cluster: all faults stop, somebody must lead soon, and a new server must have everything.

use std::sync::Arc;

use super::Writer;
use super::compare::same_content;
use super::hub::Hub;
use super::server::Server;
use super::truth::violation;
use super::wire::LATE_MS_MAX;
use crate::dice::Dice;

/// More steps than any calm takes.
const CALM_STEPS_MAX: u64 = 20_000;

impl Hub {
    /// Ends all faults, and checks what must hold then.
    pub(super) fn settle(self: &Arc<Hub>) {
        let (began_ms, began_steps, commits) = {
            let mut state = self.lock();
            // With ids, so that it is sent until it is confirmed.
            state.clients[0].wish_for_events(true);
            for client in 0..state.clients.len() {
                state.ask_another(client, None);
            }
            (state.now_ms(), state.steps, state.commits)
        };
        let last_step = began_steps + CALM_STEPS_MAX;
        // The leader may have been killed a moment ago, and a request of it may still be on its way.
        let (timeout_ms, deadline_ms) = {
            let plan = &self.lock().plan;
            (plan.settings.lead_timeout_ms, plan.deadline_ms)
        };
        let until_ms = began_ms + 3 * timeout_ms + LATE_MS_MAX + 2 * deadline_ms;
        let is_served = |hub: &Hub| hub.lock().commits > commits;
        if !self.step_until(until_ms, last_step, is_served) {
            let detail = format!("nothing could be committed for {} ms of calm", self.now_ms() - began_ms);
            return self.fail("somebody_leads", detail);
        }
        let until_ms = self.now_ms() + 3 * timeout_ms + LATE_MS_MAX;
        if !self.step_until(until_ms, last_step, Hub::all_is_quiet) {
            let detail = "some server is not up to date, or some client not served".to_owned();
            return self.fail("restores", detail);
        }
        let lives: Vec<u64> = self.lock().servers.iter().map(|server| server.life).collect();
        for (server, life) in lives.into_iter().enumerate() {
            self.compare(Writer { server, life });
        }
        self.open_new_server();
        let mut state = self.lock();
        let verdict = state.truth.acks_stand();
        state.require(verdict);
        if let Some(server) = state.truth.unnoticed() {
            let detail = format!("s{server} had records that the engine has lost, and has not said so");
            state.fail(violation("loss_is_noticed", detail));
        }
        let (acked, (head, _)) = (state.truth.acked_events(), state.truth.head());
        state.note(&format!("{acked} events confirmed in {head} records"));
    }

    fn step_until(self: &Arc<Hub>, until_ms: u64, last_step: u64, is_reached: impl Fn(&Hub) -> bool) -> bool {
        loop {
            if is_reached(self) {
                return true;
            }
            let is_over = self.now_ms() > until_ms || self.lock().steps > last_step;
            if is_over || !self.step(u64::MAX) {
                return self.lock().violation.is_some() || is_reached(self);
            }
        }
    }

    /// Returns whether every client was served and every server has folded the whole journal.
    fn all_is_quiet(&self) -> bool {
        let state = self.lock();
        let (head, tip) = state.truth.head();
        let are_served = state.clients.iter().all(|client| !client.has_wish());
        // A beat may have been placed a moment ago.
        let is_near = |n: u64| n + 2 >= head;
        let are_near = state.servers.iter().all(|server| {
            server.handle.is_some()
                && server.disk.position().is_some_and(|position| {
                    is_near(position.n)
                        && state.truth.has(position.n, position.tip)
                        && (position.n < head || position.tip == tip)
                })
        });
        are_served && are_near
    }

    /// Opens the store on a machine that never had it, and compares everything.
    fn open_new_server(self: &Arc<Hub>) {
        let at = {
            let mut state = self.lock();
            let at = state.servers.len();
            let clock = state.servers[0].clock.clone();
            state.servers.push(Server::new(clock, Dice::new(0, "new server")));
            at
        };
        self.start(at);
        let handle = self.lock().servers[at].handle.clone();
        let Some(handle) = handle else {
            return self.fail("restores", "a new server cannot be opened".to_owned());
        };
        let position = handle.status().position;
        let (head, expected) = {
            let state = self.lock();
            let is_ours = state.truth.has(position.n, position.tip);
            (state.truth.head().0, state.truth.at(position.n).filter(|_| is_ours).cloned())
        };
        let verdict = match expected {
            None => Err(format!("it stands at {}, the journal ends at {head}", position.n)),
            Some(expected) => same_content(handle.as_ref(), expected.as_ref()),
        };
        if let Err(difference) = verdict {
            self.fail("restores", format!("a new server has not got everything: {difference}"));
        }
    }

    /// Reports a violation, with the reasons for which servers could not open the store.
    fn fail(&self, invariant: &'static str, mut detail: String) {
        let mut state = self.lock();
        for (at, server) in state.servers.iter().enumerate() {
            if let Some(failure) = &server.last_failure {
                detail += &format!("; s{at} could not open: {failure}");
            }
        }
        state.fail(violation(invariant, detail));
    }
}
