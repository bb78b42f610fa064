//! A commit of state: compares the declared state with the stored one and writes only what has changed.

use millrace_model::{
    HeadRow, Intent, KeyRange, Op, Operation, Reconcile, Space, StateChange, StateCommit, StateCommitRow,
    Timestamp, VersionRow, keys,
};

use crate::TxView;

const ROWS_PER_SCAN: usize = 1024;

/// The result of a reconcile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reconciled {
    /// Plain puts and deletes, to be applied in this order. Empty when nothing changes.
    pub ops: Vec<Op>,
    pub commit: Option<StateCommit>,
}

pub fn reconcile<L: TxView>(
    tx: &mut L,
    now: Timestamp,
    reconcile: &Reconcile,
) -> Result<Reconciled, L::Error> {
    let mut changed: Vec<(&Intent, String, Operation)> = Vec::new();
    for intent in &reconcile.intents {
        let key = keys::identity(&reconcile.namespace, &intent.identity);
        let head = tx.get(Space::Heads, &key)?;
        // A head that cannot be decoded counts as different from the declared state.
        let read = head.as_ref().and_then(|head| HeadRow::decode(&key, head).ok());
        let same =
            |fields: &str| read.is_some_and(|head| head.fields == fields && head.schema == intent.schema);
        let operation = match (&intent.fields, &head) {
            (None, None) => continue,
            (None, Some(_)) => Operation::Retract,
            (Some(_), None) => Operation::Insert,
            (Some(fields), Some(_)) if same(fields.as_str()) => continue,
            (Some(_), Some(_)) => Operation::Update,
        };
        changed.push((intent, key, operation));
    }
    if changed.is_empty() {
        return Ok(Reconciled::default());
    }
    let commit = StateCommit(last_commit(tx)?.0 + 1);
    let mut ops = Vec::with_capacity(2 * changed.len() + 2);
    let mut changes = Vec::with_capacity(changed.len());
    for (intent, key, operation) in changed {
        let fields = intent.fields.as_ref().map(|fields| fields.as_str().to_owned());
        let version = VersionRow { fields: fields.clone(), schema: intent.schema };
        let value = version.encode();
        ops.push(Op::Put { space: Space::History, key: keys::version(&key, commit), value });
        ops.push(match fields {
            Some(fields) => {
                let value = HeadRow { fields, commit, schema: intent.schema }.encode();
                Op::Put { space: Space::Heads, key, value }
            }
            None => Op::Delete { space: Space::Heads, key },
        });
        changes.push(StateChange { identity: intent.identity.clone(), operation });
    }
    let row =
        StateCommitRow { at: now, meta: reconcile.meta.clone(), changes, events: reconcile.events.clone() };
    for id in &reconcile.events {
        let key = keys::commit_of_event(&reconcile.namespace, id);
        ops.push(Op::Put { space: Space::Kv, key, value: commit.0.to_string().into() });
    }
    let key = keys::state_commit(&reconcile.namespace, commit);
    ops.push(Op::Put { space: Space::StateCommits, key, value: row.encode() });
    let value = commit.0.to_string().into();
    ops.push(Op::Put { space: Space::Kv, key: keys::STATE_COMMITS.to_owned(), value });
    Ok(Reconciled { ops, commit: Some(commit) })
}

/// Returns the newest number given. If its row is unreadable, reads the commits themselves: no number is given twice.
fn last_commit<L: TxView>(tx: &mut L) -> Result<StateCommit, L::Error> {
    let Some(value) = tx.get(Space::Kv, keys::STATE_COMMITS)? else { return Ok(StateCommit(0)) };
    let counted = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    if let Some(counted) = counted {
        return Ok(StateCommit(counted));
    }
    let (mut last, mut range) = (0, KeyRange::all());
    loop {
        let rows = tx.scan(Space::StateCommits, &range, ROWS_PER_SCAN)?;
        let numbers = rows.iter().filter_map(|row| u64::from_str_radix(row.key.rsplit('/').next()?, 16).ok());
        last = numbers.fold(last, u64::max);
        match rows.last().filter(|_| rows.len() == ROWS_PER_SCAN) {
            Some(row) => range.from = format!("{}\0", row.key),
            None => return Ok(StateCommit(last)),
        }
    }
}
