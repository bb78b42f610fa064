//! Default capabilities in the shapes of both generations, without a module: the answer to each request.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use std::io::Write;
use std::sync::{Arc, Mutex};

use millrace_wasm::capability::{
    BusPort, CapabilityAnswer, CapabilityCall, CapabilityError, Environment, Folder, Grant, Grants, GuestAck,
    GuestEvent, GuestPublished, GuestReceive, GuestReceived, Input, Output, PortError, PortFuture,
    RandomSource, StorePort,
};
use millrace_wasm::{Generation, RunNumber, Value, from_tagged};
use serde_json::{Value as Json, json};

const BOTH: [Generation; 2] = [Generation::A, Generation::B];

fn call(
    grants: &Grants,
    grant: Grant,
    generation: Generation,
    op: &str,
    args: &Json,
) -> Result<CapabilityAnswer, CapabilityError> {
    let args: Vec<Value> = args.as_array().unwrap().iter().map(|arg| from_tagged(arg).unwrap()).collect();
    let label = format!("test::Effect.{op}");
    let call = CapabilityCall {
        generation,
        op,
        label: &label,
        args: &args,
        buffer_bytes: 4096,
        monotonic_ms: 7,
        system_ms: 1_700_000_000_000,
    };
    grants.call(grant, RunNumber(1), &call)
}

fn value(grants: &Grants, grant: Grant, generation: Generation, op: &str, args: Json) -> Value {
    match call(grants, grant, generation, op, &args).unwrap() {
        CapabilityAnswer::Now(value) | CapabilityAnswer::AfterMs(_, value) => value,
        CapabilityAnswer::Blocking(work) | CapabilityAnswer::Brief(work) | CapabilityAnswer::Stream(work) => {
            work()
        }
        CapabilityAnswer::Later(future) => {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(future).unwrap()
        }
    }
}

fn json(grants: &Grants, grant: Grant, generation: Generation, op: &str, args: Json) -> Json {
    value(grants, grant, generation, op, args).to_json()
}

#[test]
fn time_tells_both_clocks_and_sleeps_by_the_timers() {
    let grants = Grants::none().time();
    for generation in BOTH {
        assert_eq!(json(&grants, Grant::Time, generation, "monotonic_now_millis", json!([])), json!(7));
        assert_eq!(
            json(&grants, Grant::Time, generation, "system_now_millis", json!([])),
            json!(1_700_000_000_000_u64)
        );
        for (asked, slept) in [(25, 25), (0, 0), (-3, 0)] {
            let answer = call(&grants, Grant::Time, generation, "sleep_millis", &json!([asked])).unwrap();
            let CapabilityAnswer::AfterMs(ms, _) = answer else { panic!("{answer:?}") };
            assert_eq!(ms, slept);
        }
    }
    let slept = |generation| json(&grants, Grant::Time, generation, "sleep_millis", json!([1]));
    assert_eq!(slept(Generation::A), json!({ "ok": true }));
    assert_eq!(slept(Generation::B), json!({ "ok": true, "code": 0, "message": "" }));
}

#[test]
fn random_bytes_fit_the_buffer_or_are_refused() {
    let grants = Grants::none().random(RandomSource::seeded(1));
    let fill =
        |generation, count: i64| call(&grants, Grant::Random, generation, "fill_bytes", &json!([count]));
    let CapabilityAnswer::Now(Value::Array(bytes)) = fill(Generation::A, 1_000_000).unwrap() else {
        panic!()
    };
    assert!(bytes.len() * 2 + 3 <= 4096, "A gives what fits: {}", bytes.len());
    let CapabilityAnswer::Now(Value::Bin(bytes)) = fill(Generation::B, 16).unwrap() else { panic!() };
    assert_eq!(bytes.len(), 16);
    let error = fill(Generation::B, 1_000_000).unwrap_err();
    assert!(
        matches!(error, CapabilityError::TooManyBytes { count: 1_000_000, .. }),
        "B gives all or fails: {error}"
    );
    assert!(value(&grants, Grant::Random, Generation::B, "next_u64", json!([])).as_i64().is_some());
}

