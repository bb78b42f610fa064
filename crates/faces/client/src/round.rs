//! A round: every server of a list once, and the leaders that they name before the others of the list. Between rounds
//! the client waits. Does no I/O.

use crate::endpoint::Endpoint;
use crate::servers::ServerList;

/// Most leaders outside the list that are tried in one round: servers that name ever new ones must not keep a client
/// from its list, nor from waiting.
const UNLISTED_MAX: usize = 4;

/// Which server to try next.
#[derive(Debug)]
pub struct ServerRound {
    list: ServerList,
    /// Where in the list to look first.
    at: usize,
    named: Option<Endpoint>,
    tried: Vec<Endpoint>,
}

impl ServerRound {
    /// Starts with the first server of the list.
    pub fn new(list: ServerList) -> ServerRound {
        ServerRound { list, at: 0, named: None, tried: Vec::new() }
    }

    /// Starts after a connection to `lost` has ended. That server counts as tried: the others come first, and with a
    /// list of one the round is over at once.
    pub fn after(list: ServerList, lost: &Endpoint) -> ServerRound {
        let mut round = ServerRound::new(list);
        round.start_with(lost);
        drop(round.next());
        round
    }

    /// Returns the next server that was not tried in this round: the leader that was named, else one of the list.
    #[expect(clippy::should_implement_trait, reason = "a round can be told something between two servers")]
    pub fn next(&mut self) -> Option<Endpoint> {
        let named = self.named.take();
        let listed = self.list.endpoints();
        let in_turn = || (0..listed.len()).map(|step| &listed[(self.at + step) % listed.len()]);
        let next = named.or_else(|| in_turn().find(|listed| !self.tried.contains(listed)).cloned())?;
        if let Some(index) = listed.iter().position(|listed| *listed == next) {
            self.at = (index + 1) % listed.len();
        }
        self.tried.push(next.clone());
        Some(next)
    }

    /// Notes that a server named this leader. Returns false if it was tried in this round, or if too many were named.
    pub fn start_with(&mut self, leader: &Endpoint) -> bool {
        let is_listed = |endpoint: &Endpoint| self.list.endpoints().contains(endpoint);
        let unlisted = self.tried.iter().filter(|tried| !is_listed(tried)).count();
        if self.tried.contains(leader) || (!is_listed(leader) && unlisted >= UNLISTED_MAX) {
            return false;
        }
        self.named = Some(leader.clone());
        true
    }

    /// Starts the next round, with the server of the list whose turn it is.
    pub fn restart(&mut self) {
        self.tried.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Endpoint {
        Endpoint::parse(url).unwrap()
    }

    fn list(urls: &str) -> ServerList {
        ServerList::parse(&[urls]).unwrap()
    }

    /// Returns the hosts of the rest of a round.
    fn rest(round: &mut ServerRound) -> String {
        std::iter::from_fn(|| round.next()).map(|endpoint| endpoint.host).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_server_is_tried_once_in_a_round() {
        let mut round = ServerRound::new(list("a:1,b:1,a:1,c:1"));
        assert_eq!(rest(&mut round), "a b c");
        assert_eq!(rest(&mut round), "");
        round.restart();
        assert_eq!(rest(&mut round), "a b c");
    }

    #[test]
    fn the_next_round_goes_on_where_the_last_server_was() {
        let mut round = ServerRound::new(list("a:1,b:1,c:1"));
        round.next();
        round.restart();
        assert_eq!(rest(&mut round), "b c a");
    }

    #[test]
    fn a_lost_server_is_not_tried_before_the_next_round() {
        let mut round = ServerRound::after(list("a:1,b:1,c:1"), &endpoint("b:1"));
        assert_eq!(rest(&mut round), "c a");
        assert_eq!(rest(&mut ServerRound::after(list("a:1"), &endpoint("a:1"))), "");
        // A leader that is not in the list was lost.
        assert_eq!(rest(&mut ServerRound::after(list("a:1,b:1"), &endpoint("x:1"))), "a b");
    }

    #[test]
    fn a_named_leader_comes_first_and_once() {
        let mut round = ServerRound::after(list("a:1,b:1,c:1"), &endpoint("a:1"));
        assert!(round.start_with(&endpoint("c:1")));
        assert_eq!(round.next(), Some(endpoint("c:1")));
        // Servers that name each other do not keep the client busy.
        assert!(!round.start_with(&endpoint("a:1")));
        assert_eq!(rest(&mut round), "b");
    }

    #[test]
    fn leaders_outside_the_list_are_bounded() {
        let mut round = ServerRound::new(list("a:1,b:1"));
        round.next();
        for n in 0..UNLISTED_MAX {
            let leader = endpoint(&format!("x{n}:1"));
            assert!(round.start_with(&leader));
            assert_eq!(round.next(), Some(leader));
        }
        assert!(!round.start_with(&endpoint("y:1")));
        assert!(round.start_with(&endpoint("b:1")));
        assert_eq!(rest(&mut round), "b");
        round.restart();
        assert!(round.start_with(&endpoint("y:1")));
    }
}
