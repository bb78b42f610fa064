//! Types that change while rows are stored: which changes are refused, with which message, and how rows are migrated.

mod harness;

use harness::Harness;
use millrace::{Entity, Migration, MigrationError, StateCommit, StateError};
use millrace_session::model::{Op, Outcome, SchemaRow, Space, keys};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

mod v1 {
    use super::*;

    #[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Payment {
        #[key]
        pub(super) id: String,
        pub(super) cents: u32,
        pub(super) note: String,
    }
}

mod v2 {
    use super::*;

    #[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Payment {
        #[key]
        pub(super) id: String,
        pub(super) cents: u64,
        pub(super) currency: String,
    }
}

fn old(id: &str, cents: u32) -> v1::Payment {
    v1::Payment { id: id.into(), cents, note: "n".into() }
}

fn new(id: &str, cents: u64) -> v2::Payment {
    v2::Payment { id: id.into(), cents, currency: "EUR".into() }
}

/// An upgrader; the wrapped result is the signature that upgraders have.
#[allow(clippy::unnecessary_wraps)]
fn to_v2(mut fields: Value) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
    fields["currency"] = json!("EUR");
    Ok(fields)
}

fn migration(harness: &Harness) -> Migration {
    Migration::new(harness.state.clone()).upgrade::<v2::Payment>(1, to_v2)
}

fn stocked(rows: usize) -> Harness {
    let mut harness = Harness::new();
    harness.ensure((0..rows).map(|n| old(&format!("{n:05}"), n as u32)));
    harness.commit();
    harness
}

fn apply(
    harness: &mut Harness,
    migration: &Migration,
    token: &str,
) -> Result<millrace::Migrated, StateError> {
    migration.apply(token, &mut |checks, ops| harness.write(checks, ops))
}

#[test]
fn a_drifted_type_refuses_to_write_and_says_what_changed() {
    let mut harness = stocked(1);
    harness.ensure(new("x", 1));
    let error = harness.try_commit(&[]).unwrap_err();
    let StateError::SchemaOutdated(drifts) = &error else { panic!("{error}") };
    assert_eq!(drifts[0].stored_version, 1);
    assert_eq!(
        (&*drifts[0].added_fields, &*drifts[0].removed_fields),
        (&["currency".into()][..], &["note".into()][..])
    );
    assert_eq!(drifts[0].changed_fields, [("cents".into(), "u32".into(), "u64".into())]);
    assert_eq!(
        error.to_string(),
        "the stored schema is another: entity `Payment` version 1: added `currency`, removed `note`, `cents` was u32 \
         and is u64; migrate, or go back to the program that fits"
    );
    assert_eq!(harness.pending.len(), 1, "the intent is still queued");
    assert_eq!(harness.state.query::<v1::Payment>().count().unwrap(), 1);
    assert!(harness.state.get::<v1::Payment>("x").unwrap().is_none());
}

#[test]
fn two_types_of_one_name_are_told_at_once() {
    let mut harness = Harness::new();
    harness.ensure(old("a", 1));
    let declared = millrace::IntoIntents::into_intents(new("b", 1)).unwrap();
    assert!(matches!(harness.pending.push(declared), Err(StateError::NameShared { .. })));
}

#[test]
fn a_schema_that_somebody_else_stored_first_is_looked_at_again() {
    let mut harness = Harness::new();
    harness.ensure(old("a", 1));
    let early =
        harness.book.admit(&harness.state, &harness.pending.resolve(&harness.state).unwrap()).unwrap();
    let mut other = harness.another();
    other.ensure(old("b", 1));
    other.commit().unwrap();
    let outcome = harness.write(early.checks, early.ops).unwrap();
    assert!(matches!(outcome, Outcome::Refused(_)), "the row is not absent any more");
    assert!(harness.commit().is_some());
    assert_eq!(harness.state.query::<v1::Payment>().count().unwrap(), 2);
}

#[test]
fn a_dry_run_says_everything_and_writes_nothing() {
    let harness = stocked(3);
    let plan = migration(&harness).plan().unwrap();
    let planned = &plan.types[0];
    assert!(plan.has_changes());
    assert_eq!((planned.from_version, planned.to_version, planned.rows), (1, 2, 3));
    assert!(planned.missing_upgraders.is_empty() && planned.failures.is_empty());
    assert_eq!(plan, migration(&harness).plan().unwrap(), "the same plan, the same token");
    let without = Migration::new(harness.state.clone()).adopt::<v2::Payment>().plan().unwrap();
    assert_eq!(without.types[0].missing_upgraders, [1]);
    let failing = Migration::new(harness.state.clone()).upgrade::<v2::Payment>(1, Ok).plan().unwrap();
    assert_eq!(failing.types[0].failures.len(), 3);
    assert!(failing.types[0].failures[0].1.contains("currency"), "{failing:?}");
    let same = Migration::new(harness.state.clone()).adopt::<v1::Payment>().plan().unwrap();
    assert!(!same.has_changes());
    assert_eq!(harness.state.head().unwrap(), StateCommit(1));
}