#[test]
fn variables_are_nil_or_found() {
    let grants = Grants::none().env(Environment::of([("A".to_owned(), "1".to_owned())]));
    let get = |generation, name: &str| json(&grants, Grant::Env, generation, "get", json!([name]));
    assert_eq!((get(Generation::A, "A"), get(Generation::A, "B")), (json!("1"), json!(null)));
    assert_eq!(get(Generation::B, "A"), json!({ "found": true, "value": "1" }));
    assert_eq!(get(Generation::B, "B"), json!({ "found": false, "value": "" }));
    let set =
        |generation| json(&grants, Grant::Env, generation, "set", json!([{ "key": "B", "value": "2" }]));
    assert_eq!(set(Generation::A), json!({ "ok": true }));
    assert_eq!(set(Generation::B), json!({ "ok": true, "code": 0, "message": "" }));
}

#[test]
fn files_have_the_records_of_their_generation() {
    let folder = tempfile::tempdir().unwrap();
    let grants = Grants::none().fs(Folder::open(folder.path()).unwrap());
    let a = |op: &str, args: Json| json(&grants, Grant::Fs, Generation::A, op, args);
    let b = |op: &str, args: Json| json(&grants, Grant::Fs, Generation::B, op, args);
    let done =
        json!({ "ok": true, "value": {}, "error_kind": "other", "error_code": 0, "error_message": "" });
    assert_eq!(a("write_string", json!([{ "path": "f", "value": "x" }])), json!({ "ok": true }));
    assert_eq!(b("write_bytes", json!([{ "path": "g", "bytes": { "bytes": "00ff" } }])), done);
    assert_eq!(b("write_atomic", json!([{ "path": "h", "kind": "string", "value": "whole" }])), done);
    assert_eq!(b("create_dir_all", json!(["d/e"])), done);
    assert_eq!(b("rename", json!([{ "from": "h", "to": "d/h" }])), done);
    assert_eq!(b("remove", json!(["d/h"])), done);
    let exclusive =
        b("create_exclusive", json!([{ "path": "f", "kind": "bytes", "bytes": { "bytes": "" } }]));
    assert_eq!((&exclusive["ok"], &exclusive["error_kind"]), (&json!(false), &json!("already-exists")));
    assert_eq!(a("read_bytes", json!(["g"])), json!({ "ok": true, "value": [0, 255] }));
    let read = value(&grants, Grant::Fs, Generation::B, "read_bytes", json!(["g"]));
    assert_eq!(read.get("value"), Some(&Value::Bin(vec![0, 255])));
    let missing = b("read_string", json!(["no"]));
    assert_eq!(
        (&missing["value"], &missing["error_kind"], &missing["error_code"]),
        (&json!(""), &json!("not-found"), &json!(-2))
    );
    let outside = b("list_dir", json!([".."]));
    assert_eq!((&outside["value"], &outside["error_kind"]), (&json!([]), &json!("permission-denied")));
}

#[test]
fn what_is_too_long_once_it_is_encoded_is_an_error_of_the_operation() {
    let folder = tempfile::tempdir().unwrap();
    // Each byte becomes U+FFFD, which takes three.
    std::fs::write(folder.path().join("bytes"), vec![0xff; 2000]).unwrap();
    // Each name is `many/NNN`: 8 bytes, and one for its length.
    std::fs::create_dir(folder.path().join("many")).unwrap();
    for number in 0..480 {
        std::fs::write(folder.path().join(format!("many/{number:03}")), "").unwrap();
    }
    let long = Environment::of([("LONG".to_owned(), "x".repeat(4096))]);
    let grants = Grants::none().fs(Folder::open(folder.path()).unwrap()).env(long);
    for generation in BOTH {
        let ask = |op: &str, path: &str| json(&grants, Grant::Fs, generation, op, json!([path]));
        for (op, path) in [("read_string", "bytes"), ("list_dir", "many")] {
            let reply = ask(op, path);
            assert_eq!(reply["ok"], json!(false), "{op} of {path}");
            let message =
                if generation == Generation::A { &reply["message"] } else { &reply["error_message"] };
            let message = message.as_str().unwrap();
            assert!(message.contains(op) && message.contains("4096"), "{message}");
        }
        let long = "p".repeat(3900);
        assert!(ask("read_string", &long).to_string().len() < 1000, "errors do not repeat a long path");
        let variable = json(&grants, Grant::Env, generation, "get", json!(["LONG"]));
        assert_eq!(
            variable,
            if generation == Generation::A { json!(null) } else { json!({"found": false, "value": ""}) }
        );
    }
}

