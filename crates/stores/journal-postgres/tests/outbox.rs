//! The outbox: an event is published if and only if the application's transaction commits, and leaves with its record.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_journal::{Journal, OutboxId, OutboxRefusal, Placed};
use support::*;

fn ids(journal: &impl Journal) -> Vec<OutboxId> {
    journal.outbox(None, 1000).unwrap().into_iter().map(|row| row.id).collect()
}

#[test]
fn an_event_waits_from_the_commit_on_and_not_before() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    let mut application = schema.client();
    let publish = format!("SELECT {}.millrace_publish('orders', '{{\"n\":1}}')", schema.name);
    let mut transaction = application.transaction().unwrap();
    transaction.simple_query(&publish).unwrap();
    assert_eq!(journal.outbox(None, 10).unwrap(), []);
    transaction.rollback().unwrap();
    assert_eq!(journal.outbox(None, 10).unwrap(), []);
    let mut transaction = application.transaction().unwrap();
    transaction.simple_query(&publish).unwrap();
    transaction.commit().unwrap();
    let rows = journal.outbox(None, 10).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].topic.as_str(), rows[0].payload.as_str()), ("orders", "{\"n\":1}"));
    assert_eq!((&rows[0].key, &rows[0].headers), (&None, &None));
    assert_eq!(rows[0].event_id.len(), 36);
}

#[test]
fn every_way_to_call_the_function_keeps_what_was_given() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    let odd = "{ \"b\" : 1.50, \"a\":\"\\u00e9 é\" , \"a\":2}";
    let s = &schema.name;
    let mut application = schema.client();
    let publish = |sql: &str| application.query_one(sql, &[]).unwrap().get::<_, String>(0);
    let mut publish = publish;
    publish(&format!("SELECT {s}.millrace_publish('t', '{odd}')"));
    publish(&format!("SELECT {s}.millrace_publish('t', '{odd}'::json, 'k', '{{\"h\": \"1\"}}'::json)"));
    publish(&format!("SELECT {s}.millrace_publish('t', jsonb_build_object('n', 1), headers => '{{}}')"));
    let id = publish(&format!(
        "SELECT {s}.millrace_publish(topic => 't', payload => 'null', event_id => 'order 7')"
    ));
    assert_eq!(id, "order 7");
    let untyped = format!("SELECT {s}.millrace_publish($1, $2, $3, $4, $5)");
    let row = application.query_one(&untyped, &[&"t", &odd, &"k", &"{\"h\":\"1\"}", &None::<&str>]).unwrap();
    let made: String = row.get(0);
    let rows = journal.outbox(None, 10).unwrap();
    let payloads: Vec<&str> = rows.iter().map(|row| row.payload.as_str()).collect();
    assert_eq!(payloads, [odd, odd, "{\"n\": 1}", "null", odd]);
    let keys: Vec<_> = rows.iter().map(|row| row.key.as_deref()).collect();
    assert_eq!(keys, [None, Some("k"), None, None, Some("k")]);
    let headers: Vec<_> = rows.iter().map(|row| row.headers.as_deref()).collect();
    assert_eq!(headers, [None, Some("{\"h\": \"1\"}"), Some("{}"), None, Some("{\"h\":\"1\"}")]);
    assert_eq!((rows[3].event_id.as_str(), &rows[4].event_id), ("order 7", &made));
}

#[test]
fn the_application_learns_at_once_that_an_event_can_never_be_published() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    let mut application = schema.client();
    for (arguments, expected) in [
        ("'a/b/c', '1'", "'a/b/c' is no topic"),
        ("'/b', '1'", "'/b' is no topic"),
        ("'a/', '1'", "'a/' is no topic"),
        ("'a..b', '1'", "'a..b' is no topic"),
        ("'.a', '1'", "'.a' is no topic"),
        ("'a b', '1'", "'a b' is no topic"),
        ("'é', '1'", "'é' is no topic"),
        ("'', '1'", "'' is no topic"),
        ("E'a\\n', '1'", "is no topic"),
        ("repeat('a', 252), '1'", "is no topic"),
        ("NULL, '1'", "NULL is no topic"),
        ("'a', NULL::text", "the payload is NULL"),
        ("'a', 'no json'", "invalid input syntax for type json"),
        ("'a', '1', event_id => ''", "is no id"),
        ("'a', '1', event_id => 'é'", "is no id"),
        ("'a', '1', event_id => repeat('a', 256)", "is no id"),
        ("'a', '1', headers => '[]'", "no JSON object of strings"),
        ("'a', '1', headers => '{\"a\":1}'", "no JSON object of strings"),
    ] {
        let sql = format!("SELECT {}.millrace_publish({arguments})", schema.name);
        let error = application.simple_query(&sql).unwrap_err();
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains(expected), "{arguments}: {message}");
    }
    assert_eq!(journal.outbox(None, 10).unwrap(), []);
    for topic in
        ["a", "heartbeat.received", "changelog:processes", "A-Z_0.9", "orders.DLQ", "blue/orders.new"]
    {
        schema.query(&format!("SELECT {{s}}.millrace_publish('{topic}', '1')"));
    }
    assert_eq!(journal.outbox(None, 10).unwrap().len(), 6);
}

