//! Looks at a deployment for `check`: what it says about itself, and what it does with documents of our own. Makes the
//! collections. The verdict is in `fitness.rs`.

use millrace_journal::JournalError;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};

use crate::collections::{Collections, JOURNAL, MANIFEST, PARTS, write_concern};
use crate::connection::Connection;
use crate::failure::{COMMAND_NOT_FOUND, DUPLICATE_KEY, NAMESPACE_EXISTS, RequestError};
use crate::fitness::{Deployment, Observed, ObservedCollection, Storage, Writing, decide_before_writing};

/// With this code the engine refuses a write concern that it cannot keep.
const BAD_VALUE: i32 = 2;

/// Each step is a request with a deadline of its own.
pub(crate) fn observe(connection: &Connection) -> Result<Observed, JournalError> {
    let build = connection.run("asking for the version", |collections| async move {
        Ok(collections.database.run_command(doc! { "buildInfo": 1 }).await?)
    })?;
    let version = build.get_str("version").unwrap_or_default().to_owned();
    let hello = connection.run("asking for the members", hello)?;
    let is_primary = is_true(&hello, "isWritablePrimary") || is_true(&hello, "ismaster");
    decide_before_writing(&version, is_primary)?;
    let deployment = deployment_of(&hello);
    let collections = connection.run("listing the collections", list_collections)?;
    let names: Vec<String> = collections.iter().map(|collection| collection.name.clone()).collect();
    let made = connection.run("making the collections", move |collections| async move {
        make_missing(&collections, &names).await
    })?;
    let storage = connection.run("asking for the storage engine", storage_engine)?;
    let writing = match made {
        Writing::Fine => try_writing(connection, deployment.has_elections())?,
        refused => refused,
    };
    Ok(Observed {
        version,
        modules: strings(&build, "modules"),
        is_primary,
        deployment,
        storage,
        collections,
        writing,
        allows_unsynced: connection.settings().allows_unsynced(),
        ignored_options: connection.settings().ignored_options().to_vec(),
    })
}

/// Asks the deployment for its members.
pub(crate) fn deployment(connection: &Connection) -> Result<Deployment, JournalError> {
    connection.run("asking for the members", hello).map(|hello| deployment_of(&hello))
}

async fn hello(collections: Collections) -> Result<Document, RequestError> {
    match collections.database.run_command(doc! { "hello": 1 }).await.map_err(RequestError::from) {
        // 4.4.0 and 4.4.1 know only the old name.
        Err(error) if error.code() == Some(COMMAND_NOT_FOUND) => {
            Ok(collections.database.run_command(doc! { "isMaster": 1 }).await?)
        }
        other => other,
    }
}

fn deployment_of(hello: &Document) -> Deployment {
    if hello.get_str("msg").is_ok_and(|message| message == "isdbgrid") {
        return Deployment::Router;
    }
    match hello.get_str("setName") {
        Ok(name) => Deployment::ReplicaSet {
            name: name.to_owned(),
            electable: strings(hello, "hosts"),
            passive: strings(hello, "passives"),
        },
        Err(_) => Deployment::Standalone,
    }
}

/// Makes the collections that are not there yet, with the write concern of the journal. Existing ones are left alone, so
/// that a user without the right to make collections can use those that somebody else has made.
async fn make_missing(collections: &Collections, existing: &[String]) -> Result<Writing, RequestError> {
    for name in [JOURNAL, MANIFEST, PARTS] {
        if existing.iter().any(|existing| existing == name) {
            continue;
        }
        let concern = write_concern(collections.engine_timeout);
        let made = collections.database.create_collection(name).write_concern(concern).await;
        match made.map_err(RequestError::from) {
            Ok(()) => {}
            // Another server was faster.
            Err(error) if error.code() == Some(NAMESPACE_EXISTS) => {}
            Err(error) => return concern_refused(error),
        }
    }
    Ok(Writing::Fine)
}

