//! Clients that publish and ack while servers fail, and the ledger of what they were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_client::{Client, ClientOptions, NewMessage, SubscribeOptions};
use millrace_wire::PublishedPlace;

use crate::cluster::wait_for;

pub const TOPIC: &str = "orders";
const PUBLISHERS: usize = 3;

#[derive(Default)]
pub struct Ledger {
    /// Payloads by the place that was confirmed.
    pub confirmed: BTreeMap<(u32, u64), String>,
    /// Payloads by the place they were delivered from.
    delivered: BTreeMap<(u32, u64), String>,
    acked: BTreeSet<(u32, u64)>,
    pub repeats: u64,
    last_confirmed: Option<Instant>,
    longest_gap: Duration,
}

impl Ledger {
    /// Returns the longest time without a confirmed publish since the last call.
    pub fn take_longest_gap(&mut self) -> Duration {
        std::mem::take(&mut self.longest_gap)
    }

    fn confirm(&mut self, place: (u32, u64), payload: &str) {
        let before = self.confirmed.insert(place, payload.to_owned());
        assert!(
            before.as_deref().is_none_or(|before| before == payload),
            "{place:?} was confirmed for {before:?} and for {payload}"
        );
        let now = Instant::now();
        if let Some(last) = self.last_confirmed.replace(now) {
            self.longest_gap = self.longest_gap.max(now - last);
        }
    }

    fn deliver(&mut self, place: (u32, u64), payload: &str) {
        assert!(!self.acked.contains(&place), "{place:?} was acked, confirmed and delivered again");
        match self.delivered.insert(place, payload.to_owned()) {
            None => {}
            Some(before) => {
                assert_eq!(before, payload, "{place:?} changed between two deliveries");
                self.repeats += 1;
            }
        }
    }

    pub fn delivered_all(&self) -> bool {
        self.confirmed.keys().all(|place| self.delivered.contains_key(place))
    }
}

pub struct Load {
    pub ledger: Arc<Mutex<Ledger>>,
    is_stopping: Arc<AtomicBool>,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    pub fn start(urls: &str) -> Load {
        let ledger: Arc<Mutex<Ledger>> = Arc::default();
        let (is_stopping, is_ending) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (urls, of_thread) = (urls.to_owned(), (ledger.clone(), is_stopping.clone(), is_ending.clone()));
        let thread = std::thread::spawn(move || {
            let (ledger, is_stopping, is_ending) = of_thread;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let consumer = tokio::spawn(consume(urls.clone(), ledger.clone(), is_ending));
                let publishers: Vec<_> = (0..PUBLISHERS)
                    .map(|who| tokio::spawn(publish(urls.clone(), who, ledger.clone(), is_stopping.clone())))
                    .collect();
                for publisher in publishers {
                    publisher.await.unwrap();
                }
                consumer.await.unwrap();
            });
        });
        Load { ledger, is_stopping, is_ending, thread: Some(thread) }
    }

    pub fn confirmed(&self) -> usize {
        self.ledger.lock().unwrap().confirmed.len()
    }

    /// Waits until so many further publishes are confirmed.
    pub fn wait_until_confirmed(&self, further: usize) {
        let before = self.confirmed();
        wait_for("publishes are confirmed", || (self.confirmed() >= before + further).then_some(()));
    }

    /// Ends publishing; consumers go on until [`Load::end`].
    pub fn stop_publishing(&self) {
        self.is_stopping.store(true, Relaxed);
    }

    /// Waits as long as deliveries go on: a consumer that confirms every ack is slow on an engine with an interval.
    pub fn wait_until_all_is_delivered(&self) {
        let mut seen = 0;
        while !self.ledger.lock().unwrap().delivered_all() {
            seen = wait_for("another event is delivered", || {
                let delivered = self.ledger.lock().unwrap().delivered.len();
                (delivered > seen).then_some(delivered)
            });
        }
    }

    pub fn end(mut self) {
        self.is_stopping.store(true, Relaxed);
        self.is_ending.store(true, Relaxed);
        self.thread.take().unwrap().join().expect("no check of the clients failed");
    }
}

async fn connect(urls: &str) -> Client {
    loop {
        let mut options = ClientOptions::new(urls);
        options.backoff_start = Duration::from_millis(20);
        options.backoff_max = Duration::from_millis(200);
        options.connect_timeout = Duration::from_secs(2);
        options.idle_timeout = Duration::from_secs(3);
        match Client::connect(options).await {
            Ok(client) => return client,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn publish(urls: String, who: usize, ledger: Arc<Mutex<Ledger>>, is_stopping: Arc<AtomicBool>) {
    let mut client = connect(&urls).await;
    let mut n = 0u64;
    while !is_stopping.load(Relaxed) {
        n += 1;
        let (id, payload) = (format!("p{who}-{n}"), format!("\"p{who}-{n}\""));
        // A publish without an answer is sent again under its id, until it is confirmed.
        loop {
            let json = millrace_model::JsonText::parse(&payload).unwrap();
            let message = NewMessage::new(json).key(format!("k{}", n % 5)).id(&id).unwrap();
            match client.publish(TOPIC, message).await {
                Ok(published) => {
                    let PublishedPlace::At { partition, offset } = published.place else {
                        panic!("nothing is delayed: {published:?}");
                    };
                    let place = (partition.0, offset.0);
                    ledger.lock().unwrap().confirm(place, &payload);
                    break;
                }
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    client = connect(&urls).await;
                }
            }
        }
    }
}

async fn consume(urls: String, ledger: Arc<Mutex<Ledger>>, is_ending: Arc<AtomicBool>) {
    while !is_ending.load(Relaxed) {
        let client = connect(&urls).await;
        let options =
            SubscribeOptions::new(TOPIC, "workers").unwrap().from(millrace_client::StartFrom::Earliest);
        let Ok(mut subscription) = client.subscribe(options).await else { continue };
        while !is_ending.load(Relaxed) {
            let next = tokio::time::timeout(Duration::from_millis(200), subscription.next()).await;
            let delivery = match next {
                Err(_) => continue,
                Ok(Err(_)) => break,
                Ok(Ok(delivery)) => delivery,
            };
            let place = (delivery.partition().0, delivery.offset().0);
            ledger.lock().unwrap().deliver(place, delivery.payload().as_str());
            if delivery.ack_confirmed().await.is_ok() {
                ledger.lock().unwrap().acked.insert(place);
            }
        }
    }
}