#[test]
fn a_migration_rewrites_every_row_in_bounded_commits() {
    let mut harness = stocked(1200);
    let before = harness.state.head().unwrap();
    let migration = migration(&harness);
    let plan = migration.plan().unwrap();
    let migrated = apply(&mut harness, &migration, &plan.token).unwrap();
    assert_eq!((migrated.rows, migrated.commits), (1200, 3));
    let last = harness.state.get_commit(migrated.last.unwrap()).unwrap().unwrap();
    assert_eq!((last.meta["kind"].as_str(), last.meta["migrated_types"].as_str()), ("migration", "Payment"));
    assert_eq!(harness.state.query::<v2::Payment>().sum(|f| f.cents).unwrap(), 1199 * 600);
    assert_eq!(harness.state.query::<v2::Payment>().limit(1).collect().unwrap()[0].schema, 2);
    assert_eq!(harness.state.query::<v1::Payment>().as_of(before).limit(9999).collect().unwrap().len(), 1200);
    harness.ensure(new("00000", 0));
    assert_eq!(harness.commit(), None, "rows are spelled as the type itself spells them");
    harness.ensure(new("00000", 5));
    assert!(harness.commit().is_some());
    let mut outdated = harness.another();
    outdated.ensure(old("z", 1));
    assert!(matches!(outdated.try_commit(&[]), Err(StateError::SchemaOutdated(_))));
}

#[test]
fn a_program_that_holds_the_old_schema_cannot_write_after_the_migration() {
    let mut harness = stocked(1);
    let mut outdated = harness.another();
    outdated.ensure(old("a", 1));
    outdated.commit().unwrap();
    let migration = migration(&harness);
    let plan = migration.plan().unwrap();
    apply(&mut harness, &migration, &plan.token).unwrap();
    outdated.ensure(old("b", 1));
    assert!(matches!(outdated.try_commit(&[]), Err(StateError::SchemaOutdated(_))));
    assert_eq!(harness.state.query::<v2::Payment>().count().unwrap(), 2);
}

#[test]
fn a_stale_token_is_refused() {
    let mut harness = stocked(1);
    let migration = migration(&harness);
    let plan = migration.plan().unwrap();
    harness.ensure(old("later", 1));
    harness.commit().unwrap();
    let stale = |error| matches!(error, StateError::Migration(MigrationError::StaleToken));
    assert!(stale(apply(&mut harness, &migration, &plan.token).unwrap_err()));
    assert!(stale(apply(&mut harness, &migration, "").unwrap_err()));
    assert_eq!(harness.state.query::<v1::Payment>().limit(9).collect().unwrap().len(), 2);
}

#[test]
fn a_commit_between_plan_and_lock_makes_the_token_stale() {
    let mut harness = stocked(1);
    let migration = migration(&harness);
    let plan = migration.plan().unwrap();
    let mut other = harness.another();
    let mut got_in = false;
    let error = migration
        .apply(&plan.token, &mut |checks, ops| {
            if !std::mem::replace(&mut got_in, true) {
                other.ensure(old("between", 1));
                other.commit().unwrap();
            }
            harness.write(checks, ops)
        })
        .unwrap_err();
    assert!(matches!(error, StateError::Migration(MigrationError::StaleToken)), "{error}");
}

#[test]
fn of_two_migrations_at_once_one_is_told_to_look_again() {
    let mut harness = stocked(1);
    harness.declare(millrace_state::Declared::without_entity::<v1::Payment>("00000").unwrap());
    harness.commit().unwrap();
    let (mine, theirs) = (migration(&harness), migration(&harness));
    let plan = mine.plan().unwrap();
    let mut other = harness.another();
    let mut got_in = false;
    // A migration without rows commits no state: only the schema row shows that another program was faster.
    let error = mine
        .apply(&plan.token, &mut |checks, ops| {
            if !std::mem::replace(&mut got_in, true) {
                apply(&mut other, &theirs, &plan.token).unwrap();
            }
            harness.write(checks, ops)
        })
        .unwrap_err();
    assert!(matches!(error, StateError::Migration(MigrationError::StaleToken)), "{error}");
    assert_eq!(harness.state.schema_versions::<v2::Payment>().unwrap().len(), 2);
}

#[test]
fn a_migration_that_another_run_has_finished_writes_nothing_more() {
    let mut harness = stocked(1200);
    let (mine, theirs) = (migration(&harness), migration(&harness));
    let plan = mine.plan().unwrap();
    let mut other = harness.another();
    let mut commits = 0;
    let ended = mine.apply(&plan.token, &mut |checks, ops| {
        commits += 1;
        if commits == 3 {
            let plan = theirs.plan().unwrap();
            apply(&mut other, &theirs, &plan.token).unwrap();
            other.ensure(new("00700", 1));
            other.commit().unwrap();
        }
        harness.write(checks, ops)
    });
    let interrupted = |error| matches!(error, StateError::Migration(MigrationError::Interrupted { .. }));
    assert!(ended.is_err_and(interrupted));
    assert_eq!(
        harness.state.get::<v2::Payment>("00700").unwrap().unwrap().cents,
        1,
        "the newer write stands"
    );
}