async fn list_collections(collections: Collections) -> Result<Vec<ObservedCollection>, RequestError> {
    let ours = doc! { "name": { "$in": [JOURNAL, MANIFEST, PARTS] } };
    let mut cursor =
        collections.database.run_cursor_command(doc! { "listCollections": 1, "filter": ours }).await?;
    let mut found = Vec::new();
    while cursor.advance().await? {
        let collection = cursor.deserialize_current()?;
        let options = collection.get_document("options").ok();
        found.push(ObservedCollection {
            name: collection.get_str("name").unwrap_or_default().to_owned(),
            kind: collection.get_str("type").unwrap_or("collection").to_owned(),
            is_capped: options.is_some_and(|options| is_true(options, "capped")),
        });
    }
    Ok(found)
}

/// The statistics of a collection hold a section that is named after the storage engine. Unlike `serverStatus`, reading
/// them needs no right beyond `readWrite`.
async fn storage_engine(collections: Collections) -> Result<Storage, RequestError> {
    let statistics = doc! { "$collStats": { "storageStats": {} } };
    let asked = collections.database.collection::<Document>(JOURNAL).aggregate([statistics]).await;
    let mut cursor = match asked {
        Ok(cursor) => cursor,
        // An engine without these statistics is not refused: a remark says that it could not be looked at.
        Err(error) => {
            let error = RequestError::from(error);
            return if error.code().is_some() { Ok(Storage::Unknown) } else { Err(error) };
        }
    };
    let mut storage = Storage::Unknown;
    while cursor.advance().await? {
        let collection = cursor.deserialize_current()?;
        let Ok(sections) = collection.get_document("storageStats") else { continue };
        if sections.contains_key("inMemory") {
            return Ok(Storage::InMemory);
        }
        if sections.contains_key("wiredTiger") {
            storage = Storage::WiredTiger;
        }
    }
    Ok(storage)
}

/// Does with a document of its own everything that the journal does with its documents: shows missing rights and
/// unknown concerns at the start instead of at the first event.
fn try_writing(connection: &Connection, has_elections: bool) -> Result<Writing, JournalError> {
    let id = format!("check-{}", ObjectId::new());
    connection.run("trying out writes", move |collections| async move {
        let outcome = write_and_read(&collections, &id, has_elections).await;
        // Also after a failure, as far as the engine allows it. A document left behind is small and never read.
        let deleted = collections.manifest.delete_one(doc! { "_id": &id }).await;
        match (outcome?, deleted) {
            (Writing::Fine, Err(error)) => Err(error.into()),
            (outcome, _) => Ok(outcome),
        }
    })
}

async fn write_and_read(
    collections: &Collections,
    id: &str,
    has_elections: bool,
) -> Result<Writing, RequestError> {
    let document = || rawdoc! { "_id": id, "version": 0_i64 };
    if let Err(error) = insert(collections, document()).await {
        return concern_refused(error);
    }
    match insert(collections, document()).await {
        Ok(()) => return Ok(Writing::DuplicateAccepted),
        Err(error) if error.code() == Some(DUPLICATE_KEY) => {}
        Err(error) => return Err(error),
    }
    let replaced = collections.manifest.replace_one(doc! { "_id": id, "version": 0_i64 }, document()).await?;
    let found =
        collections.find_one_settled(&collections.manifest, doc! { "_id": id }, has_elections).await?;
    let is_found = replaced.matched_count == 1 && found.is_some();
    Ok(if is_found { Writing::Fine } else { Writing::NotFound })
}

async fn insert(collections: &Collections, document: RawDocumentBuf) -> Result<(), RequestError> {
    collections.manifest.insert_one(document).await?;
    Ok(())
}

fn concern_refused(error: RequestError) -> Result<Writing, RequestError> {
    match &error {
        RequestError::Driver(driver) if error.code() == Some(BAD_VALUE) => {
            Ok(Writing::ConcernRefused(driver.kind.to_string()))
        }
        _ => Err(error),
    }
}

fn strings(document: &Document, key: &str) -> Vec<String> {
    let values = document.get_array(key).map(Vec::as_slice).unwrap_or_default();
    values.iter().filter_map(Bson::as_str).map(str::to_owned).collect()
}

fn is_true(document: &Document, key: &str) -> bool {
    document.get_bool(key).unwrap_or(false)
}
