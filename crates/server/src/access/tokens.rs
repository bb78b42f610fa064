//! Tokens as they are configured, and finding the one a caller brought. Only their digests are kept.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use millrace_actors::Rights;
use millrace_model::{Actor, Namespace, Principal};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::access::{Meter, Rate, Scope};

/// Tokens of one server: every one is looked at for every caller.
pub const TOKENS_MAX: usize = 1024;
const DIGEST_BYTES: usize = 32;

/// SHA-256 of a token. Tokens are random and long, so a slow hash would protect nothing.
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

/// Where a token is good.
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

    /// What is meant by one that is not for `default` and names no other.
    pub(crate) fn home(&self) -> Option<&Namespace> {
        match self {
            NamespaceRule::Only(names) if !self.allows(Namespace::default().as_str()) => names.first(),
            _ => None,
        }
    }
}

/// One token as its operator configured it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    pub digest: TokenDigest,
    pub agent: Actor,
    pub roles: Vec<Actor>,
    pub scopes: Vec<Scope>,
    pub namespaces: NamespaceRule,
    /// Instead of the rate that tokens have otherwise.
    pub rate: Option<Rate>,
}

/// What a token stands for.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) principal: Arc<Principal>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) namespaces: NamespaceRule,
    /// The same for the loop, whose messages name their namespace themselves.
    pub(crate) rights: Rights,
    /// All connections with the token pay from it.
    pub(crate) meter: Meter,
    /// The token was taken away or changed: whoever came in with it must come in again.
    revoked: AtomicBool,
}

impl Grant {
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Relaxed)
    }

    pub(crate) fn has(&self, needed: Scope) -> bool {
        has(&self.scopes, needed)
    }
}

#[derive(Debug)]
struct Entry {
    settings: TokenSettings,
    grant: Arc<Grant>,
}

/// In constant time as far as secrets go: every digest is compared, and whole.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// For good: to open a server, or to close an open one, takes a restart.
    open: bool,
    rate: Rate,
    list: RwLock<Arc<[Entry]>>,
}

impl Tokens {
    pub(crate) fn new(settings: &[TokenSettings], rate: Rate) -> Tokens {
        let entry = |token: &TokenSettings| Entry { settings: token.clone(), grant: grant(token, rate) };
        Tokens { open: settings.is_empty(), rate, list: RwLock::new(settings.iter().map(entry).collect()) }
    }

    /// Without tokens everybody may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn find(&self, token: &str) -> Option<Arc<Grant>> {
        let list = self.list();
        let brought = TokenDigest::of(token);
        let mut found = Choice::from(0);
        let mut at = 0u64;
        for (entry, index) in list.iter().zip(0u64..) {
            let same = entry.settings.digest.0.ct_eq(&brought.0);
            at.conditional_assign(&index, same);
            found |= same;
        }
        let entry = usize::try_from(at).ok().and_then(|at| list.get(at));
        entry.filter(|_| bool::from(found)).map(|entry| entry.grant.clone())
    }

    /// Other tokens from now on. One that is the same in everything keeps its grant, with what is left of its rate; the
    /// grants of all others are revoked. Answers how many those were.
    pub(crate) fn replace(&self, settings: &[TokenSettings]) -> usize {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let entry = |token: &TokenSettings| {
            let kept = list.iter().find(|entry| entry.settings == *token).map(|entry| entry.grant.clone());
            Entry { settings: token.clone(), grant: kept.unwrap_or_else(|| grant(token, self.rate)) }
        };
        let next: Arc<[Entry]> = settings.iter().map(entry).collect();
        let gone = list.iter().filter(|old| !next.iter().any(|new| Arc::ptr_eq(&old.grant, &new.grant)));
        let revoked = gone.map(|entry| entry.grant.revoked.store(true, Relaxed)).count();
        *list = next;
        revoked
    }

    fn list(&self) -> Arc<[Entry]> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn has(scopes: &[Scope], needed: Scope) -> bool {
    scopes.iter().any(|scope| scope.covers(needed))
}

fn grant(token: &TokenSettings, rate: Rate) -> Arc<Grant> {
    // Lists may name a scope as if it were a role: «whoever may administrate».
    let scopes = token.scopes.iter().filter_map(|scope| Actor::new(scope.as_str()).ok());
    let principal =
        Principal { agent: token.agent.clone(), roles: token.roles.iter().cloned().chain(scopes).collect() };
    let rights = Rights {
        admin: has(&token.scopes, Scope::Admin),
        publish: has(&token.scopes, Scope::Publish),
        namespaces: match &token.namespaces {
            NamespaceRule::All => None,
            NamespaceRule::Only(names) => Some(names.as_slice().into()),
        },
    };
    Arc::new(Grant {
        principal: Arc::new(principal),
        scopes: token.scopes.clone(),
        namespaces: token.namespaces.clone(),
        rights,
        meter: Meter::new(token.rate.unwrap_or(rate)),
        revoked: AtomicBool::new(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf s3cret | sha256sum`
    const DIGEST: &str = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";

    fn token(digest: TokenDigest, agent: &str) -> TokenSettings {
        TokenSettings {
            digest,
            agent: Actor::new(agent).unwrap(),
            roles: Vec::new(),
            scopes: vec![Scope::Admin],
            namespaces: NamespaceRule::Only(vec![Namespace::default()]),
            rate: None,
        }
    }

    #[test]
    fn a_token_is_found_by_its_digest_and_by_nothing_else() {
        let digest = TokenDigest::from_hex(DIGEST).unwrap();
        assert_eq!(digest, TokenDigest::of("s3cret"));
        let settings = [token(TokenDigest::of("other"), "bob"), token(digest, "alice")];
        let tokens = Tokens::new(&settings, Rate::default());
        let agent = |secret| tokens.find(secret).map(|grant| grant.principal.agent.to_string());
        assert_eq!(agent("s3cret").as_deref(), Some("alice"));
        assert_eq!(agent("other").as_deref(), Some("bob"));
        for wrong in ["", "s3cre", "s3cret ", DIGEST, "S3CRET"] {
            assert_eq!(agent(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_token_that_goes_or_changes_is_revoked_and_one_that_stays_is_not() {
        let (alice, bob) = (token(TokenDigest::of("a"), "alice"), token(TokenDigest::of("b"), "bob"));
        let tokens = Tokens::new(&[alice.clone(), bob.clone()], Rate::default());
        let (of_alice, of_bob) = (tokens.find("a").unwrap(), tokens.find("b").unwrap());
        assert_eq!(tokens.replace(&[token(TokenDigest::of("c"), "carol"), bob.clone()]), 1);
        assert!(of_alice.is_revoked() && tokens.find("a").is_none() && tokens.find("c").is_some());
        assert!(!of_bob.is_revoked() && Arc::ptr_eq(&of_bob, &tokens.find("b").unwrap()));
        assert_eq!(tokens.replace(&[TokenSettings { scopes: vec![Scope::Publish], ..bob }]), 2);
        assert!(of_bob.is_revoked() && !tokens.find("b").unwrap().is_revoked());
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
