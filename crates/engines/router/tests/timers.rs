//! Timers (RFC 0032, section 12): never early, never lost, in order, with their lineage.

// Helpers of tests unwrap like tests.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod harness;

use std::collections::BTreeMap;

use harness::{Harness, manifest, member, message};
use millrace_model::{Boot, BootId, OsId, OsKind, OsMessage, Timestamp};
use millrace_router::{ConnId, Effect, Input, RouterLimits};
use serde_json::{Value, json};

type Rows = BTreeMap<String, bytes::Bytes>;

fn set(id: &str, delay_ms: u64, template: &Value) -> OsMessage {
    message("command", "Timer.Set", id, json!({"delayMs": delay_ms, "message": template}))
}

fn command(data: Value) -> Value {
    json!({"kind": "command", "type": "Echo.Do", "data": data})
}

/// Sets a timer, lets its row be stored and returns its id.
fn set_and_store(harness: &mut Harness, rows: &mut Rows, message: OsMessage) -> String {
    harness.client(1, message);
    let told = harness.run();
    // The commit writes the timer's row and, once the loop knows it, the elapsed time.
    assert!(
        told == ["commit put"] || told == ["commit put, put"],
        "the answer waits for the commit: {told:?}"
    );
    harness.commit(rows);
    let told = harness.run();
    member(&told[0], "timerId").as_str().unwrap().to_owned()
}

#[test]
fn a_timer_fires_after_its_delay_with_the_lineage_of_the_seeds_example() {
    let (mut harness, mut rows) = (Harness::new(), Rows::new());
    let mut ask = set("B", 1000, &command(json!({"target": "docs"})));
    ask.metadata.correlation = Some(OsId::new("corr-1").unwrap());
    let timer = set_and_store(&mut harness, &mut rows, ask);
    assert_eq!(rows.len(), 1);
    harness.pass(1000);
    assert!(
        harness.run().is_empty(),
        "never early: the clock may have been almost a tick further when it was set"
    );
    harness.pass(1);
    assert_eq!(
        harness.run(),
        [
            format!(r#"Ear gets event Timer.Fired {{"timerId":"{timer}"}} <B"#),
            r#"Echo gets command Echo.Do {"target":"docs"} <B"#.to_owned(),
        ]
    );
    let fired = harness.posted.iter().map(|(_, _, message)| message.metadata.clone());
    for metadata in fired {
        assert_eq!(metadata.correlation.unwrap().as_str(), "corr-1");
        assert_eq!(metadata.timestamp, harness.now.wall);
    }
    assert_eq!(rows.len(), 1, "its row stays until what it sent was answered");
    let (_, delivery, sent) = harness.posted.last().unwrap().clone();
    let reply = harness::caused("reply", "Echo.Do", "r", json!(1), Some(sent.metadata.id.as_str()));
    harness.say("Echo", Some(delivery), reply);
    assert!(harness.run().is_empty(), "nobody waits for the answer, and it is no orphan");
    assert_eq!(rows.len(), 1, "nor until who listens to Timer.Fired has finished with that");
    harness.finish_all("Ear");
    assert_eq!(harness.run(), ["commit delete"]);
    harness.commit(&mut rows);
    assert!(rows.is_empty());
}

#[test]
fn equal_deadlines_fire_in_the_order_they_were_set() {
    let limits = RouterLimits { durable_timers: false, conn_messages_max: 10_000, ..RouterLimits::default() };
    let mut harness = Harness::with(limits);
    for n in 0..500 {
        let delay = 100 - (n % 2);
        harness.client(
            1,
            set(&format!("s{n}"), delay, &json!({"kind": "event", "type": "Echo.Said", "data": n})),
        );
    }
    harness.run();
    harness.pass(101);
    let heard = harness.run().into_iter().filter_map(|line| {
        line.strip_prefix("Ear gets event Echo.Said ")
            .map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap())
    });
    let heard: Vec<u64> = heard.collect();
    let expected: Vec<u64> = (0..500).filter(|n| n % 2 == 1).chain((0..500).filter(|n| n % 2 == 0)).collect();
    assert_eq!(heard, expected);
}

