//! The check at the start: settings, schema, rights, partitions.
//!
//! The schema is made in one transaction under an advisory lock, so servers that start together make it once. If it is
//! complete, nothing is made and no right to make anything is needed.

use std::sync::atomic::Ordering;

use millrace_journal::{Fitness, JournalError};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::failure::{RIGHTS_PAGE, refused};
use crate::fitness::fitness;
use crate::journal::PostgresJournal;
use crate::session::{Fault, Requests};

const SCHEMA_VERSION: i32 = 1;
const SCHEMA: &str = include_str!("schema.sql");
/// "Mlrc", the first half of the advisory lock; the second is a hash of the schema's name.
const LOCK_CLASS: i32 = 0x4D6C_7263;

const TABLE_RIGHTS: [(&str, &[&str]); 6] = [
    ("millrace_journal", &["SELECT", "INSERT"]),
    ("millrace_head", &["SELECT", "UPDATE"]),
    ("millrace_manifest", &["SELECT", "INSERT", "UPDATE"]),
    ("millrace_parts", &["SELECT", "INSERT", "DELETE"]),
    ("millrace_outbox", &["SELECT", "DELETE"]),
    ("millrace_outbox_refused", &["INSERT"]),
];
const FUNCTION_RIGHTS: [&str; 2] = ["millrace_make_partitions(bigint)", "millrace_drop_partition(bigint)"];

/// How much of the schema is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Nothing,
    /// The schema itself, empty or with objects that are not ours.
    Bare,
    Version(i32),
}

/// Says whether a schema that is not there is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Make,
    /// There was one: a new, empty one would be in the way of its backup.
    Refuse,
}

impl PostgresJournal {
    pub(crate) fn check_server(&self, missing: Missing) -> Result<Fitness, JournalError> {
        let fitness = self.keeping.run_anew("checking the server", async |requests| {
            let fitness = fitness(&requests.settings)?;
            self.ensure_schema(requests, missing).await?;
            self.ensure_rights(&requests.client).await?;
            Ok(fitness)
        })?;
        self.make_partitions()?;
        self.engine.promised_replication.store(fitness.is_replicated, Ordering::Relaxed);
        Ok(fitness)
    }

    async fn ensure_schema(&self, requests: &Requests, missing: Missing) -> Result<(), Fault> {
        let client = &requests.client;
        if self.is_complete(client).await? {
            return Ok(());
        }
        if missing == Missing::Refuse {
            let schema = &self.engine.address.schema;
            return Err(Fault::Judged(refused(format!(
                "the schema {schema} of the journal is gone, and this server has a copy of the store that was in it: \
                 restore the schema from a backup, or name the right one with schema=…. To begin with an empty store, \
                 remove the copy from the cache folder"
            ))));
        }
        let (schema, lock) = (self.engine.address.quoted_schema(), self.lock());
        // If anything fails, the connection is dropped and the server rolls back.
        client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({lock})")).await?;
        // Another server may have made it meanwhile.
        if !self.is_complete(client).await? {
            if self.made(client).await? == Made::Nothing {
                client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
            }
            client.batch_execute(&SCHEMA.replace("{schema}", &schema).replace("{lock}", &lock)).await?;
            tracing::info!(address = %self.engine.address, "made the journal's schema");
        }
        client.batch_execute("COMMIT").await?;
        Ok(())
    }

    async fn is_complete(&self, client: &Client) -> Result<bool, Fault> {
        match self.made(client).await? {
            Made::Nothing | Made::Bare => Ok(false),
            Made::Version(SCHEMA_VERSION) => Ok(true),
            Made::Version(version) => {
                let schema = &self.engine.address.schema;
                Err(Fault::Judged(refused(format!(
                    "the schema {schema} has version {version}, this server knows version {SCHEMA_VERSION}: upgrade \
                     this server"
                ))))
            }
        }
    }

    async fn made(&self, client: &Client) -> Result<Made, Fault> {
        let looked = "SELECT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid \
                      AND p.proname = 'millrace_schema_version') FROM pg_namespace n WHERE n.nspname = $1";
        let schema = &self.engine.address.schema;
        let rows = client.query_typed(looked, &[(schema, Type::TEXT)]).await?;
        let Some(row) = rows.first() else {
            return Ok(Made::Nothing);
        };
        if !row.try_get::<_, bool>(0)? {
            return Ok(Made::Bare);
        }
        let version = format!("SELECT {}.millrace_schema_version()", self.engine.address.quoted_schema());
        let rows = client.query_typed(&version, &[]).await?;
        let version = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(version.map_or(Made::Bare, Made::Version))
    }

    /// Refuses at the start a role that would fail at its first use of a table.
    async fn ensure_rights(&self, client: &Client) -> Result<(), Fault> {
        let schema = self.engine.address.quoted_schema();
        let mut looked = Vec::new();
        for (table, rights) in TABLE_RIGHTS {
            for right in rights {
                looked.push(format!(
                    "('{right} ON {schema}.{table}', has_table_privilege('{schema}.{table}', '{right}'))"
                ));
            }
        }
        for function in FUNCTION_RIGHTS {
            looked.push(format!(
                "('EXECUTE ON FUNCTION {schema}.{function}', has_function_privilege('{schema}.{function}', 'EXECUTE'))"
            ));
        }
        let rights = looked.join(", ");
        let missing = format!(
            "SELECT wanted, current_user::text FROM (VALUES {rights}) AS r (wanted, given) WHERE NOT given"
        );
        let rows = client.query_typed(&missing, &[]).await?;
        let Some(first) = rows.first() else {
            return Ok(());
        };
        let role: String = first.try_get(1)?;
        let mut wanted = Vec::new();
        for row in &rows {
            wanted.push(format!("GRANT {} TO \"{role}\"", row.try_get::<_, String>(0)?));
        }
        let wanted = wanted.join("; ");
        Err(Fault::Judged(refused(format!(
            "the role {role} lacks rights. Let the owner of the tables run: {wanted} (see {RIGHTS_PAGE})"
        ))))
    }

    /// The two numbers of the advisory lock, as SQL.
    fn lock(&self) -> String {
        format!("{LOCK_CLASS}, hashtext('{}')", self.engine.address.schema)
    }
}