#[test]
fn rows_that_cannot_be_upgraded_stop_the_migration_before_it_begins() {
    let mut harness = stocked(2);
    let refused = |harness: &mut Harness, migration: &Migration| {
        let token = migration.plan().unwrap().token;
        apply(harness, migration, &token).unwrap_err().to_string()
    };
    let missing = Migration::new(harness.state.clone()).adopt::<v2::Payment>();
    assert!(refused(&mut harness, &missing).contains("need an upgrader from version 1"));
    let failing =
        Migration::new(harness.state.clone()).upgrade::<v2::Payment>(1, |_| Err("no rate known".into()));
    assert!(refused(&mut harness, &failing).contains("no rate known"));
    let renaming = Migration::new(harness.state.clone()).upgrade::<v2::Payment>(1, |fields| {
        let mut fields = to_v2(fields)?;
        fields["id"] = json!("other");
        Ok(fields)
    });
    assert!(refused(&mut harness, &renaming).contains("changed a key"));
    harness.ensure(old("still", 1));
    assert!(harness.commit().is_some(), "the old program works on");
}

#[test]
fn a_migration_that_died_is_finished_by_running_it_again() {
    let mut harness = stocked(1200);
    let migration = migration(&harness);
    let plan = migration.plan().unwrap();
    let mut commits = 0;
    let died = migration.apply(&plan.token, &mut |checks, ops| {
        commits += 1;
        if commits > 2 {
            return Err(millrace_store::StoreError::Poisoned("the power went".into()));
        }
        harness.write(checks, ops)
    });
    assert!(matches!(died, Err(StateError::Store(_))));
    let mut eager = harness.another();
    eager.ensure(new("eager", 1));
    assert!(matches!(eager.try_commit(&[]), Err(StateError::MigrationUnfinished { version: 2, .. })));
    let plan = migration.plan().unwrap();
    assert_eq!((plan.types[0].rows, plan.types[0].drift.is_none()), (700, true));
    assert_eq!(apply(&mut harness, &migration, &plan.token).unwrap().rows, 700);
    assert!(eager.commit().is_some());
    assert_eq!(harness.state.query::<v2::Payment>().limit(9999).collect().unwrap().len(), 1201);
    assert!(!migration.plan().unwrap().has_changes());
}

#[test]
fn a_type_without_rows_needs_no_upgrader_and_old_schemas_are_kept() {
    let mut harness = stocked(1);
    harness.declare(millrace_state::Declared::without_entity::<v1::Payment>("00000").unwrap());
    harness.commit().unwrap();
    let migration = Migration::new(harness.state.clone()).adopt::<v2::Payment>();
    let plan = migration.plan().unwrap();
    assert_eq!(plan.types[0].rows, 0);
    assert_eq!(apply(&mut harness, &migration, &plan.token).unwrap().commits, 0);
    harness.ensure(new("a", 1));
    assert!(harness.commit().is_some());
    let versions: Vec<SchemaRow> = harness.state.schema_versions::<v2::Payment>().unwrap();
    assert_eq!(versions.iter().map(|row| row.version).collect::<Vec<_>>(), [1, 2]);
    assert!(versions[0].fields.contains_key("note"));
}

#[test]
fn rows_several_versions_behind_go_through_several_upgraders() {
    let mut harness = stocked(2);
    // Simulates a program in between that stored version 2 and never rewrote these rows.
    let key = keys::state_type(harness.state.namespace(), millrace::StateKind::Entity, "Payment");
    let fields =
        [("id", "String as key"), ("cents", "u64")].map(|(name, ty)| (name.to_owned(), ty.to_owned()));
    let row = SchemaRow {
        version: 2,
        fields: fields.into(),
        since: StateCommit(2),
        rewriting: true,
        ..SchemaRow::default()
    };
    harness.write(Vec::new(), vec![Op::Put { space: Space::Schemas, key, value: row.encode() }]).unwrap();
    let migration = Migration::new(harness.state.clone())
        .upgrade::<v2::Payment>(1, |mut fields| {
            fields["seen"] = json!(["1"]);
            Ok(fields)
        })
        .upgrade::<v2::Payment>(2, |mut fields| {
            assert_eq!(fields["seen"], json!(["1"]));
            fields["currency"] = json!("USD");
            Ok(fields)
        });
    let plan = migration.plan().unwrap();
    assert_eq!((plan.types[0].from_version, plan.types[0].to_version), (2, 3));
    assert_eq!(apply(&mut harness, &migration, &plan.token).unwrap().rows, 2);
    assert_eq!(harness.state.get::<v2::Payment>("00001").unwrap().unwrap().currency, "USD");
}
