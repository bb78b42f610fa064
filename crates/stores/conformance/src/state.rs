//! State: a commit makes the declared state true and writes only what has changed.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    Identity, Intent, JsonText, Namespace, Op, Reconcile, Space, StateCommit, StateCommitRow, VersionRow,
    keys,
};

use crate::Subject;
use crate::build::{batch, put, put_new};
use millrace_store::KeyRange;

fn entity(key: &str) -> Identity {
    Identity::Entity { type_name: "User".into(), key: key.into() }
}

fn intent(key: &str, fields: Option<&str>) -> Intent {
    let fields = fields.map(|text| JsonText::from_stored(Bytes::copy_from_slice(text.as_bytes())));
    Intent { identity: entity(key), fields, schema: 1 }
}

fn namespace() -> Namespace {
    Namespace::new("suite").unwrap_or_else(|error| panic!("{error}"))
}

fn reconcile(intents: Vec<Intent>) -> Op {
    let meta = BTreeMap::from([("why".to_owned(), "test".to_owned())]);
    Op::Reconcile(Reconcile { namespace: namespace(), meta, intents, events: vec![] })
}

fn commit(subject: &Subject, now: u64, intents: Vec<Intent>) -> Option<u64> {
    subject.all_done(batch(now, vec![reconcile(intents)])).state.map(|commit| commit.0)
}

/// Returns the changes in the record of a commit, each as `operation key at time`.
fn record(subject: &Subject, commit: u64) -> Vec<String> {
    let key = keys::state_commit(&namespace(), StateCommit(commit));
    let range = KeyRange { from: key.clone(), to: Some(format!("{key}\0")) };
    let rows = subject.store().scan(Space::StateCommits, &range, 2).unwrap_or_else(|error| panic!("{error}"));
    let row = StateCommitRow::decode(&key, &rows[0].value).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(row.meta["why"], "test");
    row.changes
        .iter()
        .map(|change| match &change.identity {
            Identity::Entity { key, .. } => format!("{:?} {key} at {}", change.operation, row.at.0),
            Identity::Relation { .. } => panic!("{change:?}"),
        })
        .collect()
}

pub(super) fn state_is_written_only_where_it_changed(subject: &mut Subject) {
    let one = r#"{"n":1}"#;
    assert_eq!(commit(subject, 10, vec![intent("a", Some(one)), intent("b/c", Some(one))]), Some(1));
    assert_eq!(record(subject, 1), ["Insert a at 10", "Insert b/c at 10"]);
    let tables =
        || [Space::Heads, Space::History, Space::StateCommits, Space::Kv].map(|space| subject.table(space));
    let before = tables();
    assert_eq!(
        commit(subject, 11, vec![intent("a", Some(one)), intent("b/c", Some(one)), intent("z", None)]),
        None
    );
    assert_eq!(commit(subject, 11, vec![]), None);
    assert_eq!(tables(), before, "nothing changed, nothing is written");
    let two = r#"{"n":2}"#;
    let mixed =
        vec![intent("a", Some(two)), intent("b/c", Some(one)), intent("d", Some(one)), intent("z", None)];
    assert_eq!(commit(subject, 12, mixed), Some(2));
    assert_eq!(record(subject, 2), ["Update a at 12", "Insert d at 12"]);
    subject.reopen();
    assert_eq!(commit(subject, 13, vec![intent("b/c", None)]), Some(3));
    assert_eq!(record(subject, 3), ["Retract b/c at 13"]);
    assert_eq!(commit(subject, 14, vec![intent("b/c", None)]), None, "it is retracted already");
    let newer = Intent { schema: 2, ..intent("a", Some(two)) };
    assert_eq!(commit(subject, 15, vec![newer.clone()]), Some(4), "a head moves to its new schema");
    assert_eq!(commit(subject, 16, vec![newer]), None);
    assert_eq!(commit(subject, 17, vec![intent("b/c", Some(two))]), Some(5));
    assert_eq!(record(subject, 5), ["Insert b/c at 17"]);
    assert_eq!(subject.table(Space::Heads).len(), 3);
    let key = keys::identity(&namespace(), &entity("b/c"));
    let range = KeyRange::prefix(&format!("{key}//"));
    let rows = subject.store().scan(Space::History, &range, 9).unwrap_or_else(|error| panic!("{error}"));
    let versions: Vec<Option<String>> = rows
        .iter()
        .map(|row| VersionRow::decode(&row.key, &row.value).unwrap_or_else(|error| panic!("{error}")).fields)
        .collect();
    assert_eq!(versions, [Some(one.to_owned()), None, Some(two.to_owned())]);
}

pub(super) fn numbers_of_state_commits_are_never_given_twice(subject: &mut Subject) {
    let write = |now, text: &str| commit(subject, now, vec![intent("k", Some(text))]);
    assert_eq!([write(1, "{}"), write(2, r#"{"a":1}"#)], [Some(1), Some(2)]);
    // Two batches in one commit, and two operations in one batch.
    let ops = |a: &str, b: &str| {
        vec![reconcile(vec![intent(a, Some("{}"))]), reconcile(vec![intent(b, Some("{}"))])]
    };
    let outcomes = subject.commit(&[batch(3, ops("l", "m")), batch(3, ops("m", "n"))]);
    let numbers: Vec<Option<StateCommit>> = outcomes
        .iter()
        .map(|outcome| match outcome {
            millrace_model::Outcome::Done(done) => done.state,
            millrace_model::Outcome::Refused(_) => panic!("{outcome:?}"),
        })
        .collect();
    assert_eq!(numbers, [Some(StateCommit(4)), Some(StateCommit(5))], "the last of the batch is told");
    // When the counter cannot be read, the store finds the newest number among the commits.
    subject.done(batch(4, vec![put(Space::Kv, keys::STATE_COMMITS, "?")]));
    assert_eq!(write(5, r#"{"a":2}"#), Some(6));
    assert_eq!(write(6, r#"{"a":3}"#), Some(7));
}

pub(super) fn a_row_is_put_only_if_new(subject: &mut Subject) {
    subject.done(batch(1, vec![put_new(Space::Topics, "t", "1"), put_new(Space::Topics, "t", "2")]));
    subject.done(batch(2, vec![put_new(Space::Topics, "t", "3"), put_new(Space::Topics, "u", "4")]));
    assert_eq!(subject.table(Space::Topics), ["t=1", "u=4"]);
}
