//! The check at the start: the schema is made once, by whoever may; rights are looked at; other versions are refused.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use millrace_journal::{HeadGuard, Journal, OutboxRefusal, PartName, Placed};
use support::*;

/// A role that may log in and nothing else. Removed at the end, with its rights.
struct Role {
    name: String,
    schema: Arc<Schema>,
}

impl Role {
    fn new(schema: &Arc<Schema>) -> Role {
        let name = format!("role_{:016x}", rand::random::<u64>());
        schema.query(&format!("CREATE ROLE {name} LOGIN"));
        Role { name, schema: schema.clone() }
    }

    fn grant(&self, rights: &str) {
        self.schema.query(&format!("GRANT {rights} TO {}", self.name));
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.schema.query(&format!("DROP OWNED BY {0} CASCADE; DROP ROLE {0}", self.name));
    }
}

#[test]
fn eight_servers_that_start_together_make_one_schema() {
    let Some(schema) = Schema::new() else { return };
    let schema = Arc::new(schema);
    let shared = schema.clone();
    let found = together(8, move |_| shared.journal().check().unwrap());
    assert!(found.iter().all(|fitness| *fitness == found[0]));
    assert!(found[0].engine.starts_with("PostgreSQL "), "{}", found[0].engine);
    assert_eq!(found[0].head_guard, HeadGuard::Engine);
    assert_eq!(schema.query("SELECT n FROM {s}.millrace_head"), ["0"]);
    let journal = schema.journal();
    assert_eq!(place(&journal, 1).unwrap(), Placed::Yes);
    // Checking again changes nothing.
    journal.check().unwrap();
    assert_eq!(numbers(&journal, 1), [1]);
}

#[test]
fn an_empty_schema_that_an_administrator_made_is_filled() {
    let Some(schema) = Schema::new() else { return };
    let schema = Arc::new(schema);
    schema.query("CREATE SCHEMA {s}");
    let role = Role::new(&schema);
    let journal = millrace_journal_postgres::PostgresJournal::open(&schema.url_as(&role.name)).unwrap();
    let text = assert_refused(journal.check(), "permission denied for schema");
    assert!(text.contains("42501") && text.contains("docs/formats/journal-postgres.md"), "{text}");
    role.grant(&format!("USAGE, CREATE ON SCHEMA {}", schema.name));
    journal.check().unwrap();
    assert_eq!(place(&journal, 1).unwrap(), Placed::Yes);
}

#[test]
fn a_role_that_may_not_make_a_schema_is_told_so() {
    let Some(schema) = Schema::new() else { return };
    let schema = Arc::new(schema);
    let role = Role::new(&schema);
    let journal = millrace_journal_postgres::PostgresJournal::open(&schema.url_as(&role.name)).unwrap();
    assert_refused(journal.check(), "permission denied for database");
}

#[test]
fn a_role_with_the_documented_rights_can_do_everything_and_make_nothing() {
    let Some(schema) = Schema::new() else { return };
    let schema = Arc::new(schema);
    schema.with_partitions(10);
    let role = Role::new(&schema);
    let s = &schema.name;
    role.grant(&format!("USAGE ON SCHEMA {s}"));
    let address = millrace_journal_postgres::PostgresAddress::parse(&schema.url_as(&role.name)).unwrap();
    let journal = millrace_journal_postgres::PostgresJournal::with_partitions(address, 10);
    let text = assert_refused(
        journal.check(),
        &format!("GRANT INSERT ON \"{s}\".millrace_journal TO \"{}\"", role.name),
    );
    // The statements in the text are the remedy.
    let grants = text.split_once("run: ").unwrap().1.split_once(" (see").unwrap().0;
    schema.query(grants);
    journal.check().unwrap();
    assert_eq!(
        schema.query(&format!("SELECT has_schema_privilege('{}', '{s}', 'CREATE')", role.name)),
        ["f"]
    );

    place_up_to(&journal, 1, 45);
    journal.delete_below(40).unwrap();
    assert_eq!(numbers(&journal, 1), (40..=45).collect::<Vec<_>>());
    assert!(journal.set_manifest(b"m", None).unwrap());
    let version = journal.manifest().unwrap().unwrap().version;
    assert!(journal.set_manifest(b"n", Some(&version)).unwrap());
    let part = PartName("1-a/0".to_owned());
    journal.put_part(&part, b"x").unwrap();
    journal.get_part(&part).unwrap().unwrap();
    journal.delete_part(&part).unwrap();
    for n in 0..3 {
        schema.query(&format!("SELECT {{s}}.millrace_publish('orders', '{n}')"));
    }
    let rows = journal.outbox(None, 10).unwrap();
    assert_eq!(place_settling(&journal, 46, &[rows[0].id]).unwrap(), Placed::Yes);
    journal.delete_outbox(&[rows[1].id]).unwrap();
    journal.refuse_outbox(&[OutboxRefusal { id: rows[2].id, reason: "no".to_owned() }]).unwrap();
    assert_eq!(journal.outbox(None, 10).unwrap(), []);
}

