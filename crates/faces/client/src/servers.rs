//! The servers that a client may use: the URLs that its user listed, and the rule for a leader that a server names.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::error::ClientError;

/// Most URLs of a list.
const SERVERS_MAX: usize = 64;
/// Longest URL of a leader that is looked at.
const LEADER_BYTES_MAX: usize = 1024;

/// Which leaders outside the list a client follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowLeader {
    /// Every leader if the client has no token, otherwise only leaders with TLS that a server with TLS names.
    #[default]
    Auto,
    /// Every leader, also if the token then goes to a host that the user did not list, without TLS. Never from TLS to
    /// no TLS.
    Always,
    /// None: only leaders that are in the list.
    Listed,
}

impl FollowLeader {
    pub fn as_str(self) -> &'static str {
        match self {
            FollowLeader::Auto => "auto",
            FollowLeader::Always => "always",
            FollowLeader::Listed => "listed",
        }
    }

    pub fn parse(text: &str) -> Option<FollowLeader> {
        [FollowLeader::Auto, FollowLeader::Always, FollowLeader::Listed]
            .into_iter()
            .find(|follow| follow.as_str() == text)
    }
}

/// Why the leader that a server named is not followed. The client goes on with the next URL of its list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaderRefused {
    #[error("it is no URL of a server")]
    NotAUrl,
    #[error("it has no TLS, and the connection that named it has")]
    NoTls,
    #[error("it is not in the list of servers, and the token is sent to other hosts only over TLS")]
    TokenStays,
    #[error("it is not in the list of servers, and only those are used")]
    NotListed,
}

/// A server, or several that share a store, in the order in which they are tried.
#[derive(Clone, Debug)]
pub struct ServerList {
    listed: Arc<[Endpoint]>,
    follow: FollowLeader,
    has_token: bool,
}

impl ServerList {
    /// Parses URLs, each of which may be a comma-separated list, as [`Endpoint::parse`] takes them.
    ///
    /// # Errors
    ///
    /// A list that is empty, too long, or has URLs with and without TLS: an attacker who blocks the ones with TLS must
    /// not make a client send its token without.
    pub fn parse<T: AsRef<str>>(urls: &[T]) -> Result<ServerList, ClientError> {
        let items = || urls.iter().flat_map(|urls| urls.as_ref().split(',')).map(str::trim);
        let bad = |reason: String| {
            let url = items().collect::<Vec<_>>().join(",");
            Err(ClientError::BadUrl { url, reason })
        };
        let listed = items().map(Endpoint::parse).collect::<Result<Vec<_>, _>>()?;
        if listed.is_empty() || listed.len() > SERVERS_MAX {
            return bad(format!("give 1 to {SERVERS_MAX} URLs"));
        }
        if listed.iter().any(|endpoint| endpoint.tls != listed[0].tls) {
            return bad("some URLs have TLS and some have not: give all of them with wss://, or none".into());
        }
        Ok(ServerList { listed: listed.into(), follow: FollowLeader::default(), has_token: false })
    }

    /// Sets what the rule for leaders needs to know.
    pub fn follow(self, follow: FollowLeader, has_token: bool) -> ServerList {
        ServerList { follow, has_token, ..self }
    }

    pub fn endpoints(&self) -> &[Endpoint] {
        &self.listed
    }

