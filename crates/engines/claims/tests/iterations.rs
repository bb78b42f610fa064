//! The loop: which handler is next, how much one iteration does, and that no worker sleeps while there is work.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;

fn order_of(harness: &mut Harness, runs: usize) -> Vec<(usize, String)> {
    (0..runs)
        .map(|_| {
            let run = harness.ok("a");
            (run.handler, run.event.body.payload.as_str().to_owned())
        })
        .collect()
}

#[test]
fn handlers_take_turns_the_more_important_first() {
    let mut harness = Harness::new();
    for topic in ["t", "u"] {
        for n in 0..3 {
            harness.publish(out(topic, &n.to_string()));
        }
    }
    let low = handler("m:low", "t");
    let high = HandlerSpec { priority: 10, ..handler("m:high", "u") };
    harness.join("a", config(), vec![low, high], Vec::new());
    let order: Vec<usize> = order_of(&mut harness, 6).into_iter().map(|(handler, _)| handler).collect();
    assert_eq!(order, [1, 0, 1, 0, 1, 0]);
}

#[test]
fn a_busy_handler_does_not_starve_another() {
    let mut harness = Harness::new();
    for n in 0..500 {
        harness.publish(out("busy", &n.to_string()));
    }
    harness.publish(out("rare", "1"));
    let busy = HandlerSpec { priority: 100, ..handler("m:busy", "busy") };
    let rare = handler("m:rare", "rare");
    harness.join("a", config(), vec![busy, rare], Vec::new());
    let order = order_of(&mut harness, 4);
    assert!(order.contains(&(1, "1".to_owned())), "{order:?}");
}

#[test]
fn urgent_events_come_first_then_older_ones() {
    let mut harness = Harness::new();
    for (payload, priority) in [("1", 100), ("2", 100), ("3", 200), ("4", 10), ("5", 200)] {
        harness.publish(OutEvent { priority: Priority(priority), ..out("t", payload) });
        harness.pass(1);
    }
    harness.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    let order: Vec<String> = order_of(&mut harness, 5).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(order, ["3", "5", "1", "2", "4"]);
}

