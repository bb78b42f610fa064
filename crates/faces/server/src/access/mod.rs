//! Access control: tokens and their rights, rate limits, and the record of refusals.
//!
//! ```text
//! request -> gate: rate of the connection -> token -> rate of the token -> scope -> namespace -> handler
//! handler -> engine, with the agent: the topic's own list
//! ```
//!
//! The engine checks topic lists (HTTP reads of history check the same lists in the store). Without tokens in the
//! configuration everybody may do everything.

mod audit;
mod bucket;
mod caller;
mod certificate;
mod gate;
mod needs;
mod scope;
mod tokens;

pub(crate) use audit::{Audit, LogLines, Reason, Refused, watch};
pub use bucket::Rate;
pub(crate) use bucket::{Meter, TooSoon};
pub(crate) use caller::{Caller, Peer};
pub use certificate::CertificateName;
pub(crate) use certificate::PresentedNames;
pub(crate) use gate::check;
pub(crate) use needs::{Need, of as needs_of};
pub use scope::Scope;
pub(crate) use tokens::{Grant, GrantEnd, NotAccepted, Tokens, warn_of_expired};
pub use tokens::{NamespaceRule, Proof, TOKENS_MAX, TokenDigest, TokenSettings};
