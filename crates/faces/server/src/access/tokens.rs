//! Tokens and certificates as the operator configured them, and the lookup of the one that a caller brought. Only the
//! digests of tokens are kept.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use millrace_broker::SystemClock;
use millrace_kernel::Rights;
use millrace_model::{Actor, Namespace, Namespaces, OsMessage, Principal, Timestamp};
use millrace_router::NotTrusted;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::access::{CertificateName, Meter, PresentedNames, Rate, Scope};

/// Tokens and certificates of one server: each of them is compared for every caller.
pub const TOKENS_MAX: usize = 1024;
const DIGEST_BYTES: usize = 32;

/// The SHA-256 of a token. Tokens are long and random, so a slow hash would add no protection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; DIGEST_BYTES]);

impl TokenDigest {
    pub fn of(token: &str) -> TokenDigest {
        TokenDigest(Sha256::digest(token.as_bytes()).into())
    }

    /// 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<TokenDigest> {
        if text.len() != 2 * DIGEST_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut digest = [0; DIGEST_BYTES];
        for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(TokenDigest(digest))
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(...)")
    }
}

/// The namespaces that a token is valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceRule {
    All,
    Only(Vec<Namespace>),
}

impl NamespaceRule {
    pub(crate) fn allows(&self, namespace: &str) -> bool {
        match self {
            NamespaceRule::All => true,
            NamespaceRule::Only(names) => names.iter().any(|name| name.as_str() == namespace),
        }
    }

    /// The namespace to assume if the caller names none and the token is not valid for `default`.
    pub(crate) fn home(&self) -> Option<&Namespace> {
        match self {
            NamespaceRule::Only(names) if !self.allows(Namespace::default().as_str()) => names.first(),
            _ => None,
        }
    }
}

/// How a caller proves its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A token with this digest.
    Token(TokenDigest),
    /// A client certificate with this name, which the TLS handshake has verified.
    Certificate(CertificateName),
}

/// A token or certificate as its operator configured it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    pub proof: Proof,
    pub agent: Actor,
    pub roles: Vec<Actor>,
    pub scopes: Vec<Scope>,
    pub namespaces: NamespaceRule,
    /// Overrides the rate that tokens have by default.
    pub rate: Option<Rate>,
    /// From this time on the token is not accepted any more.
    pub expires: Option<Timestamp>,
}

impl TokenSettings {
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Why a token or certificate is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAccepted {
    Unknown,
    Expired,
}

impl NotAccepted {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            NotAccepted::Unknown => "the token is not accepted",
            NotAccepted::Expired => "the token has expired",
        }
    }
}

/// Why a grant ended while a connection used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantEnd {
    /// The entry was removed from the configuration, or changed.
    Revoked,
    Expired,
}

impl GrantEnd {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            GrantEnd::Revoked => "the token is no longer accepted",
            GrantEnd::Expired => "the token has expired",
        }
    }
}

/// The rights of a configured token or certificate.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) principal: Arc<Principal>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) namespaces: NamespaceRule,
    /// The same rights for the CQRS loop, whose messages name their namespace themselves.
    pub(crate) rights: Rights,
    /// All connections with this token pay from it.
    pub(crate) meter: Meter,
    /// The token was removed or changed: its connections are closed and must authenticate again.
    revoked: AtomicBool,
    pub(crate) expires: Option<Timestamp>,
    clock: SystemClock,
}

impl Grant {
    /// Returns `None` while the grant is valid.
    pub(crate) fn ended(&self) -> Option<GrantEnd> {
        self.ended_at(self.clock.now().wall)
    }

    /// How long until the grant expires, by the server's clock.
    pub(crate) fn left_ms(&self) -> Option<u64> {
        self.expires.map(|expires| expires.0.saturating_sub(self.clock.now().wall.0))
    }

    fn ended_at(&self, now: Timestamp) -> Option<GrantEnd> {
        if self.revoked.load(Relaxed) {
            return Some(GrantEnd::Revoked);
        }
        self.expires.is_some_and(|expires| expires <= now).then_some(GrantEnd::Expired)
    }