#[test]
fn an_iteration_ends_at_its_budget_and_goes_on_after_the_pause() {
    let mut harness = Harness::new();
    for n in 0..8 {
        harness.publish(out("t", &n.to_string()));
    }
    let config = WorkerConfig { max_events_per_iteration: 5, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    order_of(&mut harness, 5);
    assert_eq!(harness.waiting_runs("a"), 0, "the budget is used up");
    harness.pass(999);
    assert_eq!(harness.waiting_runs("a"), 0);
    harness.pass(1);
    order_of(&mut harness, 3);
    assert_eq!(harness.endings(), [Ending::Acked; 8]);
}

#[test]
fn news_of_events_that_were_claimed_already_do_not_prolong_an_iteration() {
    let mut harness = Harness::new();
    for n in 0..12 {
        harness.publish(out("t", &n.to_string()));
    }
    let config = WorkerConfig { max_events_per_iteration: 5, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    order_of(&mut harness, 3);
    let topics = vec![key("t")];
    harness.input("a", Input::News { topics: Some(topics) });
    order_of(&mut harness, 2);
    assert_eq!(harness.waiting_runs("a"), 0, "the budget is used up");
}

#[test]
fn no_pause_while_claims_come_back_full() {
    let mut harness = Harness::new();
    for n in 0..1000 {
        harness.publish(out("t", &n.to_string()));
    }
    let config = WorkerConfig { max_events_per_iteration: 50, event_claim_limit: 20, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    assert!(harness.pass_working(0) >= 900, "it slept over work");
}

#[test]
fn no_pause_before_the_last_events_of_a_backlog() {
    for events in [51, 55, 60, 69, 101, 110] {
        let mut harness = Harness::new();
        for n in 0..events {
            harness.publish(out("t", &n.to_string()));
        }
        let config = WorkerConfig { max_events_per_iteration: 50, event_claim_limit: 20, ..config() };
        harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
        assert_eq!(harness.pass_working(0), events, "the last claim was not full, and its events waited");
    }
}

#[test]
fn no_pause_because_many_handlers_share_the_events() {
    const HANDLERS: usize = 30;
    let mut harness = Harness::new();
    for n in 0..10 {
        harness.publish(out("t", &n.to_string()));
    }
    let config = WorkerConfig { max_events_per_iteration: 50, event_claim_limit: 20, ..config() };
    let handlers = (0..HANDLERS).map(|n| handler(&format!("m:h{n}"), "t")).collect();
    harness.join("a", config, handlers, Vec::new());
    assert_eq!(harness.pass_working(0), 10 * HANDLERS);
}

#[test]
fn no_pause_in_a_stream_of_events_that_come_one_by_one() {
    let mut harness = Harness::new();
    let config = WorkerConfig { max_events_per_iteration: 5, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    for n in 0..50 {
        harness.publish(out("t", &n.to_string()));
        harness.ok("a");
    }
}

#[test]
fn acks_ride_with_the_next_claim() {
    let mut harness = Harness::new();
    for n in 0..1000 {
        harness.publish(out("t", &n.to_string()));
    }
    harness.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    let before = harness.commits;
    order_of(&mut harness, 1000);
    assert_eq!(harness.endings().len(), 1000);
    assert!(harness.commits - before <= 25, "{} commits", harness.commits - before);
}

#[test]
fn concurrency_bounds_how_many_run_at_once() {
    let mut harness = Harness::new();
    for n in 0..10 {
        harness.publish(out("t", &n.to_string()));
    }
    let config = WorkerConfig { handler_concurrency: 4, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    assert_eq!(harness.waiting_runs("a"), 4);
    harness.ok("a");
    assert_eq!(harness.waiting_runs("a"), 4);
}

#[test]
fn what_another_process_publishes_is_found_at_once_by_news_and_within_a_poll_without() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    assert_eq!(harness.waiting_runs("a"), 1);
    harness.ok("a");
    let worker = harness.workers.remove("a").unwrap();
    harness.publish(out("t", "2"));
    harness.workers.insert("a", worker);
    harness.pass(1000);
    assert_eq!(harness.ok("a").event.body.payload.as_str(), "2");
}

#[test]
fn events_of_an_own_run_are_claimed_without_a_pause() {
    let mut harness = Harness::with(vec![handler("m:first", "t"), handler("m:second", "u")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    harness.finish("a", &run, Ok(vec![out("u", "2")]));
    assert_eq!(harness.ok("a").handler, 1);
}

#[test]
fn a_new_handler_sees_the_backlog_unless_it_says_now() {
    let mut harness = Harness::new();
    for (payload, priority) in [("1", 100), ("2", 300)] {
        harness.publish(OutEvent { priority: Priority(priority), ..out("t", payload) });
    }
    let now = HandlerSpec { from: From::Now, ..handler("m:now", "t") };
    harness.join("a", config(), vec![handler("m:all", "t"), now.clone()], Vec::new());
    let order = order_of(&mut harness, 2);
    assert_eq!(order, [(0, "2".to_owned()), (0, "1".to_owned())]);
    assert_eq!(harness.waiting_runs("a"), 0);
    harness.publish(OutEvent { priority: Priority(300), ..out("t", "3") });
    assert_eq!(order_of(&mut harness, 2).iter().filter(|(_, payload)| payload == "3").count(), 2);
    // The handler is known by now: after a restart it continues where it was.
    harness.crash("a");
    harness.publish(out("t", "4"));
    harness.join("b", config(), vec![now], Vec::new());
    assert_eq!(harness.ok("b").event.body.payload.as_str(), "4");
}

#[test]
fn sessions_show_their_heartbeat() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.pass(12_000);
    let (key, row) = harness.rows(Space::Sessions).remove(0);
    let row = SessionRow::decode(&key, row.as_bytes()).unwrap();
    assert_eq!((key.as_str(), row.started, row.heartbeat), ("default/a", START, START + 10_000));
    assert_eq!(row.stopped, None);
}

#[test]
fn an_idle_worker_knows_that_it_is() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    assert!(harness.workers["a"].is_idle());
    harness.publish(out("t", "1"));
    assert!(!harness.workers["a"].is_idle());
    harness.ok("a");
    assert!(harness.workers["a"].is_idle());
}
