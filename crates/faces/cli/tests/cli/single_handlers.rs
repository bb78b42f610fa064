//! Single handlers as the command line shows and controls them: paused and resumed, hanging, discarding.

use std::sync::mpsc::channel;
use std::time::Duration;

use millrace::{
    Config, Event, Handler, HandlerContext, HandlerOutcome, HandlerSettings, Session, handlers, on_event,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::{Ran, run};

#[derive(Event, Serialize, Deserialize)]
struct Ping {
    n: u64,
}

#[on_event(Ping, id = "pings", max_attempts = 1)]
fn pings(ctx: &mut HandlerContext<Ping>) -> HandlerOutcome {
    if ctx.event.n == 1 { HandlerOutcome::discard("nobody asked for it") } else { HandlerOutcome::Done }
}

struct Program {
    folder: TempDir,
    session: Session,
}

impl Program {
    fn new() -> Program {
        let folder = tempfile::tempdir().unwrap();
        let url = url(&folder);
        let config = Config { stop_grace_ms: 20, event_poll_interval_ms: 10, ..Config::default() };
        Program { folder, session: Session::builder(&url).config(config).open().unwrap() }
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&[&["events"], args, &["--store", &url(&self.folder)]].concat())
    }

    fn statuses(&self) -> Vec<Value> {
        let shown = self.run(&["show", "--json"]).json();
        shown.as_array().unwrap().iter().map(|event| event["status"].clone()).collect()
    }
}

fn url(folder: &TempDir) -> String {
    format!("sqlite:///{}", folder.path().join("app.db").display())
}

#[test]
fn a_discarded_event_is_shown_with_its_reason_and_counted() {
    let program = Program::new();
    let published = program.session.publish(Ping { n: 1 }).unwrap();
    program.session.publish(Ping { n: 2 }).unwrap();
    program.session.run_until_idle(handlers![pings], vec![]).unwrap();
    assert_eq!(program.statuses(), [json!("discarded"), json!("acked")]);
    let inspected = program.run(&["inspect", "--event-id", &published.id.to_string()]).json();
    let claim = &inspected["claims"][0];
    assert_eq!(
        (&claim["status"], &claim["last_error"]),
        (&json!("discarded"), &json!("nobody asked for it"))
    );
    assert!(claim["discarded_at"].is_string(), "{claim}");
    assert_eq!(program.run(&["dead-letters", "--json"]).json(), json!([]));
    let sessions = program.run(&["sessions", "--json"]).json();
    let counts = &sessions[0]["counts"];
    assert_eq!((&counts["discarded"], &counts["succeeded"]), (&json!(1), &json!(1)), "{sessions}");
}

#[test]
fn a_handler_is_paused_and_goes_on() {
    let program = Program::new();
    let session = &program.session;
    session.run_until_idle(handlers![pings], vec![]).unwrap();
    let said = program.run(&["pause-handler", "pings"]).ok();
    assert_eq!(said, "Handler pings of namespace 'default' is paused: its events wait, and are kept\n");
    session.publish(Ping { n: 2 }).unwrap();
    session.beside().run_until_idle(handlers![pings], vec![]).unwrap();
    program.run(&["cleanup", "--before", "0s", "--json"]).json();
    assert_eq!(program.statuses(), [json!("pending")], "kept, and not handled");
    let said = program.run(&["resume-handler", "pings", "--json"]).json();
    assert_eq!(said, json!({"namespace": "default", "handler_id": "pings", "paused": false}));
    session.beside().run_until_idle(handlers![pings], vec![]).unwrap();
    assert_eq!(program.statuses(), [json!("acked")]);
    program.run(&["pause-handler", "nobody"]).refused(1, &["there is no handler nobody"]);
}

#[test]
fn a_session_with_a_hanging_handler_is_marked() {
    let program = Program::new();
    let (wake, asleep) = channel::<()>();
    let asleep = std::sync::Mutex::new(asleep);
    let limits =
        HandlerSettings { timeout_ms: Some(20), max_attempts: Some(1), ..HandlerSettings::default() };
    let sleeps = Handler::from_fn::<Ping>("sleeps", move |_| {
        let _ = asleep.lock().unwrap().recv();
        Ok(())
    });
    let published = program.session.publish(Ping { n: 1 }).unwrap();
    let running = program.session.spawn(vec![sleeps.with_settings(limits)], vec![]).unwrap();
    let hanging = loop {
        let sessions = program.run(&["sessions", "--json"]).json();
        match sessions[0]["hanging"].as_array().cloned().unwrap_or_default().pop() {
            Some(hanging) => break hanging,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert_eq!(
        (&hanging["handler_id"], &hanging["event_id"], &hanging["cut_off"]),
        (&json!("sleeps"), &json!(published.id), &json!(true))
    );
    let table = program.run(&["sessions"]).ok();
    assert!(table.contains("(1 HANGING)"), "{table}");
    running.stop().unwrap();
    let table = program.run(&["sessions"]).ok();
    assert!(table.contains("(STOPPED) (1 HANGING)"), "left behind: {table}");
    drop(wake);
}
