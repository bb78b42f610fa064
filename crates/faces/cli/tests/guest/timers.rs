//! Guests that wait for timers.

use crate::program::{FOREVER, Program, REPLY, poll, timer_arm};
use crate::stage::Stage;

const MS: u64 = 1_000_000;

#[test]
fn a_guest_arms_a_timer_waits_for_it_writes_and_ends() {
    let program = Program::new()
        .open_loop()
        .send(&timer_arm(7, 5 * MS, 0))
        .send(&poll(8, FOREVER))
        // The reply has one event, of kind 2 (TIMER), with the timer's id.
        .code(&format!(
            "(if (i32.ne (i32.load (i32.const {})) (i32.const 1)) (then (unreachable)))",
            REPLY + 32
        ))
        .code(&format!(
            "(if (i32.ne (i32.load (i32.const {})) (i32.const 2)) (then (unreachable)))",
            REPLY + 40
        ))
        .code(&format!(
            "(if (i64.ne (i64.load (i32.const {})) (i64.const 7)) (then (unreachable)))",
            REPLY + 56
        ))
        .print("the timer fired\n");
    assert_eq!(Stage::with_module(&program.end()).run(&[]).ok(), "the timer fired\n");
}