    pub(crate) fn has(&self, needed: Scope) -> bool {
        has(&self.scopes, needed)
    }
}

#[derive(Debug)]
struct TokenEntry {
    settings: TokenSettings,
    grant: Arc<Grant>,
}

/// Warns the operator of entries that have expired.
pub(crate) fn warn_of_expired(settings: &[TokenSettings], clock: &SystemClock) {
    let now = clock.now().wall;
    for token in settings.iter().filter(|token| token.has_expired(now)) {
        let expired = token.expires.map(|at| at.to_string());
        tracing::warn!(
            agent = token.agent.as_str(),
            expired,
            "a token or certificate of the configuration has expired"
        );
    }
}

/// All configured tokens. The lookup takes constant time as far as secrets are concerned: every digest is compared, and
/// each of them whole.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// Whether the server has no tokens. Never changes: opening or closing a server takes a restart.
    open: bool,
    rate: Rate,
    /// Does not believe a step of the system's clock at once: one wrong second must not close the connections of every
    /// token that expires.
    clock: SystemClock,
    list: RwLock<Arc<[TokenEntry]>>,
}

impl Tokens {
    pub(crate) fn new(settings: &[TokenSettings], rate: Rate, clock: SystemClock) -> Tokens {
        let entry =
            |token: &TokenSettings| TokenEntry { settings: token.clone(), grant: grant(token, rate, &clock) };
        let list = RwLock::new(settings.iter().map(entry).collect());
        Tokens { open: settings.is_empty(), rate, clock, list }
    }

    /// Whether no tokens are configured, so that everybody may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whom the tokens stand for, in the order of the configuration.
    pub(crate) fn settings(&self) -> Vec<TokenSettings> {
        self.list().iter().map(|entry| entry.settings.clone()).collect()
    }

    pub(crate) fn find(&self, token: &str) -> Result<Arc<Grant>, NotAccepted> {
        self.find_at(token, self.clock.now().wall)
    }

    fn find_at(&self, token: &str, now: Timestamp) -> Result<Arc<Grant>, NotAccepted> {
        let list = self.list();
        let brought = TokenDigest::of(token);
        let mut found = Choice::from(0);
        let mut at = 0u64;
        for (entry, index) in list.iter().zip(0u64..) {
            let Proof::Token(digest) = &entry.settings.proof else { continue };
            let same = digest.0.ct_eq(&brought.0);
            at.conditional_assign(&index, same);
            found |= same;
        }
        let entry = usize::try_from(at).ok().and_then(|at| list.get(at)).filter(|_| bool::from(found));
        good(entry.ok_or(NotAccepted::Unknown)?, now)
    }

    /// The first entry of the configuration that names this certificate.
    pub(crate) fn find_certificate(&self, names: &PresentedNames) -> Result<Arc<Grant>, NotAccepted> {
        let list = self.list();
        let entry = list.iter().find(|entry| match &entry.settings.proof {
            Proof::Certificate(name) => names.have(name),
            Proof::Token(_) => false,
        });
        good(entry.ok_or(NotAccepted::Unknown)?, self.clock.now().wall)
    }

    /// Returns the identity under which a delayed message of `agent` is sent now: that of the agent's first token that
    /// is still valid and allows the message.
    ///
    /// # Errors
    ///
    /// The reason, if there is no such token. While the wall clock has not been steady for the settling time, a token
    /// that seems to have expired may still be valid: the reason is then `InDoubt`.
    pub(crate) fn stand_for(&self, agent: &Actor, message: &OsMessage) -> Result<Arc<Principal>, NotTrusted> {
        let (list, now) = (self.list(), self.clock.now());
        let mut why = format!("no token of agent {agent} with the scope {} is accepted any more", Scope::Os);
        let mut in_doubt = false;
        let of_agent = list.iter().filter(|entry| entry.settings.agent == *agent);
        for entry in of_agent.filter(|entry| entry.grant.has(Scope::Os)) {
            match entry.grant.rights.refuse(message) {
                None if entry.settings.has_expired(now.wall) => in_doubt |= !self.clock.is_settled(now),
                None => return Ok(entry.grant.principal.clone()),
                Some(refused) => why = format!("agent {agent}: {refused}"),
            }
        }
        if in_doubt {
            return Err(NotTrusted::InDoubt(format!("the token of agent {agent} has expired")));
        }
        Err(NotTrusted::Refused(why))
    }

