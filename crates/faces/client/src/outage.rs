//! The time without a usable connection: which server to try next, how long to wait, and when to give up. Does no I/O.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::options::ClientOptions;
use crate::round::ServerRound;
use crate::servers::ServerList;

/// Longest delay after a round in which a server answered `moved`. Such a server is alive and costs little to ask, and
/// the lead is usually taken within seconds: a longer delay would only prolong the time without service.
const MOVED_DELAY_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Outage {
    since: Instant,
    backoff: Backoff,
    round: ServerRound,
    /// Why the servers of this round could not be used.
    failures: Vec<ClientError>,
    /// A server of this round answered `moved`.
    moved: bool,
    /// A server of this round had accepted the connection, which was lost since. Nothing says that it would refuse now.
    accepted: bool,
    /// No connection has been in use yet.
    initial: bool,
    /// The user has been warned that no server leads.
    warned: bool,
}

/// The next thing to do.
pub(crate) enum NextStep {
    Try(Endpoint),
    Wait(Duration),
    GiveUp(ClientError),
}

impl Outage {
    /// Starts the first connection of a client.
    pub(crate) fn first(list: ServerList, options: &ClientOptions) -> Outage {
        Outage { initial: true, ..Outage::new(ServerRound::new(list), options) }
    }

    /// Starts after a connection that was in use has ended.
    pub(crate) fn after(list: ServerList, lost: &Endpoint, options: &ClientOptions) -> Outage {
        Outage { accepted: true, ..Outage::new(ServerRound::after(list, lost), options) }
    }