#[test]
fn an_application_needs_one_right_and_no_search_path() {
    let Some(schema) = Schema::new() else { return };
    let schema = Arc::new(schema);
    let journal = schema.checked();
    let role = Role::new(&schema);
    let s = schema.name.clone();
    role.grant(&format!("USAGE ON SCHEMA {s}"));
    let url = schema.url_as(&role.name).split('?').next().unwrap().to_owned();
    let mut application = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    let publish = format!("SELECT {s}.millrace_publish('orders', '{{\"n\": 1}}')");
    let error = application.simple_query(&publish).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501", "not for everybody");
    role.grant(&format!("EXECUTE ON FUNCTION {s}.millrace_publish(text, text, text, text, text)"));
    // A table of the same name in a schema that is searched earlier must not catch the row.
    application
        .batch_execute("SET search_path = public; CREATE TEMP TABLE millrace_outbox (id int, topic text)")
        .unwrap();
    application.simple_query(&publish).unwrap();
    assert_eq!(journal.outbox(None, 10).unwrap()[0].payload, "{\"n\": 1}");
    let direct = format!("INSERT INTO {s}.millrace_outbox (topic, payload) VALUES ('a', '1')");
    assert!(application.simple_query(&direct).is_err());
    let partitions = format!("SELECT {s}.millrace_make_partitions(10)");
    assert!(application.simple_query(&partitions).is_err());
}

#[test]
fn a_schema_of_a_newer_version_is_refused() {
    let Some(schema) = Schema::new() else { return };
    schema.checked();
    schema.query(
        "CREATE OR REPLACE FUNCTION {s}.millrace_schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2'",
    );
    assert_refused(schema.journal().check(), "version 2, this server knows version 1: upgrade this server");
}

#[test]
fn a_head_that_does_not_agree_with_the_journal_is_refused() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    place_up_to(&journal, 1, 3);
    schema.query(
        "UPDATE {s}.millrace_head SET n = 1, tip = decode('0100000000000000' || repeat('00', 8), 'hex')",
    );
    assert_refused(place(&journal, 2), "do not agree");
    assert_eq!(numbers(&journal, 1), [1, 2, 3]);
}

#[test]
fn a_schema_that_went_away_is_refused_with_its_name() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    place_up_to(&journal, 1, 1);
    schema.query("DROP SCHEMA {s} CASCADE");
    for _ in 0..2 {
        let text = assert_refused(place(&journal, 2), "schema is missing");
        assert!(text.contains(&schema.name), "{text}");
    }
    assert_refused(journal.read(1, EVERYTHING), "schema is missing");
    assert_refused(journal.delete_below(10), "schema is missing");
}

#[test]
fn a_schema_that_is_gone_is_not_made_anew_for_a_server_that_has_a_copy() {
    let Some(schema) = Schema::new() else { return };
    assert_refused(schema.journal().check_existing(), "restore the schema from a backup");
    // An empty schema, too, is not the one of the copy.
    schema.query("CREATE SCHEMA {s}");
    assert_refused(schema.journal().check_existing(), "is gone");
    assert_eq!(schema.count("SELECT count(*) FROM pg_class WHERE relnamespace = '{s}'::regnamespace"), 0);
    let fitness = schema.journal().check().unwrap();
    assert_eq!(schema.journal().check_existing().unwrap(), fitness);
}