/// The two clocks are read in whole milliseconds and tick at different moments. So of two timers for one time of day
/// the second may be earlier by the monotonic clock.
#[test]
fn one_time_of_day_fires_in_the_order_it_was_set_while_the_clocks_run() {
    let limits = RouterLimits { durable_timers: false, conn_messages_max: 10_000, ..RouterLimits::default() };
    for (mono_phase, wall_phase) in [(0, 500), (500, 0), (300, 700), (0, 0)] {
        let mut harness = Harness::with(limits.clone());
        let (mono, wall) = (harness.now.mono, harness.now.wall);
        let at = |harness: &mut Harness, us: u64| {
            harness.now.mono = mono + (us + mono_phase) / 1000;
            harness.now.wall = wall + (us + wall_phase) / 1000;
        };
        let due = wall.0 + 300;
        let mut us = 0;
        for n in 0..400 {
            at(&mut harness, us);
            let event = json!({"kind": "event", "type": "Echo.Said", "data": n});
            let set = json!({"dueAt": due, "message": event});
            harness.client(1, message("command", "Timer.Set", &format!("s{n}"), set));
            harness.run();
            us += 370;
        }
        let mut heard = Vec::new();
        while heard.len() < 400 {
            us += 370;
            at(&mut harness, us);
            let early = harness.now.wall.0 < due;
            let told = harness.run();
            assert!(!early || told.is_empty(), "{told:?}");
            heard.extend(told.into_iter().filter_map(|line| {
                line.strip_prefix("Ear gets event Echo.Said ")
                    .map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap())
            }));
            assert!(us < 1_000_000, "{} fired", heard.len());
        }
        assert!(heard.is_sorted(), "phases {mono_phase} and {wall_phase}: {heard:?}");
    }
}

#[test]
fn after_a_crash_a_durable_timer_fires_again_with_the_same_ids() {
    let (mut harness, mut rows) = (Harness::new(), Rows::new());
    set_and_store(&mut harness, &mut rows, set("s", 50, &command(json!(1))));
    harness.pass(51);
    harness.run();
    let ids = |harness: &Harness| -> Vec<String> {
        harness.posted.iter().map(|(_, _, message)| message.metadata.id.to_string()).collect()
    };
    let first = ids(&harness);
    let mut after = Harness::new();
    after.now = harness.now;
    after.restore(rows.clone());
    after.run();
    assert_eq!(ids(&after), first);
    // A timer that was not due before the crash also waits for its time in the next process.
    let mut early = Harness::new();
    early.restore(rows);
    early.pass(50);
    assert!(early.run().is_empty());
    early.pass(1);
    assert_eq!(early.run().len(), 2);
}

/// Only the wall clock tells how long no process ran. A clock that was set back tells nothing, and does not make the
/// delay longer.
#[test]
fn a_clock_set_back_over_a_restart_holds_up_no_delay() {
    let (mut harness, mut rows) = (Harness::new(), Rows::new());
    harness.now.wall = Timestamp(10_000_000_000);
    set_and_store(&mut harness, &mut rows, set("s", 1_000, &command(json!(1))));
    let mut after = Harness::new();
    after.now.wall = harness.now.wall.saturating_sub(3 * 3_600_000);
    after.restore(rows.clone());
    after.pass(1_000);
    assert!(after.run().is_empty());
    after.pass(1);
    assert_eq!(after.run().len(), 2);
    // This process starts after the whole delay has passed.
    let mut late = Harness::new();
    late.now.wall = harness.now.wall + 5_000;
    late.restore(rows);
    assert_eq!(late.run().len(), 2);
}

