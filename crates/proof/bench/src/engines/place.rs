//! A place of its own for every run, beside what the URL names: a schema, a prefix, a database or a folder. Removed at
//! the end, also after an interrupt.

use std::path::{Path, PathBuf};

use super::raw::{RawEngine, open};
use crate::error::BenchError;

/// The engines that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Sqlite,
    Folder,
    Postgres,
    Object,
    Mongo,
}

impl EngineKind {
    fn of(url: &str) -> Option<(EngineKind, &'static str)> {
        let scheme = url.split_once(':')?.0;
        Some(match scheme {
            "sqlite" => (EngineKind::Sqlite, "sqlite"),
            "dir" => (EngineKind::Folder, "dir"),
            "postgres" | "postgresql" => (EngineKind::Postgres, "postgres"),
            "s3" => (EngineKind::Object, "s3"),
            "gs" => (EngineKind::Object, "gs"),
            "az" | "azure" => (EngineKind::Object, "az"),
            "mongodb" | "mongodb+srv" => (EngineKind::Mongo, "mongodb"),
            _ => return None,
        })
    }

    /// Returns whether several servers may have such a store.
    pub(crate) fn is_shared(self) -> bool {
        self != EngineKind::Sqlite
    }

    /// The least time between commits by default, where there is one.
    pub(crate) fn commit_interval_ms(self) -> Option<u64> {
        (self == EngineKind::Object).then_some(100)
    }

    /// The time after which a silent leader is replaced by default.
    pub(crate) fn lead_timeout_ms(self) -> u64 {
        if self == EngineKind::Object { 15_000 } else { 5_000 }
    }
}

/// A store to measure, as the command line names it.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredStore {
    pub(crate) kind: EngineKind,
    /// Stands before the scenario in the report.
    pub(crate) label: String,
    url: String,
}

impl MeasuredStore {
    pub(crate) fn all(urls: &[String]) -> Result<Vec<MeasuredStore>, BenchError> {
        let mut all: Vec<MeasuredStore> = Vec::new();
        for url in urls {
            // A URL may name several hosts, with commas between them as between URLs.
            if let Some(before) =
                all.last_mut().filter(|_| !url.contains("://") && EngineKind::of(url).is_none())
            {
                before.url.push(',');
                before.url.push_str(url);
                continue;
            }
            let Some((kind, name)) = EngineKind::of(url) else {
                // Not a word of the URL: it may hold a password.
                return Err(BenchError::StoreUrl(
                    "write sqlite:///FILE, dir:///FOLDER, postgres://…, s3://BUCKET/PREFIX or mongodb://…"
                        .into(),
                ));
            };
            let before = all.iter().filter(|other| other.label.split('-').next() == Some(name)).count();
            let label = if before == 0 { name.to_owned() } else { format!("{name}-{}", before + 1) };
            all.push(MeasuredStore { kind, label, url: url.clone() });
        }
        match all.is_empty() {
            true => Err(BenchError::StoreUrl("give at least one".into())),
            false => Ok(all),
        }
    }
}

/// A fresh store that nobody else uses.
pub(crate) struct BenchPlace {
    /// With its secrets.
    pub(crate) url: String,
    pub(crate) raw: Box<dyn RawEngine>,
    /// Of a journal in a folder, whose disk has a speed of its own.
    pub(crate) folder: Option<PathBuf>,
    is_removed: bool,
}

impl BenchPlace {
    pub(crate) fn new(store: &MeasuredStore) -> Result<BenchPlace, BenchError> {
        let name = format!("bench_{:016x}", rand::random::<u64>());
        let (url, folder) = match store.kind {
            EngineKind::Sqlite | EngineKind::Folder => in_folder(&store.url, &name)?,
            EngineKind::Postgres => (with_parameter(&store.url, "schema", &name), PathBuf::new()),
            EngineKind::Object => (with_piece(&store.url, &name), PathBuf::new()),
            EngineKind::Mongo => (with_database(&store.url, &name), PathBuf::new()),
        };
        let raw = open(store.kind, &url, &folder)?;
        let folder = (store.kind == EngineKind::Folder).then_some(folder);
        Ok(BenchPlace { url, raw, folder, is_removed: false })
    }

    pub(crate) fn remove(mut self) -> Result<(), BenchError> {
        self.is_removed = true;
        self.raw.remove()
    }
}

