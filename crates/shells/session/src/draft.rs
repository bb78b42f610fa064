//! A commit of state, from declared to durable: resolves the updates, checks the schemas and sends the commit. Repeats
//! that if a schema was changed, or if another commit was faster with state that an update works on.

use std::collections::BTreeMap;

use millrace_claims::{Expected, StateChanges};
use millrace_model::StateCommit;
use millrace_state::{Origin, Pending, Resolved, State};

use crate::error::{Result, SessionError};
use crate::imperative::{META_NAMESPACE, out_event};
use crate::session::Session;
use crate::typed::Outgoing;

/// How often a commit is attempted when other processes change a schema in between.
const SCHEMA_ATTEMPTS_MAX: usize = 8;

/// The parts of a commit.
pub(crate) struct Draft<'a> {
    pub(crate) session: &'a Session,
    /// Remembers what was read, if reads are to be checked.
    pub(crate) state: &'a State,
    pub(crate) pending: &'a Pending,
    pub(crate) meta: &'a BTreeMap<String, String>,
    pub(crate) event: Option<&'a Outgoing>,
}

impl Draft<'_> {
    /// Sends the commit until it succeeds or cannot succeed. `send` makes a single attempt:
    /// [`SessionError::SchemaChanging`] and [`SessionError::Conflict`] say which of its checks failed.
    pub(crate) fn commit(
        &self,
        mut send: impl FnMut(StateChanges) -> Result<Option<StateCommit>>,
    ) -> Result<Option<StateCommit>> {
        let (mut schema_tries, mut update_retries) = (1, 0);
        loop {
            let mut resolved = self.pending.resolve(self.state)?;
            let changes = self.changes(&mut resolved)?;
            let intents = if resolved.expected.is_empty() { Vec::new() } else { changes.intents.clone() };
            let error = match send(changes) {
                Ok(commit) => {
                    self.state.note_committed(&resolved, &intents, commit);
                    return Ok(commit);
                }
                Err(error) => error,
            };
            match &error {
                SessionError::SchemaChanging if schema_tries < SCHEMA_ATTEMPTS_MAX => {
                    schema_tries += 1;
                    self.session.book().forget();
                }
                SessionError::Conflict { identity }
                    if update_retries < self.session.settings().update_retries_max
                        && resolved.expected.iter().any(|expected| {
                            expected.origin != Origin::Read && expected.identity == *identity
                        }) =>
                {
                    update_retries += 1;
                }
                _ => return Err(error),
            }
        }
    }

    fn changes(&self, resolved: &mut Resolved) -> Result<StateChanges> {
        let mut admitted = self.session.book().admit(self.state, resolved)?;
        admitted.carry_over(self.state, resolved)?;
        let mut meta = self.meta.clone();
        meta.insert(META_NAMESPACE.to_owned(), self.session.namespace_name().to_string());
        let expected = resolved
            .expected
            .iter()
            .map(|expected| Expected { identity: expected.identity.clone(), head: expected.head.clone() });
        Ok(StateChanges {
            intents: admitted.intents,
            meta,
            checks: admitted.checks,
            ops: admitted.ops,
            event: self.event.cloned().map(out_event),
            expected: expected.collect(),
        })
    }
}
