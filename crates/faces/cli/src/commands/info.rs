//! `millrace info`: the version of this program, and the contents of a store in figures.

use clap::{ArgMatches, Command};
use millrace_admin::{Admin, Totals};
use millrace_store::DiskUse;
use millrace_stores::{StoreInfo, store_info, without_secrets};
use serde_json::{Value, json};

use crate::commands::events::{SESSION_TTL_MS, open_existing};
use crate::commands::json_flag;
use crate::commands::now;
use crate::commands::offline::store_url;
use crate::failure::Failure;
use crate::log;
use crate::output::{Output, columns};
use crate::settings::{Config, Scope, args, resolve};

pub(super) fn command() -> Command {
    Command::new("info")
        .about("Show the version, and a store at a glance: schema, size, and how much of what is in it")
        .long_about(
            "Show the version, and a store at a glance: schema, size, and how many namespaces, topics, groups, handlers, \
             schedules, sessions and dead letters it holds.\n\nWorks on the store itself, beside programs and a server that \
             have it open. Never makes a store, and never brings an older one forward: exit code 3 when there is none.",
        )
        .arg(json_flag())
        .args(args(&[Scope::Store]))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let mut info = Info { store: store_info(&store_url(&config)?)?, disk: None, totals: None };
    // Opening an older store upgrades it, which a command that only reads must not do. A file that is no store, or one
    // of a newer version, is opened anyway: opening refuses it with a clear message.
    if info.store.schema.is_none_or(|found| found == info.store.schema_of_build) {
        let opened = open_existing(&config)?;
        info.disk = opened.store.disk_use();
        info.totals = Some(Admin::new(opened.store).totals(now(), SESSION_TTL_MS)?);
    }
    let mut out = Output::new();
    if matches.get_flag("json") {
        out.json(&info.document(&config))?;
        return out.flush();
    }
    out.document(&columns(&info.lines(&config)).join("\n"))
}

struct Info {
    store: StoreInfo,
    disk: Option<DiskUse>,
    /// `None` for a store of an older version, which is not opened.
    totals: Option<Totals>,
}

impl Info {
    fn document(&self, config: &Config) -> Value {
        json!({
            "version": clap::crate_version!(),
            "store": without_secrets(&config.store),
            "schema": self.store.schema,
            "schema_of_this_version": self.store.schema_of_build,
            "served": self.store.is_served,
            "store_bytes": self.disk.map(|disk| disk.store_bytes),
            "wal_bytes": self.disk.map(|disk| disk.wal_bytes),
            "free_bytes": self.disk.map(|disk| disk.free_bytes),
            "totals": self.totals,
        })
    }

    fn lines(&self, config: &Config) -> Vec<Vec<String>> {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: String| lines.push(vec![name.to_owned(), value]);
        line("version", clap::crate_version!().to_owned());
        line("store", without_secrets(&config.store));
        line("file", self.store.file.display().to_string());
        line("schema", self.schema_in_words());
        line("served", if self.store.is_served { "by a server, now" } else { "by no server" }.to_owned());
        if let Some(disk) = self.disk {
            line("bytes", format!("{} and {} in the write-ahead log", disk.store_bytes, disk.wal_bytes));
            line("free", format!("{} bytes on the file system", disk.free_bytes));
        }
        if let Some(totals) = self.totals {
            line("namespaces", totals.namespaces.to_string());
            line("topics", totals.topics.to_string());
            line("events", format!("{} retained, {} delayed", totals.events, totals.delayed));
            line("groups", totals.groups.to_string());
            line("handlers", totals.handlers.to_string());
            line("schedules", totals.schedules.to_string());
            line("sessions", format!("{} alive", totals.sessions));
            let (handlers, groups) = (totals.handler_dead_letters, totals.group_dead_letters);
            line("dead letters", format!("{handlers} of handlers, {groups} of groups"));
        }
        lines
    }

    fn schema_in_words(&self) -> String {
        let newest = self.store.schema_of_build;
        match self.store.schema {
            Some(found) if found < newest => {
                format!("{found}: the next program of this version that opens it brings it to {newest}")
            }
            Some(found) => found.to_string(),
            None => "unknown".to_owned(),
        }
    }
}
