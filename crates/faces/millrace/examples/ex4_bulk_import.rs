//! Example 4: a handler that commits many times. A retry repeats nothing: declaring state that is already stored is no
//! change.
//!
//! `cargo run -p millrace --example ex4_bulk_import [sqlite:///app.db]`; every URL of `docs/engines.md` will do.

use millrace::{Entity, Event, HandlerContext, HandlerError, Session, handlers, on_event};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct BulkImport {
    file_path: String,
}

#[derive(Entity, Serialize, Deserialize)]
struct Record {
    #[key]
    id: u64,
    name: String,
}

const ROWS_PER_COMMIT: usize = 1000;

#[on_event(BulkImport)]
fn import_large_dataset(ctx: &mut HandlerContext<BulkImport>) -> Result<(), HandlerError> {
    let text = std::fs::read_to_string(&ctx.event.file_path)?;
    let mut batch = Vec::new();
    for line in text.lines() {
        let (id, name) = line.split_once(',').ok_or("a row without a comma")?;
        batch.push(Record { id: id.parse()?, name: name.to_owned() });
        if batch.len() >= ROWS_PER_COMMIT {
            ctx.ensure(std::mem::take(&mut batch))?;
            ctx.commit()?;
        }
    }
    ctx.ensure(batch)?;
    ctx.commit()?;
    Ok(())
}

/// Returns the number of records, and of the commits it took to store them.
pub(crate) fn run(store: &str, rows: u64) -> Result<(u64, usize), HandlerError> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rows.csv");
    std::fs::write(&file, (0..rows).map(|n| format!("{n},name {n}\n")).collect::<String>())?;

    let session = Session::open(store)?;
    session.publish(BulkImport { file_path: file.display().to_string() })?;
    session.run_until_idle(handlers![import_large_dataset], vec![])?;
    let commits = session.state().list_commits(100, millrace::StateCommit(0))?;
    Ok((session.query::<Record>().count()?, commits.len()))
}

#[allow(dead_code)]
fn main() -> Result<(), HandlerError> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let (records, commits) = run(&store, 2500)?;
    println!("{records} records in {commits} commits");
    Ok(())
}
