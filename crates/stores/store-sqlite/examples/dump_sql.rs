//! Writes the whole content of a store to stdout as SQL text, for fixtures that people can read and compare.
//!
//! `cargo run -p millrace-store-sqlite --example dump_sql FILE`

use std::error::Error;
use std::io::Write;

use rusqlite::Connection;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("name the store file")?;
    let conn = Connection::open(file)?;
    let mut out = std::io::stdout().lock();
    for pragma in ["application_id", "user_version"] {
        let number: i64 = conn.pragma_query_value(None, pragma, |row| row.get(0))?;
        writeln!(out, "PRAGMA {pragma} = {number};")?;
    }
    writeln!(out, "BEGIN;")?;
    // SQLite creates `sqlite_sequence` itself, with the first table that needs it.
    let tables =
        "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name = 'sqlite_sequence', rowid";
    let tables: Vec<(String, String)> = conn
        .prepare(tables)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (name, sql) in tables {
        if name != "sqlite_sequence" {
            writeln!(out, "{sql};")?;
        }
        let mut columns = conn.prepare(&format!("SELECT name FROM pragma_table_info('{name}')"))?;
        let columns: Vec<String> = columns.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let quoted: Vec<String> = columns.iter().map(|column| format!("quote(\"{column}\")")).collect();
        let mut rows = conn.prepare(&format!("SELECT {} FROM \"{name}\"", quoted.join(" || ',' || ")))?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            writeln!(out, "INSERT INTO \"{name}\" VALUES ({});", row.get::<_, String>(0)?)?;
        }
    }
    writeln!(out, "COMMIT;\nPRAGMA journal_mode = WAL;")?;
    Ok(())
}