#[test]
fn what_may_block_is_not_done_by_the_thread_that_asks() {
    let folder = tempfile::tempdir().unwrap();
    let grants = Grants::none()
        .fs(Folder::open(folder.path()).unwrap())
        .log()
        .output(Output::new(Written::default(), Written::default()));
    let content = json!([{ "path": "f", "kind": "string", "value": "x", "bytes": { "bytes": "" }, "from": "f", "to": "g" }]);
    let is_brief = |grant, op: &str, args: &Json| {
        matches!(call(&grants, grant, Generation::B, op, args), Ok(CapabilityAnswer::Brief(_)))
    };
    let is_stream = |grant, op: &str, args: &Json| {
        matches!(call(&grants, grant, Generation::B, op, args), Ok(CapabilityAnswer::Stream(_)))
    };
    for op in ["read_bytes", "read_string", "exists", "list_dir", "remove", "create_dir_all"] {
        assert!(is_brief(Grant::Fs, op, &json!(["f"])), "{op}");
    }
    for op in ["write_bytes", "write_string", "rename", "write_atomic", "create_exclusive"] {
        assert!(is_brief(Grant::Fs, op, &content), "{op}");
    }
    for op in ["write_op", "write_bytes_op", "flush_op"] {
        assert!(is_stream(Grant::Output, op, &content), "{op}");
    }
    assert!(is_stream(Grant::Log, "emit", &json!([{ "message": "m" }])));
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing was done yet");
}

/// Collects a program's output.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn input_and_output_have_their_records() {
    let (out, err) = (Written::default(), Written::default());
    let grants = Grants::none()
        .input(Input::new(&b"line\nrest"[..], false))
        .output(Output::new(out.clone(), err.clone()));
    let read = |op: &str, args: Json| json(&grants, Grant::Input, Generation::B, op, args);
    let line = read("read_line", json!([{ "prompt": "? " }]));
    assert_eq!(line, json!({ "ok": true, "found": true, "value": "line", "code": 0, "message": "" }));
    let bytes = value(&grants, Grant::Input, Generation::B, "read_bytes_op", json!([{ "max_bytes": 2 }]));
    assert_eq!(bytes.get("value"), Some(&Value::Bin(b"re".to_vec())));
    assert_eq!(read("read_line", json!([{}]))["value"], json!("st"));
    let end = read("read_line", json!([{}]));
    assert_eq!((&end["ok"], &end["found"], &end["value"]), (&json!(true), &json!(false), &json!("")));
    assert_eq!(read("is_tty_op", json!([{}])), json!(false));

    let write = |op: &str, args: Json| json(&grants, Grant::Output, Generation::B, op, args);
    let done = json!({ "ok": true, "code": 0, "message": "" });
    assert_eq!(write("write_op", json!([{ "value": "out", "target": "stdout" }])), done);
    assert_eq!(write("write_bytes_op", json!([{ "bytes": { "bytes": "21" }, "target": "stderr" }])), done);
    assert_eq!(write("flush_op", json!([{ "target": "stdout" }])), done);
    assert_eq!(write("is_tty_op", json!([{ "target": "stderr" }])), json!(false));
    assert_eq!(
        (out.0.lock().unwrap().as_slice(), err.0.lock().unwrap().as_slice()),
        (&b"? out"[..], &b"!"[..])
    );
}

/// A bus with one event, which notes its requests.
#[derive(Default)]
struct OneEvent(Mutex<Vec<String>>);

fn ready<T: Send + 'static>(result: Result<T, PortError>) -> PortFuture<T> {
    Box::pin(async move { result })
}

impl BusPort for OneEvent {
    fn publish(&self, run: RunNumber, event: GuestEvent) -> PortFuture<GuestPublished> {
        self.0.lock().unwrap().push(format!("{run} {event:?}"));
        ready(Ok(GuestPublished { partition: 1, offset: 9, id: "e1".into() }))
    }

    fn emit(&self, _: RunNumber, _: GuestEvent) -> PortFuture<()> {
        ready(Err(PortError::Unsupported("not here".into())))
    }

    fn receive(&self, _: RunNumber, request: GuestReceive) -> PortFuture<Option<GuestReceived>> {
        let event =
            GuestReceived { partition: 0, offset: 3, id: "e3".into(), key: None, payload: "{}".into() };
        ready(Ok((request.topic == "full").then_some(event)))
    }

