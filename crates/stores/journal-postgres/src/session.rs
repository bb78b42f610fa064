//! A single connection: how it is opened, what is set on it, and how requests run on it.
//!
//! The driver's connection is a future of its own, which has to be polled for anything to happen. Requests poll it
//! themselves, on the thread of the caller: no other thread takes part in a round trip.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use millrace_journal::JournalError;
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Row, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address::PostgresAddress;
use crate::failure::{POOLER, judged, refused, unknown};
use crate::fitness::ServerSettings;
use crate::lane::Purpose;
use crate::tls::CertificateCheck;

type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A connection that is silent for this long is probed by the system, so that a dead one is noticed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// The driver's own default, which stands for "not set".
const KEEPALIVE_IDLE_UNSET: Duration = Duration::from_secs(2 * 60 * 60);

/// Reads the settings that matter and raises `synchronous_commit` if it is off. Done on every connection: another
/// server may answer after a failover, and settings can be changed while a server runs. From here on a change of the
/// server's own `synchronous_commit` has no effect on this connection.
const SETTINGS: &str = "
    SELECT current_setting('server_version_num')::int4, current_setting('server_version'),
        current_setting('fsync', true), current_setting('full_page_writes', true), found.level,
        set_config('synchronous_commit', CASE found.level WHEN 'off' THEN 'on' ELSE found.level END, false),
        current_setting('synchronous_standby_names', true), pg_is_in_recovery(),
        current_setting('transaction_read_only') = 'on', current_setting('server_encoding'),
        EXISTS (SELECT FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl), current_setting('search_path')
    FROM (SELECT current_setting('synchronous_commit') AS level OFFSET 0) AS found";

const SEARCH_PATH: &str = "pg_catalog,pg_temp";

/// The function of PostgreSQL that warns if the wait for a standby was cancelled. Unlike the text, its name is the same
/// in every language.
const STANDBY_WAIT: &str = "SyncRepWaitForLSN";

pub(crate) struct Session {
    requests: Requests,
    wire: Wire,
}

/// The half of a session that a request works with.
pub(crate) struct Requests {
    pub(crate) client: Client,
    pub(crate) settings: ServerSettings,
    statements: HashMap<String, Statement>,
}

impl Requests {
    /// Returns the prepared statement for a text, and prepares it at its first use on this connection.
    pub(crate) async fn prepared(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

/// Why a request failed: an error of the driver, which is judged with the request's name, or a judgement.
pub(crate) enum Fault {
    Driver(Error),
    Judged(JournalError),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Driver(error)
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Fault {
        Fault::Judged(error)
    }
}

impl Session {
    /// Connects to the first host that accepts writes. With a single host that is not looked at here.
    pub(crate) async fn open(address: &PostgresAddress, purpose: Purpose) -> Result<Session, JournalError> {
        let tls = address.tls.connector().map_err(refused)?;
        // A host that does not answer must leave time for the others.
        let share = address.timeout / u32::try_from(address.hosts.len()).unwrap_or(u32::MAX).max(1);
        let mut failed: Option<JournalError> = None;
        for host in &address.hosts {
            let attempt = timeout(share, Session::connect(address, host, tls.clone(), purpose)).await;
            let error = match attempt {
                Ok(Ok(session)) => match session.requests.settings.why_no_writes() {
                    Some(reason) if address.hosts.len() > 1 => unknown(reason.to_owned()),
                    _ => return Ok(session),
                },
                Ok(Err(error)) => error,
                Err(_) => {
                    unknown(format!("connecting to {address}: no answer within {} ms", share.as_millis()))
                }
            };
            // A host that may come back outweighs one that refuses.
            failed = match failed {
                Some(JournalError::Unknown(cause)) => Some(JournalError::Unknown(cause)),
                _ => Some(error),
            };
        }
        Err(failed.unwrap_or_else(|| refused("the address names no host".to_owned())))
    }

    async fn connect(
        address: &PostgresAddress,
        host: &Config,
        tls: MakeRustlsConnect,
        purpose: Purpose,
    ) -> Result<Session, JournalError> {
        let config = configured(address, host, purpose)?;
        let (client, mut wire) =
            config.connect(tls).await.map_err(|error| judged(&format!("connecting to {address}"), &error))?;
        let (row, _) = drive(&mut wire, client.query_typed(SETTINGS, &[])).await;
        let rows = row.map_err(|error| judged("reading the server's settings", &error))?;
        let row = rows.first().ok_or_else(|| unknown("the server did not tell its settings".to_owned()))?;
        let settings = settings(row, address, host);
        let settings = settings.map_err(|error| judged("reading the server's settings", &error))?;
        if row.try_get::<_, &str>(11).ok() != Some(SEARCH_PATH) {
            return Err(refused(format!(
                "connecting to {address}: the settings of the connection got lost. {POOLER}"
            )));
        }
        Ok(Session { requests: Requests { client, settings, statements: HashMap::new() }, wire })
    }

    pub(crate) fn settings(&self) -> &ServerSettings {
        &self.requests.settings
    }

    /// Runs a request to its end. After an error the session is in an unknown state and must be dropped.
    pub(crate) async fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Requests) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (answer, notices) = drive(&mut self.wire, work(&mut self.requests)).await;
        let answer = answer?;
        if notices.standby_was_not_awaited {
            return Err(Fault::Judged(unknown(
                "somebody cancelled the wait for the synchronous standby: the change is on the primary only"
                    .to_owned(),
            )));
        }
        Ok(answer)
    }
}

