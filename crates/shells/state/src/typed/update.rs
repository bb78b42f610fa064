//! Updates: the new state of an entity or relation as a function of its present state.

use std::sync::Arc;

use millrace_model::Identity;

use super::entity::Stateful;
use super::intents::{check_keys, intent_of};
use crate::error::StateError;
use crate::pending::Apply;

/// Turns the function into one over stored fields, which may be called several times: whenever another commit was
/// faster.
pub(crate) fn apply_to<T, R>(
    identity: Identity,
    change: impl Fn(Option<T>) -> R + Send + Sync + 'static,
) -> Result<Arc<Apply>, StateError>
where
    T: Stateful,
    R: Into<Option<T>>,
{
    check_keys::<T>(&identity)?;
    let undecodable = |identity: &Identity, error: serde_json::Error| StateError::UpdateUndecodable {
        identity: identity.clone(),
        reason: error.to_string(),
    };
    Ok(Arc::new(move |fields: Option<&str>| {
        let old = fields.map(serde_json::from_str::<T>).transpose();
        let old = old.map_err(|error| undecodable(&identity, error))?;
        let Some(new) = change(old).into() else { return Ok(None) };
        let intent = intent_of(&new)?;
        if intent.identity != identity {
            let (identity, other) = (identity.clone(), intent.identity);
            let (identity, other) = (Box::new(identity), Box::new(other));
            return Err(StateError::UpdateChangedKey { identity, other });
        }
        Ok(intent.fields)
    }))
}