/// The clock was three hours behind when the timer was set, and was corrected later.
#[test]
fn a_clock_set_forward_ends_no_delay_early_over_a_restart() {
    const HOUR: u64 = 3_600_000;
    let boot = |id, up_at_zero_ms| Some(Boot { id: BootId(id), up_at_zero_ms });
    // Per case: the boot at the restart; whether the first process saw the clock step, and believed it; the rest of the
    // hour.
    for (after_boot, seen, believed, left_ms) in [
        (boot(1, 5_000), false, false, HOUR - 4_000 + 3),
        (boot(1, 5_000), true, true, HOUR - 4_000 + 3),
        (boot(2, 10), true, false, HOUR),
        (boot(2, 10), true, true, HOUR),
    ] {
        let (mut harness, mut rows) = (Harness::new(), Rows::new());
        harness.boot = boot(1, 1_000);
        harness.restore(Rows::new());
        harness.pass(0);
        harness.now.wall = Timestamp(10_000_000_000);
        harness.router.turn(harness.now);
        harness.client(1, set("s", HOUR, &command(json!(1))));
        assert_eq!(harness.run(), ["commit put, put"], "the timer, and the elapsed time");
        harness.commit(&mut rows);
        harness.run();
        harness.now.mono = harness.now.mono + 1;
        let corrected = harness.now.wall + 3 * HOUR;
        if seen {
            harness.now.steady_since = harness.now.mono;
            harness.now.wall = if believed { corrected } else { harness.now.wall };
            assert_eq!(harness.run(), ["commit put"]);
            harness.commit(&mut rows);
        }
        let mut after = Harness::new();
        after.boot = after_boot;
        after.now.wall = corrected;
        after.restore(rows.clone());
        // The restarted loop may store the elapsed time beside the new wall time: such commits do not count.
        let fired = |after: &mut Harness| {
            let told = after.run().into_iter();
            told.filter(|line| !line.starts_with("commit")).count()
        };
        assert_eq!(fired(&mut after), 0);
        after.pass(left_ms - 1);
        assert_eq!(fired(&mut after), 0, "{after_boot:?} {seen} {believed}");
        after.pass(1);
        assert_eq!(fired(&mut after), 2, "{after_boot:?} {seen} {believed}");
    }
}

#[test]
fn restored_timers_keep_their_order_and_later_ones_come_after_them() {
    let (mut harness, mut rows) = (Harness::new(), Rows::new());
    for n in 0..20 {
        let event = json!({"kind": "event", "type": "Echo.Said", "data": n});
        set_and_store(&mut harness, &mut rows, set(&format!("s{n}"), 100, &event));
    }
    let mut after = Harness::new();
    after.now = harness.now;
    after.restore(rows.clone());
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 20});
    set_and_store(&mut after, &mut rows, set("later", 100, &event));
    after.pass(101);
    let heard: Vec<String> = after.run().into_iter().filter(|line| line.contains("Echo.Said")).collect();
    let expected: Vec<String> = (0..20).map(|n| format!("Ear gets event Echo.Said {n} <s{n}")).collect();
    assert_eq!(heard[..20], expected);
    assert!(heard[20].starts_with("Ear gets event Echo.Said 20"));
}

