//! `millrace health`: is a server ready? For the health checks of containers, which have no curl.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_client::{Endpoint, ServerList};
use serde_json::json;

use crate::commands::json_flag;
use crate::commands::serve::reachable_from_here;
use crate::failure::Failure;
use crate::http::{Readiness, ServerIdentity, readiness};
use crate::log;
use crate::output::Output;
use crate::settings::{Config, Scope, SettingSource, args, resolve};

/// The settings of clients that matter for a request without a token to one server.
const SETTINGS: [&str; 6] = ["config", "url", "tls-ca", "client-cert", "client-key", "log-format"];
/// Shorter than the time that container engines give a health check.
const WAIT_MS: &str = "5000";

pub(super) fn command() -> Command {
    let settings = args(&[Scope::Client]).into_iter();
    Command::new("health")
        .about("Say whether a server is ready: exit code 0, or 1 and the reason")
        .long_about(
            "Say whether a server is ready (GET /readyz): exit code 0, or 1 and the reason. A server that cannot be \
             reached is not ready: 1 as well, because health checks know no other code.\n\nWithout --url the command asks the server that \
             the same settings (file and environment) would start: at probe-listen, else at listen. It then does not \
             check that server's certificate, which need not name the loopback address; no token is sent.",
        )
        .arg(json_flag())
        .arg(
            Arg::new("timeout-ms")
                .long("timeout-ms")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .default_value(WAIT_MS)
                .help("How long to wait for the answer"),
        )
        .args(settings.filter(|arg| SETTINGS.contains(&arg.get_id().as_str())))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let effective = resolve(matches)?;
    let config = &effective.config;
    log::start(config, "warn");
    let (server, identity) = match effective.source("url") {
        SettingSource::Default => (own_server(config)?, ServerIdentity::Unchecked),
        _ => (the_one_server(&config.url)?, ServerIdentity::Checked),
    };
    let wait_ms = matches.get_one::<u64>("timeout-ms").copied().unwrap_or_default();
    let ready = readiness(config, &server, identity, Duration::from_millis(wait_ms))?;
    let url = server.http_base();
    let mut out = Output::new();
    match ready {
        Readiness::Ready if matches.get_flag("json") => out.json(&json!({"ready": true, "url": url}))?,
        Readiness::Ready => out.line(&format!("{url} is ready"))?,
        Readiness::NotReady(why) if matches.get_flag("json") => {
            out.json(&json!({"ready": false, "url": url, "why": why}))?;
            out.flush()?;
            return Err(Failure::Reported);
        }
        Readiness::NotReady(why) => return Err(Failure::Failed(why)),
    }
    out.flush()
}

/// Returns the server that these settings would start.
fn own_server(config: &Config) -> Result<Endpoint, Failure> {
    let (name, text) = match config.probe_listen.as_str() {
        "" => ("listen", &config.listen),
        probe => ("probe-listen", &probe.to_owned()),
    };
    let addr: SocketAddr =
        text.parse().map_err(|error| Failure::Usage(format!("{name} is {text:?}: {error}")))?;
    if addr.port() == 0 {
        return Err(Failure::Usage(format!("{name} is {addr}, a port that the server chose: give --url")));
    }
    let addr = reachable_from_here(addr);
    let host = match addr.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    Ok(Endpoint { host, port: addr.port(), path: "/".into(), tls: !config.tls_cert.is_empty() })
}

fn the_one_server(url: &str) -> Result<Endpoint, Failure> {
    match ServerList::parse(&[url])?.endpoints() {
        [server] => Ok(server.clone()),
        servers => Err(Failure::Usage(format!(
            "url names {} servers: health asks one, so give --url with its address",
            servers.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(change: impl FnOnce(&mut Config)) -> Result<String, Failure> {
        let mut config = Config::default();
        change(&mut config);
        own_server(&config).map(|server| server.http_base())
    }

    #[test]
    fn the_own_server_is_asked_where_it_can_be_reached() {
        assert_eq!(asked(|_| {}).unwrap(), "http://127.0.0.1:7070");
        assert_eq!(asked(|config| config.listen = "0.0.0.0:8080".into()).unwrap(), "http://127.0.0.1:8080");
        assert_eq!(asked(|config| config.listen = "[::]:8080".into()).unwrap(), "http://[::1]:8080");
        assert_eq!(
            asked(|config| config.probe_listen = "10.0.0.7:7071".into()).unwrap(),
            "http://10.0.0.7:7071"
        );
        assert_eq!(asked(|config| config.tls_cert = "cert.pem".into()).unwrap(), "https://127.0.0.1:7070");
        assert!(asked(|config| config.listen = "127.0.0.1:0".into()).is_err());
    }
}