    /// Returns where to connect when the server at `by` says that `named` leads.
    ///
    /// The URL is data from the network. The rule:
    ///
    /// 1. A leader whose host and port are in the list is used, under the URL of the list.
    /// 2. From a connection with TLS only a leader with TLS is followed.
    /// 3. A client with a token follows a leader that is not in the list only from a connection with TLS: there the
    ///    server that names the leader has proved who it is, and so must the leader. [`FollowLeader`] widens or narrows
    ///    this.
    ///
    /// # Errors
    ///
    /// The leader must not be followed; use the next URL of the list.
    pub fn leader(&self, named: &str, by: &Endpoint) -> Result<Endpoint, LeaderRefused> {
        if named.len() > LEADER_BYTES_MAX || !named.contains("://") {
            return Err(LeaderRefused::NotAUrl);
        }
        let leader = Endpoint::parse(named).map_err(|_| LeaderRefused::NotAUrl)?;
        if let Some(listed) = self.listed.iter().find(|listed| listed.is_same_server(&leader)) {
            return Ok(listed.clone());
        }
        if self.follow == FollowLeader::Listed {
            return Err(LeaderRefused::NotListed);
        }
        if by.tls && !leader.tls {
            return Err(LeaderRefused::NoTls);
        }
        if self.has_token && !by.tls && self.follow != FollowLeader::Always {
            return Err(LeaderRefused::TokenStays);
        }
        Ok(leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(urls: &str) -> ServerList {
        ServerList::parse(&[urls]).unwrap()
    }

    #[test]
    fn lists_are_read() {
        let shown = |list: &ServerList| list.endpoints().iter().map(Endpoint::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&list("ws://a:1, B:2/ws")), ["ws://a:1/", "ws://b:2/ws"]);
        let several = ServerList::parse(&["wss://a", "https://b:1,wss://c"]).unwrap();
        assert_eq!(shown(&several), ["wss://a:443/", "wss://b:1/", "wss://c:443/"]);
    }

    #[test]
    fn lists_that_cannot_be_meant_are_refused() {
        let many = vec!["ws://a"; SERVERS_MAX + 1].join(",");
        for urls in ["", "ws://a,", "ws://a,,ws://b", "ws://a,b", "ws://a,wss://b", &many] {
            assert!(matches!(ServerList::parse(&[urls]), Err(ClientError::BadUrl { .. })), "{urls}");
        }
        assert!(ServerList::parse::<&str>(&[]).is_err());
    }

    #[test]
    fn a_leader_is_followed_only_where_the_token_may_go() {
        use FollowLeader::{Always, Auto, Listed};
        use LeaderRefused::{NoTls, NotAUrl, NotListed, TokenStays};
        const WITH_TOKEN: bool = true;
        const NO_TOKEN: bool = false;
        let cases = [
            // In the list: by host and port, under the URL of the list.
            ("ws://a:1,ws://b:2/ws", Auto, WITH_TOKEN, "ws://B:2/", Ok("ws://b:2/ws")),
            ("ws://a:1,ws://b:2/ws", Listed, WITH_TOKEN, "http://b:2", Ok("ws://b:2/ws")),
            ("wss://a:1,wss://b:2", Auto, WITH_TOKEN, "ws://b:2/", Ok("wss://b:2/")),
            // Not in the list, without TLS.
            ("ws://a:1", Auto, NO_TOKEN, "ws://c:3/", Ok("ws://c:3/")),
            ("ws://a:1", Auto, NO_TOKEN, "wss://c:3/", Ok("wss://c:3/")),
            ("ws://a:1", Auto, WITH_TOKEN, "ws://c:3/", Err(TokenStays)),
            ("ws://a:1", Auto, WITH_TOKEN, "wss://c:3/", Err(TokenStays)),
            ("ws://a:1", Auto, WITH_TOKEN, "ws://a:2/", Err(TokenStays)),
            ("ws://a:1", Always, WITH_TOKEN, "ws://c:3/", Ok("ws://c:3/")),
            ("ws://a:1", Listed, NO_TOKEN, "ws://c:3/", Err(NotListed)),
            // Not in the list, with TLS.
            ("wss://a:1", Auto, WITH_TOKEN, "wss://c:3/", Ok("wss://c:3/")),
            ("wss://a:1", Auto, NO_TOKEN, "ws://c:3/", Err(NoTls)),
            ("wss://a:1", Always, NO_TOKEN, "ws://c:3/", Err(NoTls)),
            ("wss://a:1", Listed, NO_TOKEN, "wss://c:3/", Err(NotListed)),
            // No URL of a server.
            ("ws://a:1", Always, NO_TOKEN, "", Err(NotAUrl)),
            ("ws://a:1", Always, NO_TOKEN, "service restart", Err(NotAUrl)),
            ("ws://a:1", Always, NO_TOKEN, "c:3", Err(NotAUrl)),
            ("ws://a:1", Always, NO_TOKEN, "file:///etc/passwd", Err(NotAUrl)),
            ("ws://a:1", Always, NO_TOKEN, "ws://c:3/?token=1", Err(NotAUrl)),
            ("ws://a:1", Always, NO_TOKEN, "ws://c:3/\r\nx: y", Err(NotAUrl)),
        ];
        for (urls, follow, has_token, named, wanted) in cases {
            let list = list(urls).follow(follow, has_token);
            let found = list.leader(named, &list.endpoints()[0]).map(|leader| leader.to_string());
            assert_eq!(found, wanted.map(str::to_owned), "{urls} {follow:?} {has_token} {named}");
        }
        let long = format!("ws://{}/", "a".repeat(LEADER_BYTES_MAX));
        let list = list("ws://a:1");
        assert_eq!(list.leader(&long, &list.endpoints()[0]), Err(NotAUrl));
    }
}