    /// Returns the identity under which the server goes on with work that `agent` began: that of the agent's first token
    /// that is still valid, has the scopes and is for the namespace.
    ///
    /// # Errors
    ///
    /// As [`Tokens::stand_for`].
    pub(crate) fn stand_for_work(
        &self,
        agent: &Actor,
        scopes: &[Scope],
        namespace: &str,
    ) -> Result<Arc<Principal>, NotTrusted> {
        let (list, now) = (self.list(), self.clock.now());
        let fits = |entry: &&TokenEntry| {
            entry.settings.agent == *agent
                && scopes.iter().all(|scope| entry.grant.has(*scope))
                && entry.grant.namespaces.allows(namespace)
        };
        let mut in_doubt = false;
        for entry in list.iter().filter(fits) {
            match entry.settings.has_expired(now.wall) {
                true => in_doubt |= !self.clock.is_settled(now),
                false => return Ok(entry.grant.principal.clone()),
            }
        }
        if in_doubt {
            return Err(NotTrusted::InDoubt(format!("the token of agent {agent} has expired")));
        }
        let names: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
        let needed = names.join(" and ");
        let why =
            format!("no token of agent {agent} for namespace {namespace} with {needed} is accepted any more");
        Err(NotTrusted::Refused(why))
    }

    /// Replaces all tokens. A token with unchanged settings keeps its grant, and with it what is left of its rate; all
    /// other grants are revoked. Returns how many were revoked.
    pub(crate) fn replace(&self, settings: &[TokenSettings]) -> usize {
        let mut list = self.list.write();
        let entry = |token: &TokenSettings| {
            let kept = list.iter().find(|entry| entry.settings == *token).map(|entry| entry.grant.clone());
            TokenEntry {
                settings: token.clone(),
                grant: kept.unwrap_or_else(|| grant(token, self.rate, &self.clock)),
            }
        };
        let next: Arc<[TokenEntry]> = settings.iter().map(entry).collect();
        let gone = list.iter().filter(|old| !next.iter().any(|new| Arc::ptr_eq(&old.grant, &new.grant)));
        let revoked = gone.map(|entry| entry.grant.revoked.store(true, Relaxed)).count();
        *list = next;
        revoked
    }

    fn list(&self) -> Arc<[TokenEntry]> {
        self.list.read().clone()
    }
}

fn good(entry: &TokenEntry, now: Timestamp) -> Result<Arc<Grant>, NotAccepted> {
    match entry.settings.has_expired(now) {
        true => Err(NotAccepted::Expired),
        false => Ok(entry.grant.clone()),
    }
}

fn has(scopes: &[Scope], needed: Scope) -> bool {
    scopes.iter().any(|scope| scope.covers(needed))
}

