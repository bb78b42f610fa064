//! Measures what placing a record costs beside the same request made by hand, in turn, on one server:
//! `cargo run --release -p millrace-journal-object --example place_cost -- http://127.0.0.1:8333 bucket [rounds]`
//!
//! The server must take requests without credentials (those made by hand have none), such as SeaweedFS without accounts.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_journal::{Journal, Placed, Placing, Tip};
use millrace_journal_object::{ObjectEnvironment, ObjectJournal, ObjectUrl};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::{Builder, Runtime};

const RECORD_BYTES: usize = 300;
const ROUNDS_DEFAULT: u64 = 1_000;
/// Rounds at the beginning that are not counted: connections are opened, volumes are made.
const WARM_UP: u64 = 50;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let (endpoint, bucket) =
        (arguments.next().ok_or("which endpoint?")?, arguments.next().ok_or("which bucket?")?);
    let rounds = arguments.next().map_or(Ok(ROUNDS_DEFAULT), |rounds| rounds.parse())?;
    let prefix = format!("cost-{:016x}", rand::random::<u64>());
    let record = vec![b'r'; RECORD_BYTES];

    let journal = open(&endpoint, &bucket, &prefix)?;
    let http = ByHttpClient::new()?;
    let mut socket = BySocket::new(&endpoint)?;
    let at = |kind: &str, n: u64| format!("/{bucket}/{prefix}/{kind}/{n:020}");

    let mut times: [(&str, Vec<Duration>); 4] = [
        "journal",
        "conditional put, same HTTP client",
        "plain put, same HTTP client",
        "conditional put, bare socket",
    ]
    .map(|name| (name, Vec::new()));
    for round in 1..=WARM_UP + rounds {
        // Another one begins in every round.
        for turn in 0..times.len() {
            let which = (turn + usize::try_from(round)?) % times.len();
            let began = Instant::now();
            match which {
                0 => {
                    let placing = Placing {
                        n: round,
                        prev: Tip::START,
                        tip: Tip::START,
                        record: &record,
                        settles: &[],
                    };
                    if journal.place(&placing)? != Placed::Yes {
                        return Err("a free number was taken".into());
                    }
                }
                1 => http.put(&format!("{endpoint}{}", at("conditional", round)), &record, true)?,
                2 => http.put(&format!("{endpoint}{}", at("plain", round)), &record, false)?,
                _ => socket.put(&at("socket", round), &record)?,
            }
            if round > WARM_UP {
                times[which].1.push(began.elapsed());
            }
        }
    }
    report(&mut times);
    journal.delete_below(u64::MAX)?;
    Ok(())
}

fn report(times: &mut [(&str, Vec<Duration>)]) {
    for (_, times) in times.iter_mut() {
        times.sort();
    }
    let at =
        |times: &[Duration], part: f64| times[(times.len() as f64 * part) as usize].as_secs_f64() * 1_000.0;
    let journal = at(&times[0].1, 0.5);
    for (name, times) in times.iter() {
        let (p50, p99) = (at(times, 0.5), at(times, 0.99));
        println!(
            "{name:35} p50 {p50:.3} ms, p99 {p99:.3} ms; the journal's p50 is {:.2} x this",
            journal / p50
        );
    }
}

fn open(endpoint: &str, bucket: &str, prefix: &str) -> Outcome<ObjectJournal> {
    let url = format!("s3://{bucket}/{prefix}?endpoint={endpoint}&allow_http=true");
    let url = ObjectUrl::parse(&url).ok_or("not the URL of a bucket")??;
    let variables = [("AWS_ACCESS_KEY_ID", "measurement"), ("AWS_SECRET_ACCESS_KEY", "measurement")];
    let environment: ObjectEnvironment =
        variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Ok(ObjectJournal::open_with(&url, environment)?)
}

/// The HTTP client that the journal uses, without `object_store` and without signatures.
struct ByHttpClient {
    client: reqwest::Client,
    runtime: Runtime,
}

impl ByHttpClient {
    fn new() -> Outcome<ByHttpClient> {
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let client = reqwest::Client::builder().tls_backend_preconfigured(tls).build()?;
        Ok(ByHttpClient {
            client,
            runtime: Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
        })
    }

    fn put(&self, url: &str, body: &[u8], is_conditional: bool) -> Outcome<()> {
        let mut request = self.client.put(url).body(body.to_vec());
        if is_conditional {
            request = request.header("if-none-match", "*");
        }
        let status = self.runtime.block_on(async { request.send().await.map(|answer| answer.status()) })?;
        if status.is_success() { Ok(()) } else { Err(format!("{url}: {status}").into()) }
    }
}

/// A connection and nothing else: the least that a conditional put can cost.
struct BySocket {
    stream: BufReader<TcpStream>,
    host: String,
}

impl BySocket {
    fn new(endpoint: &str) -> Outcome<BySocket> {
        let host = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let stream = TcpStream::connect(&host)?;
        stream.set_nodelay(true)?;
        Ok(BySocket { stream: BufReader::new(stream), host })
    }

    fn put(&mut self, path: &str, body: &[u8]) -> Outcome<()> {
        let head = format!(
            "PUT {path} HTTP/1.1\r\nhost: {}\r\nif-none-match: *\r\ncontent-length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        self.stream.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let (mut status, mut length) = (String::new(), 0);
        self.stream.read_line(&mut status)?;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse()?;
            }
        }
        self.stream.read_exact(&mut vec![0; length])?;
        if status.contains(" 200 ") { Ok(()) } else { Err(format!("{path}: {status}").into()) }
    }
}