#[test]
fn rows_leave_with_their_record_and_only_if_it_was_placed() {
    let Some(schema) = Schema::new() else { return };
    let (journal, other) = (schema.checked(), schema.journal());
    for n in 0..5 {
        schema.query(&format!("SELECT {{s}}.millrace_publish('orders', '{n}')"));
    }
    let waiting = ids(&journal);
    assert_eq!(waiting.len(), 5);
    place_up_to(&other, 1, 1);
    assert_eq!(place_settling(&journal, 1, &waiting[..2]).unwrap(), Placed::Taken);
    assert_eq!(ids(&journal), waiting);
    assert_eq!(place_settling(&journal, 2, &waiting[..2]).unwrap(), Placed::Yes);
    assert_eq!(ids(&journal), waiting[2..]);
    // A repeated call finds the number taken and deletes nothing more.
    assert_eq!(place_settling(&journal, 2, &waiting).unwrap(), Placed::Taken);
    assert_eq!(ids(&journal), waiting[2..]);
    // Rows that are gone already do not keep a record from being placed.
    assert_eq!(place_settling(&journal, 3, &[waiting[0], waiting[2]]).unwrap(), Placed::Yes);
    journal.delete_outbox(&[waiting[0], waiting[3]]).unwrap();
    journal.delete_outbox(&[]).unwrap();
    assert_eq!(ids(&journal), waiting[4..]);
}

#[test]
fn of_two_servers_that_settle_the_same_rows_one_does() {
    let Some(schema) = Schema::new() else { return };
    let journals = Arc::new([schema.checked(), schema.checked(), schema.checked(), schema.checked()]);
    for n in 1..=40 {
        schema.query(&format!("SELECT {{s}}.millrace_publish('orders', '{n}')"));
        let waiting = ids(&journals[0]);
        let shared = journals.clone();
        let placed = together(4, move |thread| place_settling(&shared[thread], n, &waiting).unwrap());
        assert_eq!(placed.iter().filter(|placed| **placed == Placed::Yes).count(), 1, "{n}");
        assert_eq!(ids(&journals[0]), []);
    }
}

#[test]
fn a_refused_row_moves_to_where_people_find_it() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    let s = &schema.name;
    schema.query("SELECT {s}.millrace_publish('orders', '{\"n\" : 1}', 'k', '{\"h\":\"1\"}', 'id-1')");
    schema.query("SELECT {s}.millrace_publish('orders', '2')");
    let waiting = ids(&journal);
    let refusals = [
        OutboxRefusal { id: waiting[0], reason: "too large\0 by far".to_owned() },
        OutboxRefusal { id: OutboxId(999_999), reason: "gone".to_owned() },
    ];
    journal.refuse_outbox(&refusals).unwrap();
    journal.refuse_outbox(&refusals).unwrap();
    journal.refuse_outbox(&[]).unwrap();
    assert_eq!(ids(&journal), waiting[1..]);
    let found = schema.query(&format!(
        "SELECT row(id, topic, key, headers, payload, event_id, reason)::text FROM {s}.millrace_outbox_refused"
    ));
    let expected =
        "(1,orders,k,\"{\"\"h\"\":\"\"1\"\"}\",\"{\"\"n\"\" : 1}\",id-1,\"too large\u{fffd} by far\")";
    assert_eq!(found, [expected]);
    // People put it right and send it again.
    schema.query(
        "WITH again AS (DELETE FROM {s}.millrace_outbox_refused RETURNING *)
         SELECT {s}.millrace_publish(topic, payload, key, headers, event_id) FROM again",
    );
    assert_eq!(journal.outbox(None, 10).unwrap()[1].event_id, "id-1");
}

#[test]
fn a_look_is_bounded_in_rows_and_bytes() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    let large = "SELECT {s}.millrace_publish('large', to_json(repeat('x', 3 << 20)))";
    for _ in 0..4 {
        schema.query(large);
    }
    let rows = journal.outbox(None, 10).unwrap();
    assert_eq!(rows.len(), 2, "8 MiB at most");
    assert_eq!(rows[0].payload.len(), (3 << 20) + 2);
    assert_eq!(journal.outbox(None, 1).unwrap().len(), 1);
    schema.query(
        "TRUNCATE {s}.millrace_outbox; SELECT {s}.millrace_publish('large', to_json(repeat('x', 9 << 20)))",
    );
    assert_eq!(journal.outbox(None, 10).unwrap().len(), 1, "a single row comes whatever its size");
    assert_eq!(journal.outbox(None, 0).unwrap(), []);
}

#[test]
fn each_committed_publish_of_100_writers_leaves_once() {
    let Some(schema) = Schema::new() else { return };
    let schema = Arc::new(schema);
    let journal = schema.checked();
    let shared = schema.clone();
    let writers = std::thread::spawn(move || {
        together(100, move |writer| {
            let mut client = shared.client();
            let mut committed = Vec::new();
            for turn in 0..10 {
                let id = format!("{writer}-{turn}");
                let mut transaction = client.transaction().unwrap();
                let sql = format!("SELECT {}.millrace_publish('orders', '1', event_id => $1)", shared.name);
                transaction.query(&sql, &[&id]).unwrap();
                if (writer + turn) % 3 == 0 {
                    transaction.rollback().unwrap();
                } else {
                    transaction.commit().unwrap();
                    committed.push(id);
                }
            }
            committed
        })
    });
    let mut left: Vec<String> = Vec::new();
    let mut n = 0;
    loop {
        let is_over = writers.is_finished();
        let rows = journal.outbox(None, 64).unwrap();
        if rows.is_empty() && is_over {
            break;
        }
        n += 1;
        let settles: Vec<OutboxId> = rows.iter().map(|row| row.id).collect();
        assert_eq!(place_settling(&journal, n, &settles).unwrap(), Placed::Yes);
        left.extend(rows.into_iter().map(|row| row.event_id));
    }
    let committed: Vec<String> = writers.join().unwrap().into_iter().flatten().collect();
    assert_eq!(left.len(), committed.len());
    assert_eq!(left.into_iter().collect::<BTreeSet<_>>(), committed.into_iter().collect::<BTreeSet<_>>());
}
