//! Updates: what a piece of state becomes, as a function of what it is.

use std::sync::Arc;

use millrace_model::Identity;

use super::entity::Stateful;
use super::intents::{check_keys, intent_of};
use crate::state::{Apply, StateError};

/// The function over fields as they are stored. It may be called many times: whenever somebody else was faster.
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