#[test]
fn cancel_says_whether_it_was_in_time_and_is_never_an_error() {
    let (mut harness, mut rows) = (Harness::new(), Rows::new());
    let timer = set_and_store(&mut harness, &mut rows, set("s", 50, &command(json!(1))));
    let cancel = |id: &str, timer: &str| message("command", "Timer.Cancel", id, json!({"timerId": timer}));
    harness.client(1, cancel("c1", &timer));
    assert_eq!(harness.run(), ["commit delete"]);
    harness.pass(60);
    assert!(harness.run().is_empty(), "it does not fire while its row is being removed");
    harness.commit(&mut rows);
    assert_eq!(harness.run(), [r#"1 is told reply Timer.Cancel {"cancelled":true} <c1"#]);
    assert!(rows.is_empty());
    for (id, timer) in [("c2", timer.as_str()), ("c3", "unknown")] {
        harness.client(1, cancel(id, timer));
        assert_eq!(harness.run(), [format!(r#"1 is told reply Timer.Cancel {{"cancelled":false}} <{id}"#)]);
    }
}

#[test]
fn a_store_that_fails_is_said_and_nothing_is_half_set() {
    let mut harness = Harness::new();
    harness.client(1, set("s", 50, &command(json!(1))));
    harness.run();
    let (token, _) = harness.commits.pop().unwrap();
    harness.give(Input::Committed { token, result: Err("disk full".into()) });
    let told = harness.run();
    assert!(
        told[0].contains(r#""code":503,"message":"The timer could not be stored: disk full"#),
        "{told:?}"
    );
    harness.pass(100);
    assert!(harness.run().is_empty() && harness.router.is_quiescent());
}

#[test]
fn wrong_timers_are_422_and_the_reason_is_said() {
    let mut harness = Harness::new();
    for (at, data) in [
        json!({"delayMs": 1, "dueAt": 1, "message": command(json!(1))}),
        json!({"message": command(json!(1))}),
        json!({"delayMs": -1, "message": command(json!(1))}),
        json!({"delayMs": 1, "message": {"kind": "reply", "type": "A.B", "data": 1}}),
        json!({"delayMs": 1, "message": {"kind": "command", "type": "nope", "data": 1}}),
        json!({"delayMs": 1}),
        json!(7),
    ]
    .into_iter()
    .enumerate()
    {
        harness.client(1, message("command", "Timer.Set", &format!("s{at}"), data));
        let told = harness.run();
        assert!(told[0].contains(r#""code":422,"message":"Schema validation failed: "#), "{told:?}");
    }
    assert!(harness.router.is_quiescent());
}

#[test]
fn a_past_time_fires_at_once_and_a_far_one_waits() {
    let mut harness = Harness::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    harness.client(1, message("command", "Timer.Set", "past", json!({"dueAt": 5, "message": event.clone()})));
    assert_eq!(harness.run().len(), 3, "the reply, Timer.Fired and the event");
    harness.client(1, set("far", 3_000_000_000, &event));
    harness.run();
    harness.pass(3_000_000_000);
    assert!(harness.run().is_empty());
    harness.pass(1);
    assert_eq!(harness.run().len(), 2);
}

/// A timer for a time of day goes by the wall clock: if that is set back, the timer waits.
#[test]
fn an_absolute_time_follows_the_wall_clock() {
    let mut harness = Harness::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    let due = harness.now.wall.0 + 100;
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    harness.client(1, message("command", "Timer.Set", "s", json!({"dueAt": due, "message": event})));
    harness.run();
    harness.now.mono = harness.now.mono + 100;
    harness.now.wall = harness.now.wall + 40;
    assert!(harness.run().is_empty());
    harness.pass(60);
    assert_eq!(harness.run().len(), 2);
}

#[test]
fn what_a_timer_sends_waits_while_nobody_has_room_for_it() {
    let limits = RouterLimits { mailbox_max: 1, durable_timers: false, ..RouterLimits::default() };
    let mut harness = Harness::with(limits);
    harness.ask("busy");
    harness.client(1, set("s", 10, &command(json!(1))));
    harness.run();
    harness.pass(11);
    let told = harness.run();
    assert!(told.iter().all(|line| line.contains("Timer.Fired")), "{told:?}");
    harness.answer("busy", json!(1));
    harness.run();
    harness.pass(1000);
    assert_eq!(harness.run(), ["Echo gets command Echo.Do 1 <s"], "and Timer.Fired is not said twice");
}

/// While a mailbox is full, no younger timer's message overtakes an older one's.
#[test]
fn what_waits_for_room_stays_in_order() {
    let limits = RouterLimits { mailbox_max: 3, durable_timers: false, ..RouterLimits::default() };
    let mut harness = Harness::with(limits);
    for n in 0..40 {
        harness.client(1, set(&format!("s{n}"), 10, &command(json!(n))));
    }
    harness.run();
    harness.pass(11);
    let mut got = Vec::new();
    for _ in 0..60 {
        let told = harness.run();
        got.extend(told.into_iter().filter(|line| line.starts_with("Echo gets")));
        // Free one slot and run a turn before the others are freed.
        let busy: Vec<_> = harness.posted.drain(..).filter(|(to, _, _)| *to == harness.ids["Echo"]).collect();
        for (at, (from, delivery, _)) in busy.into_iter().enumerate() {
            harness.give(Input::Done { from, delivery, result: Ok(()) });
            if at == 0 {
                harness.router.turn(harness.now);
            }
        }
        harness.pass(500);
    }
    let expected: Vec<String> = (0..40).map(|n| format!("Echo gets command Echo.Do {n} <s{n}")).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_timer_may_end_a_request_of_whoever_set_it_with_system_priority() {
    let mut harness = Harness::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    harness.open(2);
    harness.ask("slow");
    let timeout = json!({"kind": "command", "type": "Sys.RequestTimeout", "data": {"requestId": "slow"}});
    harness.client(2, set("stranger", 10, &timeout));
    harness.client(1, set("own", 20, &timeout));
    harness.run();
    harness.pass(11);
    assert!(!harness.run().iter().any(|line| line.contains("504")), "not another client's");
    harness.pass(10);
    harness.ask("later");
    let told = harness.turn();
    assert!(told[0].contains("Request timed out"), "before what waits in the user lane: {told:?}");
}

#[test]
fn timers_outlive_the_connection_that_set_them() {
    let mut harness = Harness::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    harness.client(1, set("s", 10, &command(json!(1))));
    harness.run();
    harness.give(Input::Close { conn: ConnId(1) });
    harness.pass(11);
    assert_eq!(harness.run().len(), 2);
}

#[test]
fn the_number_of_timers_is_bounded() {
    let limits =
        RouterLimits { conn_timers_max: 2, timers_max: 3, durable_timers: false, ..RouterLimits::default() };
    let mut harness = Harness::with(limits);
    harness.open(2);
    for (conn, id, fine) in [(1, "a", true), (1, "b", true), (1, "c", false), (2, "d", true), (2, "e", false)]
    {
        harness.client(conn, set(id, 10, &command(json!(1))));
        assert_eq!(harness.run()[0].contains("timerId"), fine, "{id}");
    }
    harness.pass(11);
    harness.run();
    assert_eq!(harness.router.gauges().pending, 3, "the commands they sent wait for their outcome");
}

/// Sets 100,000 timers and cancels half of them: the rest fire in order, none early.
#[test]
fn a_hundred_thousand_timers() {
    let limits = RouterLimits {
        durable_timers: false,
        conn_messages_max: 1_000_000,
        trace_records_max: 0,
        ..RouterLimits::default()
    };
    let mut harness = Harness::bare(limits);
    harness.install(vec![manifest("Ear", &[(OsKind::Query, "Ear.Ask")], &["Echo.Said"])]);
    harness.open(1);
    let mut ids = Vec::new();
    for n in 0..100_000u64 {
        let event = json!({"kind": "event", "type": "Echo.Said", "data": n});
        harness.client(1, set(&format!("s{n}"), n * 7919 % 10_000, &event));
        harness.router.turn(harness.now);
        for effect in harness.router.drain() {
            if let Effect::Answer { message, .. } = effect {
                ids.push(serde_json::from_str::<Value>(message.data.as_str()).unwrap()["timerId"].clone());
            }
        }
    }
    for (n, timer) in ids.iter().enumerate().filter(|(n, _)| n % 2 == 1) {
        harness.client(1, message("command", "Timer.Cancel", &format!("c{n}"), json!({"timerId": timer})));
    }
    harness.run();
    let mut fired: Vec<(u64, u64)> = Vec::new();
    for ms in 0..=10_001u64 {
        while harness.router.turn(harness.now) {}
        let done: Vec<_> = harness
            .router
            .drain()
            .filter_map(|effect| match effect {
                Effect::Post { to, delivery, message, .. } => {
                    let n: u64 = message.data.as_str().parse().unwrap();
                    assert!(n * 7919 % 10_000 < ms, "timer {n} fired at {ms}");
                    fired.push((n * 7919 % 10_000, n));
                    Some((to, delivery))
                }
                _ => None,
            })
            .collect();
        for (from, delivery) in done {
            harness.give(Input::Done { from, delivery, result: Ok(()) });
        }
        harness.pass(1);
    }
    assert_eq!(fired.len(), 50_000);
    assert!(fired.is_sorted(), "by deadline, equal ones in the order they were set");
    assert!(harness.router.is_quiescent());
}