fn grant(token: &TokenSettings, rate: Rate, clock: &SystemClock) -> Arc<Grant> {
    // Access lists may name a scope as if it were a role, such as `admin` for all administrators.
    let scopes = token.scopes.iter().filter_map(|scope| Actor::new(scope.as_str()).ok());
    let namespaces: Namespaces = match &token.namespaces {
        NamespaceRule::All => None,
        NamespaceRule::Only(names) => Some(names.as_slice().into()),
    };
    let principal = Principal {
        agent: token.agent.clone(),
        roles: token.roles.iter().cloned().chain(scopes).collect(),
        namespaces: namespaces.clone(),
    };
    let rights = Rights {
        admin: has(&token.scopes, Scope::Admin),
        publish: has(&token.scopes, Scope::Publish),
        namespaces,
    };
    Arc::new(Grant {
        principal: Arc::new(principal),
        scopes: token.scopes.clone(),
        namespaces: token.namespaces.clone(),
        rights,
        meter: Meter::new(token.rate.unwrap_or(rate)),
        revoked: AtomicBool::new(false),
        expires: token.expires,
        clock: clock.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf s3cret | sha256sum`
    const DIGEST: &str = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";

    fn token(digest: TokenDigest, agent: &str) -> TokenSettings {
        TokenSettings {
            proof: Proof::Token(digest),
            agent: Actor::new(agent).unwrap(),
            roles: Vec::new(),
            scopes: vec![Scope::Admin],
            namespaces: NamespaceRule::Only(vec![Namespace::default()]),
            rate: None,
            expires: None,
        }
    }

    #[test]
    fn a_token_is_good_until_it_expires_and_tells_why_it_is_not() {
        let expires = Some(Timestamp(1000));
        let tokens = Tokens::new(
            &[TokenSettings { expires, ..token(TokenDigest::of("a"), "alice") }],
            Rate::default(),
            SystemClock::start(0),
        );
        let grant = tokens.find_at("a", Timestamp(999)).unwrap();
        assert_eq!(grant.ended_at(Timestamp(999)), None);
        assert_eq!(grant.ended_at(Timestamp(1000)), Some(GrantEnd::Expired));
        assert_eq!(tokens.find_at("a", Timestamp(1000)).unwrap_err(), NotAccepted::Expired);
        assert_eq!(tokens.find_at("b", Timestamp(1000)).unwrap_err(), NotAccepted::Unknown);
        tokens.replace(&[]);
        assert_eq!(
            grant.ended_at(Timestamp(2000)),
            Some(GrantEnd::Revoked),
            "the operator's word goes first"
        );
    }

    #[test]
    fn a_token_is_found_by_its_digest_and_by_nothing_else() {
        let digest = TokenDigest::from_hex(DIGEST).unwrap();
        assert_eq!(digest, TokenDigest::of("s3cret"));
        let settings = [token(TokenDigest::of("other"), "bob"), token(digest, "alice")];
        let tokens = Tokens::new(&settings, Rate::default(), SystemClock::start(0));
        let agent = |secret| tokens.find(secret).ok().map(|grant| grant.principal.agent.to_string());
        assert_eq!(agent("s3cret").as_deref(), Some("alice"));
        assert_eq!(agent("other").as_deref(), Some("bob"));
        for wrong in ["", "s3cre", "s3cret ", DIGEST, "S3CRET"] {
            assert_eq!(agent(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_token_that_goes_or_changes_is_revoked_and_one_that_stays_is_not() {
        let (alice, bob) = (token(TokenDigest::of("a"), "alice"), token(TokenDigest::of("b"), "bob"));
        let tokens = Tokens::new(&[alice.clone(), bob.clone()], Rate::default(), SystemClock::start(0));
        let (of_alice, of_bob) = (tokens.find("a").unwrap(), tokens.find("b").unwrap());
        assert_eq!(tokens.replace(&[token(TokenDigest::of("c"), "carol"), bob.clone()]), 1);
        let revoked = |grant: &Grant| grant.ended() == Some(GrantEnd::Revoked);
        assert!(revoked(&of_alice) && tokens.find("a").is_err() && tokens.find("c").is_ok());
        assert!(!revoked(&of_bob) && Arc::ptr_eq(&of_bob, &tokens.find("b").unwrap()));
        assert_eq!(tokens.replace(&[TokenSettings { scopes: vec![Scope::Publish], ..bob }]), 2);
        assert!(revoked(&of_bob) && !revoked(&tokens.find("b").unwrap()));
    }

    #[test]
    fn digests_are_64_hexadecimal_digits_and_never_shown() {
        for text in ["", "ab", &DIGEST[1..], &format!("{DIGEST}0"), &DIGEST.replace('1', "g")] {
            assert_eq!(TokenDigest::from_hex(text), None, "{text}");
        }
        assert_eq!(TokenDigest::from_hex(&DIGEST.to_uppercase()), TokenDigest::from_hex(DIGEST));
        assert!(!format!("{:?}", TokenDigest::of("x")).contains(char::is_numeric));
    }

    #[test]
    fn admin_includes_every_scope_and_no_other_scope_does() {
        for needed in Scope::ALL {
            assert!(Scope::Admin.covers(*needed));
            assert_eq!(Scope::Publish.covers(*needed), *needed == Scope::Publish);
        }
    }
}
