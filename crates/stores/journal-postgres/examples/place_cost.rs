//! Measures a placing beside a raw insert of the same bytes on the same server, in turn:
//! `TEST_POSTGRES=postgres://… cargo run --release --example place_cost -- [rounds] [bytes]`

use std::time::{Duration, Instant};

use millrace_journal::{Journal, JournalReadLimit, OutboxId, Placing, Tip};
use millrace_journal_postgres::PostgresJournal;
use postgres::{Client, NoTls};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("TEST_POSTGRES")?;
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let rounds = arguments.next().transpose()?.unwrap_or(2000);
    let record = vec![7_u8; arguments.next().transpose()?.unwrap_or(300)];
    let schema = format!("millrace_cost_{}", std::process::id());
    let sign = if url.contains('?') { '&' } else { '?' };
    let journal = PostgresJournal::open(&format!("{url}{sign}schema={schema}"))?;
    journal.check()?;

    let mut client = Client::connect(&url, NoTls)?;
    client
        .batch_execute(&format!("CREATE TABLE {schema}.raw (n bigint PRIMARY KEY, record bytea NOT NULL)"))?;
    let raw = client.prepare(&format!("INSERT INTO {schema}.raw VALUES ($1, $2)"))?;
    let publish = client
        .prepare(&format!("SELECT {schema}.millrace_publish('cost', '1') FROM generate_series(1, $1)"))?;
    let (mut raws, mut places, mut settlings) = (Vec::new(), Vec::new(), Vec::new());
    let mut n = 0;
    let mut place = |settles: &[OutboxId]| -> Result<(), Box<dyn std::error::Error>> {
        let prev = if n == 0 { Tip::START } else { tip(n) };
        n += 1;
        journal.place(&Placing { n, prev, tip: tip(n), record: &record, settles })?;
        Ok(())
    };
    for round in 0..i64::try_from(rounds)? {
        let start = Instant::now();
        client.execute(&raw, &[&round, &record])?;
        raws.push(start.elapsed());
        let start = Instant::now();
        place(&[])?;
        places.push(start.elapsed());
        client.query(&publish, &[&10_i32])?;
        let waiting: Vec<OutboxId> = journal.outbox(None, 100)?.into_iter().map(|row| row.id).collect();
        let start = Instant::now();
        place(&waiting)?;
        settlings.push(start.elapsed());
    }
    let base = middle(&mut raws);
    println!("{rounds} rounds, {} bytes, medians:", record.len());
    println!("raw insert, prepared         {base:>10.1?}");
    for (name, times) in [("placing", &mut places), ("placing, settles 10 rows", &mut settlings)] {
        let median = middle(times);
        println!("{name:<28} {median:>10.1?}  {:.2} x", median.as_secs_f64() / base.as_secs_f64());
    }
    let start = Instant::now();
    let mut from = 1;
    let limit = JournalReadLimit { records_max: 1000, bytes_max: 4 << 20 };
    while let Some((last, _)) = journal.read(from, limit)?.last() {
        from = last + 1;
    }
    println!("all records read in          {:>10.1?}", start.elapsed());
    client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE"))?;
    Ok(())
}

fn tip(n: u64) -> Tip {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    Tip(bytes)
}

fn middle(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