    fn ack(&self, _: RunNumber, ack: GuestAck) -> PortFuture<()> {
        self.0.lock().unwrap().push(format!("ack {}", ack.offset));
        ready(Ok(()))
    }

    fn release(&self, run: RunNumber) {
        self.0.lock().unwrap().push(format!("release {run}"));
    }
}

#[test]
fn the_bus_has_the_same_records_in_both_generations() {
    let bus = Arc::new(OneEvent::default());
    let grants = Grants::none().bus(bus.clone());
    for generation in BOTH {
        let ask = |op: &str, args: Json| json(&grants, Grant::Bus, generation, op, args);
        let event = json!([{ "topic": "t", "payload": "1", "key": "", "headers": [{ "name": "a", "value": "b" }], "id": null }]);
        let published =
            json!({ "ok": true, "partition": 1, "offset": 9, "id": "e1", "code": 0, "message": "" });
        assert_eq!(ask("publish", event.clone()), published);
        assert_eq!(ask("emit", event), json!({ "ok": false, "code": 5, "message": "not here" }));
        let received = ask("receive", json!([{ "topic": "full", "group": "g" }]));
        assert_eq!(
            (&received["found"], &received["offset"], &received["key"]),
            (&json!(true), &json!(3), &json!(""))
        );
        assert_eq!(
            ask("receive", json!([{ "topic": "empty", "group": "g", "wait_ms": 5 }]))["found"],
            json!(false)
        );
        let ack = json!([{ "topic": "full", "group": "g", "partition": 0, "offset": 3 }]);
        assert_eq!(ask("ack", ack), json!({ "ok": true, "code": 0, "message": "" }));
    }
    grants.release(RunNumber(1));
    let noted = bus.0.lock().unwrap();
    assert!(
        noted[0].contains("run_1") && noted[0].contains("(\"a\", \"b\")") && noted[0].contains("key: None"),
        "{noted:?}"
    );
    assert_eq!(noted.last().unwrap(), "release run_1");
}

/// A store with one value.
struct OneValue;

impl StorePort for OneValue {
    fn get(&self, _: RunNumber, key: String) -> PortFuture<Option<String>> {
        ready(Ok((key == "k").then(|| "[1]".to_owned())))
    }

    fn ensure(&self, _: RunNumber, _: String, _: String) -> PortFuture<()> {
        ready(Ok(()))
    }

    fn commit(&self, _: RunNumber) -> PortFuture<Option<u64>> {
        ready(Err(PortError::Conflict("k has changed".into())))
    }

    fn release(&self, _: RunNumber) {}
}

#[test]
fn the_store_has_the_same_records_in_both_generations() {
    let grants = Grants::none().store(Arc::new(OneValue));
    for generation in BOTH {
        let ask = |op: &str, args: Json| json(&grants, Grant::Store, generation, op, args);
        assert_eq!(
            ask("get", json!(["k"])),
            json!({ "ok": true, "found": true, "value": "[1]", "code": 0, "message": "" })
        );
        assert_eq!(ask("get", json!(["x"]))["found"], json!(false));
        assert_eq!(
            ask("ensure", json!([{ "key": "k", "value": "2" }])),
            json!({ "ok": true, "code": 0, "message": "" })
        );
        let conflict =
            json!({ "ok": false, "changed": false, "commit": 0, "code": 4, "message": "k has changed" });
        assert_eq!(ask("commit", json!([])), conflict);
    }
}

#[test]
fn what_is_not_granted_or_not_known_is_an_error_with_a_way_out() {
    for grant in Grant::ALL {
        let error =
            call(&Grants::none(), grant, Generation::A, "anything", &json!([])).unwrap_err().to_string();
        assert!(error.contains("not granted") && error.contains(grant.spelling()), "{error}");
    }
    let grants = Grants::none().time();
    let error = call(&grants, Grant::Time, Generation::B, "stop", &json!([])).unwrap_err().to_string();
    assert!(error.contains("stop") && error.contains("sleep_millis"), "{error}");
    let error =
        call(&grants, Grant::Time, Generation::A, "sleep_millis", &json!(["soon"])).unwrap_err().to_string();
    assert!(error.contains("integer of milliseconds") && error.contains("soon"), "{error}");
}