    fn new(round: ServerRound, options: &ClientOptions) -> Outage {
        let backoff = Backoff::new(options.backoff_start, options.backoff_max);
        Outage {
            since: Instant::now(),
            backoff,
            round,
            failures: Vec::new(),
            moved: false,
            accepted: false,
            initial: false,
            warned: false,
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Starts measuring again, after a connection that the server accepted and that ended before anything was received.
    /// The round goes on, so that servers that accept and close are not connected to without a delay.
    pub(crate) fn restart_clock(&mut self) {
        self.since = Instant::now();
        self.failures.clear();
        self.accepted = true;
    }

    pub(crate) fn failed(&mut self, error: ClientError) {
        self.failures.push(error);
    }

    /// Notes that `by` does not lead. The leader is tried next, unless it was tried in this round.
    pub(crate) fn moved(&mut self, by: &Endpoint, leader: Option<&Endpoint>) {
        self.moved = true;
        let reason = match leader {
            Some(leader) => format!("it does not lead its store, {leader} does"),
            None => "it does not lead its store and names no leader to connect to".to_owned(),
        };
        self.failed(ClientError::Unreachable { url: by.to_string(), reason });
        if let Some(leader) = leader {
            self.round.start_with(leader);
        }
    }

    pub(crate) fn is_initial(&self) -> bool {
        self.initial
    }

    /// Returns true the first time, so that a search for the leader warns once and not at every server.
    pub(crate) fn warn_once(&mut self) -> bool {
        !std::mem::replace(&mut self.warned, true)
    }

    /// Returns the next server of the round without a wait.
    pub(crate) fn next_in_round(&mut self) -> Result<Endpoint, ClientError> {
        self.round.next().ok_or_else(|| self.error())
    }

    /// Returns the next server, or how long to wait before the next round. `draw` is any random number.
    pub(crate) fn next_step(&mut self, options: &ClientOptions, draw: u64) -> NextStep {
        if let Some(endpoint) = self.round.next() {
            return NextStep::Try(endpoint);
        }
        let left = options.give_up_after.map(|max| max.saturating_sub(self.elapsed()));
        let is_final = !self.failures.is_empty() && !self.accepted && self.failures.iter().all(is_final);
        let is_late = !self.failures.is_empty() && left.is_some_and(|left| left.is_zero());
        if !options.reconnect || is_final {
            return NextStep::GiveUp(self.error());
        }
        if is_late {
            return NextStep::GiveUp(gave_up(self.error(), self.elapsed()));
        }
        // The last round begins when `give_up_after` is over, not one delay later.
        let mut delay = self.backoff.next(draw).min(left.unwrap_or(Duration::MAX));
        if self.moved {
            delay = delay.min(MOVED_DELAY_MAX);
        }
        self.failures.clear();
        (self.moved, self.accepted) = (false, false);
        self.round.restart();
        NextStep::Wait(delay)
    }

    /// Returns the failures of the round as one error.
    fn error(&self) -> ClientError {
        match self.failures.as_slice() {
            [only] => only.clone(),
            [first, rest @ ..] if rest.iter().chain([first]).all(|error| !error.is_unreachable()) => {
                first.clone()
            }
            failures => {
                let reasons: Vec<_> = failures.iter().map(ClientError::to_string).collect();
                let url = format!("any of {} servers", failures.len());
                ClientError::Unreachable { url, reason: reasons.join("; ") }
            }
        }
    }
}

/// Waiting does not correct a wrong token, origin or path. Any other status may come from a proxy.
fn is_final(error: &ClientError) -> bool {
    matches!(error, ClientError::Rejected { status: 401 | 403 | 404, .. })
}

/// Adds to an error how long reconnecting was tried.
fn gave_up(error: ClientError, tried: Duration) -> ClientError {
    match error {
        ClientError::Unreachable { url, reason } => {
            let reason =
                format!("{reason} (gave up after trying to reconnect for {:.1} s)", tried.as_secs_f32());
            ClientError::Unreachable { url, reason }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URLS: &str = "a:1,b:1";

    fn options() -> ClientOptions {
        ClientOptions::new(URLS)
    }

    fn first() -> Outage {
        Outage::first(ServerList::parse(&[URLS]).unwrap(), &options())
    }

    /// Returns the steps up to the next wait or the end, and makes every attempt fail with this error.
    fn steps(outage: &mut Outage, options: &ClientOptions, error: &ClientError) -> String {
        let mut steps = Vec::new();
        loop {
            match outage.next_step(options, 0) {
                NextStep::Try(endpoint) => {
                    steps.push(endpoint.host);
                    outage.failed(error.clone());
                }
                NextStep::Wait(delay) => steps.push(format!("wait {}", delay.as_millis())),
                NextStep::GiveUp(error) => steps.push(error.to_string()),
            }
            if steps.last().is_some_and(|step| step.len() > 1) {
                return steps.join(", ");
            }
        }
    }

    fn unreachable() -> ClientError {
        ClientError::Unreachable { url: "u".into(), reason: "r".into() }
    }

    fn rejected() -> ClientError {
        ClientError::Rejected { url: "u".into(), status: 401, detail: "d".into() }
    }

    #[test]
    fn all_servers_are_tried_before_each_wait() {
        let mut outage = first();
        for wanted in ["a, b, wait 1000", "a, b, wait 2000", "a, b, wait 4000"] {
            assert_eq!(steps(&mut outage, &options(), &unreachable()), wanted);
        }
    }

    #[test]
    fn servers_that_accept_and_close_at_once_are_not_connected_to_without_a_wait() {
        let mut outage = first();
        for delay in ["wait 1000", "wait 2000"] {
            for _ in 0..2 {
                assert!(matches!(outage.next_step(&options(), 0), NextStep::Try(_)));
                outage.restart_clock();
            }
            assert_eq!(steps(&mut outage, &options(), &unreachable()), delay);
        }
    }

    #[test]
    fn the_wait_for_a_leader_does_not_grow() {
        let mut outage = first();
        for _ in 0..4 {
            while let NextStep::Try(endpoint) = outage.next_step(&options(), 0) {
                outage.moved(&endpoint, None);
            }
        }
        let NextStep::Try(endpoint) = outage.next_step(&options(), 0) else { panic!("a server is next") };
        outage.moved(&endpoint, None);
        assert_eq!(steps(&mut outage, &options(), &unreachable()), "b, wait 1000");
        // No server answered in this round: the usual delays.
        assert_eq!(steps(&mut outage, &options(), &unreachable()), "a, b, wait 10000");
    }

    #[test]
    fn only_rejections_by_every_server_are_final() {
        let refused = "a, b, u refused the connection with status 401: d";
        assert_eq!(steps(&mut first(), &options(), &rejected()), refused);
        let list = ServerList::parse(&[URLS]).unwrap();
        let mut outage = Outage::after(list.clone(), &list.endpoints()[0], &options());
        // The lost server has accepted this client before.
        assert_eq!(steps(&mut outage, &options(), &rejected()), "b, wait 1000");
        assert_eq!(steps(&mut outage, &options(), &rejected()), refused);
    }

    #[test]
    fn a_last_round_is_made_before_giving_up() {
        let options = ClientOptions { give_up_after: Some(Duration::ZERO), ..ClientOptions::new("a:1") };
        let list = ServerList::parse(&options.urls).unwrap();
        let mut outage = Outage::after(list.clone(), &list.endpoints()[0], &options);
        assert_eq!(steps(&mut outage, &options, &unreachable()), "wait 0");
        let end = steps(&mut outage, &options, &unreachable());
        assert!(
            end.starts_with("a, cannot reach u: r (gave up after trying to reconnect for 0.0 s)"),
            "{end}"
        );
    }
}