/// The remarks of the server beside its answers.
#[derive(Default)]
struct Notices {
    standby_was_not_awaited: bool,
}

/// Polls the connection together with the work that waits for it. If the connection ends, the work gets a last chance
/// to take an answer that has arrived already.
async fn drive<T, E: From<Error>>(
    wire: &mut Wire,
    work: impl Future<Output = Result<T, E>>,
) -> (Result<T, E>, Notices) {
    let mut work = pin!(work);
    let mut notices = Notices::default();
    let outcome = poll_fn(|context| {
        if let Poll::Ready(outcome) = work.as_mut().poll(context) {
            return Poll::Ready(outcome);
        }
        let ended = poll_wire(wire, context, &mut notices);
        match (work.as_mut().poll(context), ended) {
            (Poll::Ready(outcome), _) => Poll::Ready(outcome),
            (Poll::Pending, Poll::Ready(error)) => Poll::Ready(Err(error.into())),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
        }
    });
    let outcome = outcome.await;
    (outcome, notices)
}

/// Moves bytes until the connection has to wait. Ready only with the error that ended the connection.
fn poll_wire(wire: &mut Wire, context: &mut Context<'_>, notices: &mut Notices) -> Poll<Error> {
    loop {
        match wire.poll_message(context) {
            Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                if notice.routine() == Some(STANDBY_WAIT) {
                    notices.standby_was_not_awaited = true;
                }
                tracing::debug!(message = notice.message(), "PostgreSQL remarked");
            }
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(error))) => return Poll::Ready(error),
            // Only after the client was dropped, and a request holds the client.
            Poll::Ready(None) => return Poll::Pending,
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// Adds the password, the limits and the settings of a session to a host's configuration.
fn configured(address: &PostgresAddress, host: &Config, purpose: Purpose) -> Result<Config, JournalError> {
    let mut config = address.password.put_into(host).map_err(refused)?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(address.timeout);
    }
    if config.get_keepalives_idle() == KEEPALIVE_IDLE_UNSET {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    config.keepalives_interval(KEEPALIVE_INTERVAL).keepalives_retries(KEEPALIVE_RETRIES);
    config.tcp_user_timeout(address.timeout);
    if config.get_application_name().is_none() {
        config.application_name(purpose.application_name());
    }
    let theirs = config.get_options().unwrap_or_default();
    // Ours come last, so they win.
    let options = format!("{theirs} {}", session_options(address));
    config.options(options.trim());
    Ok(config)
}

/// The settings of a session, sent while connecting: no request can slip in before them. A pooler either refuses the
/// connection for them or drops them, which is looked for after connecting.
fn session_options(address: &PostgresAddress) -> String {
    let timeout_ms = address.timeout.as_millis();
    let lock_timeout_ms = timeout_ms / 2;
    [
        // Every name in our statements is qualified.
        format!("search_path={SEARCH_PATH}"),
        // The server ends what the client has given up.
        format!("statement_timeout={timeout_ms}"),
        format!("lock_timeout={lock_timeout_ms}"),
        format!("idle_in_transaction_session_timeout={timeout_ms}"),
        r"default_transaction_isolation=read\ committed".to_owned(),
        "client_min_messages=warning".to_owned(),
        "jit=off".to_owned(),
        // The head and the outbox look tiny to the planner, and may be full of dead rows while an old snapshot lives.
        "enable_seqscan=off".to_owned(),
        "enable_bitmapscan=off".to_owned(),
    ]
    .map(|setting| format!("-c {setting}"))
    .join(" ")
}

fn settings(row: &Row, address: &PostgresAddress, host: &Config) -> Result<ServerSettings, Error> {
    Ok(ServerSettings {
        version_number: row.try_get(0)?,
        version: row.try_get(1)?,
        fsync: row.try_get(2)?,
        full_page_writes: row.try_get(3)?,
        synchronous_commit: row.try_get(4)?,
        synchronous_standby_names: row.try_get(6)?,
        is_in_recovery: row.try_get(7)?,
        is_read_only: row.try_get(8)?,
        encoding: row.try_get(9)?,
        is_encrypted: row.try_get(10)?,
        is_remote: is_remote(host),
        is_verified: address.tls.check == CertificateCheck::IssuerAndName,
    })
}

fn is_remote(host: &Config) -> bool {
    let named = host.get_hosts().iter().any(|host| match host {
        Host::Tcp(name) => {
            name != "localhost"
                && !name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => false,
    });
    named || host.get_hostaddrs().iter().any(|address| !address.is_loopback())
}