impl Drop for BenchPlace {
    fn drop(&mut self) {
        if !self.is_removed {
            // Only after a panic; its cause matters more than what is left behind.
            let _ = self.raw.remove();
        }
    }
}

/// Returns the URL of a store in a folder of its own, and that folder.
fn in_folder(url: &str, name: &str) -> Result<(String, PathBuf), BenchError> {
    let wrong = |source| BenchError::io("finding the folder of the store", source);
    let (scheme, path) =
        url.split_once(":///").ok_or_else(|| BenchError::StoreUrl("write three slashes".into()))?;
    let path = std::path::absolute(Path::new(path)).map_err(wrong)?;
    if scheme == "sqlite" {
        let folder = path.parent().unwrap_or(&path).join(name);
        std::fs::create_dir_all(&folder).map_err(wrong)?;
        return Ok((format!("sqlite:///{}", folder.join("bench.db").display()), folder));
    }
    let folder = path.join(name);
    std::fs::create_dir_all(&folder).map_err(wrong)?;
    Ok((format!("dir:///{}", folder.join("store").display()), folder))
}

/// Sets a parameter of a URL.
fn with_parameter(url: &str, name: &str, value: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let is_other = |pair: &&str| !pair.is_empty() && pair.split('=').next() != Some(name);
    let mut pairs: Vec<String> = query.split('&').filter(is_other).map(str::to_owned).collect();
    pairs.push(format!("{name}={value}"));
    format!("{base}?{}", pairs.join("&"))
}

/// Adds a piece to the path of a URL.
fn with_piece(url: &str, piece: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let base = format!("{}/{piece}", base.trim_end_matches('/'));
    query.map_or_else(|| base.clone(), |query| format!("{base}?{query}"))
}

/// Names another database of MongoDB. Users stay where they are defined, which is the database of the URL by default.
fn with_database(url: &str, database: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = base.split_once("://").unwrap_or(("mongodb", base));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let has_source = query.to_ascii_lowercase().contains("authsource=");
    let mut pairs: Vec<String> =
        query.split('&').filter(|pair| !pair.is_empty()).map(str::to_owned).collect();
    if authority.contains('@') && !path.is_empty() && !has_source {
        pairs.push(format!("authSource={path}"));
    }
    let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    format!("{scheme}://{authority}/{database}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_place_of_its_own_beside_the_url() {
        assert_eq!(with_parameter("postgres://u@h/db", "schema", "b"), "postgres://u@h/db?schema=b");
        assert_eq!(
            with_parameter("postgres://u@h/db?schema=mine&sslmode=require", "schema", "b"),
            "postgres://u@h/db?sslmode=require&schema=b"
        );
        assert_eq!(with_piece("s3://bucket", "b"), "s3://bucket/b");
        assert_eq!(with_piece("s3://bucket/a/?region=x", "b"), "s3://bucket/a/b?region=x");
        assert_eq!(with_database("mongodb://h:1", "b"), "mongodb://h:1/b");
        assert_eq!(with_database("mongodb://h/app?w=1", "b"), "mongodb://h/b?w=1");
        assert_eq!(with_database("mongodb://u:p@h/app", "b"), "mongodb://u:p@h/b?authSource=app");
        assert_eq!(with_database("mongodb://u:p@h/app?authSource=x", "b"), "mongodb://u:p@h/b?authSource=x");
    }

    #[test]
    fn stores_of_one_engine_have_labels_of_their_own() {
        let urls = ["s3://a", "postgres://h/x", "s3://b"].map(str::to_owned);
        let labels: Vec<String> =
            MeasuredStore::all(&urls).unwrap().into_iter().map(|store| store.label).collect();
        assert_eq!(labels, ["s3", "postgres", "s3-2"]);
        let hosts = ["mongodb://one", "two:27017/app", "s3://b"].map(str::to_owned);
        let stores = MeasuredStore::all(&hosts).unwrap();
        assert_eq!((stores.len(), stores[0].url.as_str()), (2, "mongodb://one,two:27017/app"));
        assert!(MeasuredStore::all(&["memory:".to_owned()]).is_err());
        assert!(MeasuredStore::all(&[]).is_err());
        let error = MeasuredStore::all(&["redis://u:secret@h".to_owned()]).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
