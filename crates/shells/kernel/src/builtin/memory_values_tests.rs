//! Tests of `memory_values.rs`: values, their pages, and how much room each namespace and token gets.

use std::sync::Arc;

use millrace_broker::{Broker, BrokerSettings};
use millrace_bus::BusLimits;
use millrace_store::MemoryStore;

use super::*;

struct Bench {
    store: Arc<dyn Store>,
    runtime: Broker,
}

impl Bench {
    fn new() -> Bench {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let runtime = Broker::start(BrokerSettings::default(), &store, BusLimits::default()).unwrap();
        Bench { store, runtime }
    }

    /// Loads the values as a process does that starts now.
    fn values_cache(&self, limits: MemoryLimits) -> ValueCache {
        ValueCache::load(&*self.store, self.runtime.handle().row_writer(keys::ROUTER), limits).unwrap()
    }
}

fn at() -> Namespace {
    Namespace::default()
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

async fn set(values_cache: &mut ValueCache, path: &str, json: &str) -> Result<(), OsFault> {
    let write = values_cache.set(&Namespace::default(), path, &raw(json), Share::Whole)?;
    let done = committed(write.hand_over(values_cache.rows()).await).await;
    values_cache.settle(write, done.is_ok());
    done
}

async fn delete(values_cache: &mut ValueCache, path: &str) {
    if let Some(write) = values_cache.delete(&Namespace::default(), path).unwrap() {
        committed(write.hand_over(values_cache.rows()).await).await.unwrap();
        values_cache.settle(write, true);
    }
}

#[tokio::test]
async fn a_value_is_kept_byte_for_byte_over_a_restart() {
    let bench = Bench::new();
    let value = r#"{ "a":1e400, "b":[12345678901234567890,-0],"c":"\ud800" }"#;
    set(&mut bench.values_cache(MemoryLimits::default()), "/a/b", value).await.unwrap();
    let mut values_cache = bench.values_cache(MemoryLimits::default());
    assert_eq!(values_cache.get(&at(), "/a/b").unwrap().as_str(), value);
    assert_eq!(values_cache.get(&at(), "/a").unwrap().as_str(), "null");
    delete(&mut values_cache, "/a/b").await;
    delete(&mut values_cache, "/a/b").await;
    assert_eq!(bench.values_cache(MemoryLimits::default()).get(&at(), "/a/b").unwrap().as_str(), "null");
}

#[tokio::test]
async fn pages_together_hold_everything_once_and_each_one_fits() {
    let bench = Bench::new();
    let mut values_cache =
        bench.values_cache(MemoryLimits { page_bytes_max: 300, ..MemoryLimits::default() });
    for n in 0..40 {
        set(&mut values_cache, &format!("/k/{n:02}"), &format!("\"{}\"", "v".repeat(n))).await.unwrap();
    }
    set(&mut values_cache, "/l", "1").await.unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = values_cache.list(&at(), "/k/", after.as_deref()).unwrap();
        assert!(page.bytes().len() <= 300, "{} bytes", page.bytes().len());
        let mut page: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(page.as_str()).unwrap();
        let next = page.remove("next");
        seen.extend(page.keys().cloned());
        let Some(next) = next else { break };
        after = Some(next.as_str().unwrap().to_owned());
    }
    let all: Vec<String> = (0..40).map(|n| format!("/k/{n:02}")).collect();
    assert_eq!(seen, all);
    assert_eq!(values_cache.list(&at(), "/none", None).unwrap().as_str(), "{}");
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let bench = Bench::new();
    let limits = MemoryLimits { keys_max: 2, bytes_max: 40, value_bytes_max: 20, ..MemoryLimits::default() };
    let mut values_cache = bench.values_cache(limits);
    let refused = |result: Result<(), OsFault>| {
        let fault = result.unwrap_err();
        (fault.code, fault.message)
    };
    assert_eq!(
        refused(set(&mut values_cache, "a", "1").await),
        (422, "Invalid path: 'a'. Paths MUST be absolute (start with /).".to_owned())
    );
    assert_eq!(refused(set(&mut values_cache, "/a\n", "1").await).0, 422);
    assert_eq!(refused(set(&mut values_cache, "/a", &"1".repeat(21)).await).0, 413);
    for value in ["1", "\"pwenc:v2:x\"", "{\"a\":\"pwenc:v1:\"}"] {
        let (code, message) = refused(set(&mut values_cache, "/vault/a", value).await);
        assert_eq!(code, 422);
        assert!(message.starts_with("E_VAULT_REQUIRES_PWENC"), "{message}");
    }
    set(&mut values_cache, "/vault/a", "\"pwenc:v1:x\"").await.unwrap();
    set(&mut values_cache, "/b", "1").await.unwrap();
    let full = (503, "Memory is full: it holds 2 paths, delete some".to_owned());
    assert_eq!(refused(set(&mut values_cache, "/c", "1").await), full);
    assert_eq!(refused(set(&mut values_cache, "/b", "12345678901234567890").await).0, 503);
    delete(&mut values_cache, "/vault/a").await;
    set(&mut values_cache, "/b", "12345678901234567890").await.unwrap();
    assert_eq!(values_cache.list(&at(), "", None).unwrap().as_str(), r#"{"/b":12345678901234567890}"#);
}

#[tokio::test]
async fn what_is_not_durable_is_not_shown_and_counts_all_the_same() {
    let bench = Bench::new();
    let mut values_cache = bench.values_cache(MemoryLimits { keys_max: 2, ..MemoryLimits::default() });
    let first = values_cache.set(&at(), "/a", &raw("1"), Share::Whole).unwrap();
    let second = values_cache.set(&at(), "/a", &raw("2"), Share::Whole).unwrap();
    assert_eq!(values_cache.get(&at(), "/a").unwrap().as_str(), "null");
    assert_eq!(values_cache.set(&at(), "/b", &raw("1"), Share::Whole).unwrap_err().code, 503);
    let gone = values_cache.delete(&at(), "/a").unwrap().expect("something is on its way");
    for (write, then) in [(first, "1"), (second, "2"), (gone, "null")] {
        committed(write.hand_over(values_cache.rows()).await).await.unwrap();
        values_cache.settle(write, true);
        assert_eq!(values_cache.get(&at(), "/a").unwrap().as_str(), then);
    }
    assert_eq!((values_cache.total, values_cache.writes), (Held::default(), 0));
}

#[tokio::test]
async fn a_bus_that_is_gone_answers_and_nothing_is_shown_that_is_not_durable() {
    let bench = Bench::new();
    let mut values_cache = bench.values_cache(MemoryLimits::default());
    bench.runtime.end();
    assert_eq!(set(&mut values_cache, "/a", "1").await.unwrap_err().code, 503);
    assert_eq!(values_cache.get(&at(), "/a").unwrap().as_str(), "null");
    assert_eq!((values_cache.total, values_cache.writes), (Held::default(), 0));
}

#[tokio::test]
async fn each_namespace_has_its_own_paths_also_over_a_restart() {
    let bench = Bench::new();
    let mut values_cache = bench.values_cache(MemoryLimits { keys_max: 4, ..MemoryLimits::default() });
    // `default2` begins like `default`, and the path `/efault/a` after the namespace `d` would look like `default`.
    let names = ["default", "default2", "d"].map(|name| Namespace::new(name).unwrap());
    for (value, name) in names.iter().enumerate() {
        let write = values_cache.set(name, "/a", &raw(&value.to_string()), Share::Whole).unwrap();
        committed(write.hand_over(values_cache.rows()).await).await.unwrap();
        values_cache.settle(write, true);
    }
    set(&mut values_cache, "/efault/a", "9").await.unwrap();
    assert_eq!(
        values_cache.set(&names[2], "/b", &raw("1"), Share::Whole).unwrap_err().code,
        503,
        "the bound is for all together"
    );
    let gone = values_cache.delete(&names[1], "/a").unwrap().expect("it is there");
    committed(gone.hand_over(values_cache.rows()).await).await.unwrap();
    values_cache.settle(gone, true);
    for values_cache in [&values_cache, &bench.values_cache(MemoryLimits::default())] {
        let get = |name: &Namespace| values_cache.get(name, "/a").unwrap().as_str().to_owned();
        assert_eq!(names.each_ref().map(get), ["0", "null", "2"]);
        let list = |name: &Namespace, prefix: &str| {
            values_cache.list(name, prefix, None).unwrap().as_str().to_owned()
        };
        assert_eq!(list(&names[0], ""), r#"{"/a":0,"/efault/a":9}"#);
        assert_eq!((list(&names[2], ""), list(&names[2], "/efault")), (r#"{"/a":2}"#.into(), "{}".into()));
        assert_eq!(list(&names[0], "/2/"), "{}", "a prefix does not lead into another namespace");
        assert_eq!(
            (values_cache.total.keys, values_cache.values.len(), values_cache.by_namespace.len()),
            (3, 2, 2)
        );
    }
}

#[tokio::test]
async fn a_token_gets_half_of_the_room_over_all_its_namespaces_also_over_a_restart() {
    let bench = Bench::new();
    let limits = MemoryLimits { keys_max: 4, bytes_max: 100, ..MemoryLimits::default() };
    let [eu, us, asia] = ["eu", "us", "asia"].map(|name| Namespace::new(name).unwrap());
    let of_eu: Namespaces = Some([eu.clone()].into());
    // A namespace that is listed twice for a token counts once.
    let of_both: Namespaces = Some([eu.clone(), us.clone(), eu.clone()].into());
    let mut values_cache = bench.values_cache(limits.clone());
    for path in ["/a", "/b"] {
        let write = values_cache.set(&eu, path, &raw("1"), Share::Half(&of_eu)).unwrap();
        committed(write.hand_over(values_cache.rows()).await).await.unwrap();
        values_cache.settle(write, true);
    }
    for mut values_cache in [values_cache, bench.values_cache(limits.clone())] {
        let fault = values_cache.set(&eu, "/c", &raw("1"), Share::Half(&of_eu)).unwrap_err();
        let full = "The share of namespace eu in Memory is full: it holds 2 paths, delete some";
        assert_eq!((fault.code, fault.message.as_str()), (503, full));
        let fault = values_cache.set(&us, "/c", &raw("1"), Share::Half(&of_both)).unwrap_err();
        let full = "The share of the token's namespaces in Memory is full: it holds 2 paths, delete some";
        assert_eq!((fault.code, fault.message.as_str()), (503, full));
        let fault = values_cache.set(&asia, "/c", &raw("1"), Share::Half(&None)).unwrap_err();
        assert_eq!(fault.code, 503, "a token for all namespaces");
        let (fits, too_long) = (raw(&"1".repeat(45)), raw(&"1".repeat(46)));
        let refused = values_cache.set(&eu, "/a", &too_long, Share::Half(&of_eu)).unwrap_err();
        assert_eq!(refused.code, 503, "51 bytes of 50");
        let write = values_cache.set(&eu, "/a", &fits, Share::Half(&of_both)).unwrap();
        values_cache.settle(write, false);
        // Other tokens have the other half; a sender without a token may use all of it.
        let of_asia: Namespaces = Some([asia.clone()].into());
        let write = values_cache.set(&asia, "/c", &raw("1"), Share::Half(&of_asia)).unwrap();
        values_cache.settle(write, false);
        let write = values_cache.set(&eu, "/c", &raw("1"), Share::Whole).unwrap();
        values_cache.settle(write, false);
    }
}
