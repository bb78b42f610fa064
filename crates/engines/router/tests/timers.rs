//! Timers (RFC 0032, section 12): never early, never lost, in order, with their lineage.

// Helpers of tests unwrap like tests.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod desk;

use std::collections::BTreeMap;

use desk::{Desk, manifest, member, message};
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
fn set_and_store(desk: &mut Desk, rows: &mut Rows, message: OsMessage) -> String {
    desk.client(1, message);
    let told = desk.run();
    // The commit writes the timer's row and, once the loop knows it, the elapsed time.
    assert!(
        told == ["commit put"] || told == ["commit put, put"],
        "the answer waits for the commit: {told:?}"
    );
    desk.commit(rows);
    let told = desk.run();
    member(&told[0], "timerId").as_str().unwrap().to_owned()
}

#[test]
fn a_timer_fires_after_its_delay_with_the_lineage_of_the_seeds_example() {
    let (mut desk, mut rows) = (Desk::new(), Rows::new());
    let mut ask = set("B", 1000, &command(json!({"target": "docs"})));
    ask.metadata.correlation = Some(OsId::new("corr-1").unwrap());
    let timer = set_and_store(&mut desk, &mut rows, ask);
    assert_eq!(rows.len(), 1);
    desk.pass(1000);
    assert!(
        desk.run().is_empty(),
        "never early: the clock may have been almost a tick further when it was set"
    );
    desk.pass(1);
    assert_eq!(
        desk.run(),
        [
            format!(r#"Ear gets event Timer.Fired {{"timerId":"{timer}"}} <B"#),
            r#"Echo gets command Echo.Do {"target":"docs"} <B"#.to_owned(),
        ]
    );
    let fired = desk.posted.iter().map(|(_, _, message)| message.metadata.clone());
    for metadata in fired {
        assert_eq!(metadata.correlation.unwrap().as_str(), "corr-1");
        assert_eq!(metadata.timestamp, desk.now.wall);
    }
    assert_eq!(rows.len(), 1, "its row stays until what it sent was answered");
    let (_, delivery, sent) = desk.posted.last().unwrap().clone();
    let reply = desk::caused("reply", "Echo.Do", "r", json!(1), Some(sent.metadata.id.as_str()));
    desk.say("Echo", Some(delivery), reply);
    assert!(desk.run().is_empty(), "nobody waits for the answer, and it is no orphan");
    assert_eq!(rows.len(), 1, "nor until who listens to Timer.Fired has finished with that");
    desk.finish_all("Ear");
    assert_eq!(desk.run(), ["commit delete"]);
    desk.commit(&mut rows);
    assert!(rows.is_empty());
}

#[test]
fn equal_deadlines_fire_in_the_order_they_were_set() {
    let limits = RouterLimits { durable_timers: false, conn_messages_max: 10_000, ..RouterLimits::default() };
    let mut desk = Desk::with(limits);
    for n in 0..500 {
        let delay = 100 - (n % 2);
        desk.client(
            1,
            set(&format!("s{n}"), delay, &json!({"kind": "event", "type": "Echo.Said", "data": n})),
        );
    }
    desk.run();
    desk.pass(101);
    let heard = desk.run().into_iter().filter_map(|line| {
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
        let mut desk = Desk::with(limits.clone());
        let (mono, wall) = (desk.now.mono, desk.now.wall);
        let at = |desk: &mut Desk, us: u64| {
            desk.now.mono = mono + (us + mono_phase) / 1000;
            desk.now.wall = wall + (us + wall_phase) / 1000;
        };
        let due = wall.0 + 300;
        let mut us = 0;
        for n in 0..400 {
            at(&mut desk, us);
            let event = json!({"kind": "event", "type": "Echo.Said", "data": n});
            let set = json!({"dueAt": due, "message": event});
            desk.client(1, message("command", "Timer.Set", &format!("s{n}"), set));
            desk.run();
            us += 370;
        }
        let mut heard = Vec::new();
        while heard.len() < 400 {
            us += 370;
            at(&mut desk, us);
            let early = desk.now.wall.0 < due;
            let told = desk.run();
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
    let (mut desk, mut rows) = (Desk::new(), Rows::new());
    set_and_store(&mut desk, &mut rows, set("s", 50, &command(json!(1))));
    desk.pass(51);
    desk.run();
    let ids = |desk: &Desk| -> Vec<String> {
        desk.posted.iter().map(|(_, _, message)| message.metadata.id.to_string()).collect()
    };
    let first = ids(&desk);
    let mut after = Desk::new();
    after.now = desk.now;
    after.restore(rows.clone());
    after.run();
    assert_eq!(ids(&after), first);
    // A timer that was not due before the crash also waits for its time in the next process.
    let mut early = Desk::new();
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
    let (mut desk, mut rows) = (Desk::new(), Rows::new());
    desk.now.wall = Timestamp(10_000_000_000);
    set_and_store(&mut desk, &mut rows, set("s", 1_000, &command(json!(1))));
    let mut after = Desk::new();
    after.now.wall = desk.now.wall.saturating_sub(3 * 3_600_000);
    after.restore(rows.clone());
    after.pass(1_000);
    assert!(after.run().is_empty());
    after.pass(1);
    assert_eq!(after.run().len(), 2);
    // This process starts after the whole delay has passed.
    let mut late = Desk::new();
    late.now.wall = desk.now.wall + 5_000;
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
        let (mut desk, mut rows) = (Desk::new(), Rows::new());
        desk.boot = boot(1, 1_000);
        desk.restore(Rows::new());
        desk.pass(0);
        desk.now.wall = Timestamp(10_000_000_000);
        desk.router.turn(desk.now);
        desk.client(1, set("s", HOUR, &command(json!(1))));
        assert_eq!(desk.run(), ["commit put, put"], "the timer, and the elapsed time");
        desk.commit(&mut rows);
        desk.run();
        desk.now.mono = desk.now.mono + 1;
        let corrected = desk.now.wall + 3 * HOUR;
        if seen {
            desk.now.steady_since = desk.now.mono;
            desk.now.wall = if believed { corrected } else { desk.now.wall };
            assert_eq!(desk.run(), ["commit put"]);
            desk.commit(&mut rows);
        }
        let mut after = Desk::new();
        after.boot = after_boot;
        after.now.wall = corrected;
        after.restore(rows.clone());
        // The restarted loop may store the elapsed time beside the new wall time: such commits do not count.
        let fired = |after: &mut Desk| {
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
    let (mut desk, mut rows) = (Desk::new(), Rows::new());
    for n in 0..20 {
        let event = json!({"kind": "event", "type": "Echo.Said", "data": n});
        set_and_store(&mut desk, &mut rows, set(&format!("s{n}"), 100, &event));
    }
    let mut after = Desk::new();
    after.now = desk.now;
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
    let (mut desk, mut rows) = (Desk::new(), Rows::new());
    let timer = set_and_store(&mut desk, &mut rows, set("s", 50, &command(json!(1))));
    let cancel = |id: &str, timer: &str| message("command", "Timer.Cancel", id, json!({"timerId": timer}));
    desk.client(1, cancel("c1", &timer));
    assert_eq!(desk.run(), ["commit delete"]);
    desk.pass(60);
    assert!(desk.run().is_empty(), "it does not fire while its row is being removed");
    desk.commit(&mut rows);
    assert_eq!(desk.run(), [r#"1 is told reply Timer.Cancel {"cancelled":true} <c1"#]);
    assert!(rows.is_empty());
    for (id, timer) in [("c2", timer.as_str()), ("c3", "unknown")] {
        desk.client(1, cancel(id, timer));
        assert_eq!(desk.run(), [format!(r#"1 is told reply Timer.Cancel {{"cancelled":false}} <{id}"#)]);
    }
}

#[test]
fn a_store_that_fails_is_said_and_nothing_is_half_set() {
    let mut desk = Desk::new();
    desk.client(1, set("s", 50, &command(json!(1))));
    desk.run();
    let (token, _) = desk.commits.pop().unwrap();
    desk.give(Input::Committed { token, result: Err("disk full".to_owned()) });
    let told = desk.run();
    assert!(
        told[0].contains(r#""code":503,"message":"The timer could not be stored: disk full"#),
        "{told:?}"
    );
    desk.pass(100);
    assert!(desk.run().is_empty() && desk.router.is_quiescent());
}

#[test]
fn wrong_timers_are_422_and_the_reason_is_said() {
    let mut desk = Desk::new();
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
        desk.client(1, message("command", "Timer.Set", &format!("s{at}"), data));
        let told = desk.run();
        assert!(told[0].contains(r#""code":422,"message":"Schema validation failed: "#), "{told:?}");
    }
    assert!(desk.router.is_quiescent());
}

#[test]
fn a_past_time_fires_at_once_and_a_far_one_waits() {
    let mut desk = Desk::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    desk.client(1, message("command", "Timer.Set", "past", json!({"dueAt": 5, "message": event.clone()})));
    assert_eq!(desk.run().len(), 3, "the reply, Timer.Fired and the event");
    desk.client(1, set("far", 3_000_000_000, &event));
    desk.run();
    desk.pass(3_000_000_000);
    assert!(desk.run().is_empty());
    desk.pass(1);
    assert_eq!(desk.run().len(), 2);
}

/// A timer for a time of day goes by the wall clock: if that is set back, the timer waits.
#[test]
fn an_absolute_time_follows_the_wall_clock() {
    let mut desk = Desk::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    let due = desk.now.wall.0 + 100;
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    desk.client(1, message("command", "Timer.Set", "s", json!({"dueAt": due, "message": event})));
    desk.run();
    desk.now.mono = desk.now.mono + 100;
    desk.now.wall = desk.now.wall + 40;
    assert!(desk.run().is_empty());
    desk.pass(60);
    assert_eq!(desk.run().len(), 2);
}

#[test]
fn what_a_timer_sends_waits_while_nobody_has_room_for_it() {
    let limits = RouterLimits { mailbox_max: 1, durable_timers: false, ..RouterLimits::default() };
    let mut desk = Desk::with(limits);
    desk.ask("busy");
    desk.client(1, set("s", 10, &command(json!(1))));
    desk.run();
    desk.pass(11);
    let told = desk.run();
    assert!(told.iter().all(|line| line.contains("Timer.Fired")), "{told:?}");
    desk.answer("busy", json!(1));
    desk.run();
    desk.pass(1000);
    assert_eq!(desk.run(), ["Echo gets command Echo.Do 1 <s"], "and Timer.Fired is not said twice");
}

/// While a mailbox is full, no younger timer's message overtakes an older one's.
#[test]
fn what_waits_for_room_stays_in_order() {
    let limits = RouterLimits { mailbox_max: 3, durable_timers: false, ..RouterLimits::default() };
    let mut desk = Desk::with(limits);
    for n in 0..40 {
        desk.client(1, set(&format!("s{n}"), 10, &command(json!(n))));
    }
    desk.run();
    desk.pass(11);
    let mut got = Vec::new();
    for _ in 0..60 {
        let told = desk.run();
        got.extend(told.into_iter().filter(|line| line.starts_with("Echo gets")));
        // Free one slot and run a turn before the others are freed.
        let busy: Vec<_> = desk.posted.drain(..).filter(|(to, _, _)| *to == desk.ids["Echo"]).collect();
        for (at, (from, delivery, _)) in busy.into_iter().enumerate() {
            desk.give(Input::Done { from, delivery, result: Ok(()) });
            if at == 0 {
                desk.router.turn(desk.now);
            }
        }
        desk.pass(500);
    }
    let expected: Vec<String> = (0..40).map(|n| format!("Echo gets command Echo.Do {n} <s{n}")).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_timer_may_end_a_request_of_whoever_set_it_with_system_priority() {
    let mut desk = Desk::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    desk.open(2);
    desk.ask("slow");
    let timeout = json!({"kind": "command", "type": "Sys.RequestTimeout", "data": {"requestId": "slow"}});
    desk.client(2, set("stranger", 10, &timeout));
    desk.client(1, set("own", 20, &timeout));
    desk.run();
    desk.pass(11);
    assert!(!desk.run().iter().any(|line| line.contains("504")), "not another client's");
    desk.pass(10);
    desk.ask("later");
    let told = desk.turn();
    assert!(told[0].contains("Request timed out"), "before what waits in the user lane: {told:?}");
}

#[test]
fn timers_outlive_the_connection_that_set_them() {
    let mut desk = Desk::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    desk.client(1, set("s", 10, &command(json!(1))));
    desk.run();
    desk.give(Input::Close { conn: ConnId(1) });
    desk.pass(11);
    assert_eq!(desk.run().len(), 2);
}

#[test]
fn the_number_of_timers_is_bounded() {
    let limits =
        RouterLimits { conn_timers_max: 2, timers_max: 3, durable_timers: false, ..RouterLimits::default() };
    let mut desk = Desk::with(limits);
    desk.open(2);
    for (conn, id, fine) in [(1, "a", true), (1, "b", true), (1, "c", false), (2, "d", true), (2, "e", false)]
    {
        desk.client(conn, set(id, 10, &command(json!(1))));
        assert_eq!(desk.run()[0].contains("timerId"), fine, "{id}");
    }
    desk.pass(11);
    desk.run();
    assert_eq!(desk.router.gauges().pending, 3, "the commands they sent wait for their outcome");
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
    let mut desk = Desk::bare(limits);
    desk.install(vec![manifest("Ear", &[(OsKind::Query, "Ear.Ask")], &["Echo.Said"])]);
    desk.open(1);
    let mut ids = Vec::new();
    for n in 0..100_000u64 {
        let event = json!({"kind": "event", "type": "Echo.Said", "data": n});
        desk.client(1, set(&format!("s{n}"), n * 7919 % 10_000, &event));
        desk.router.turn(desk.now);
        for effect in desk.router.drain() {
            if let Effect::Answer { message, .. } = effect {
                ids.push(serde_json::from_str::<Value>(message.data.as_str()).unwrap()["timerId"].clone());
            }
        }
    }
    for (n, timer) in ids.iter().enumerate().filter(|(n, _)| n % 2 == 1) {
        desk.client(1, message("command", "Timer.Cancel", &format!("c{n}"), json!({"timerId": timer})));
    }
    desk.run();
    let mut fired: Vec<(u64, u64)> = Vec::new();
    for ms in 0..=10_001u64 {
        while desk.router.turn(desk.now) {}
        let done: Vec<_> = desk
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
            desk.give(Input::Done { from, delivery, result: Ok(()) });
        }
        desk.pass(1);
    }
    assert_eq!(fired.len(), 50_000);
    assert!(fired.is_sorted(), "by deadline, equal ones in the order they were set");
    assert!(desk.router.is_quiescent());
}
