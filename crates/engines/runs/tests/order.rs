//! Order, fairness, the seed that shuffles, and what happens at the limits.

mod harness;

use harness::{Harness, Reply, ask, endless};
use millrace_model::Mono;
use millrace_runs::{
    Answer, CallId, Disposition, Input, InputRefused, RunOutcome, RunStopped, RunsLimits, ScriptLine,
    StartRefused,
};

const DONE: ScriptLine<i64> = ScriptLine::Done(1);

fn small(limits: RunsLimits) -> Harness {
    Harness::with(limits, |_, _, _| Reply::Later)
}

#[test]
fn a_run_has_one_call_at_a_time_in_emission_order() {
    let mut harness = Harness::new(|_, _, args| match args[0] % 2 {
        0 => Reply::Now(Answer::Resume(0)),
        _ => Reply::Later,
    });
    harness.start((0..6).map(ask).chain([DONE]).collect());
    harness.settle();
    for step in [1, 3, 5] {
        assert_eq!(harness.trace.last(), Some(&format!("call run_1 0 [{step}]")));
        let call = harness.open.pop().expect("an open call");
        assert!(harness.open.is_empty());
        assert_eq!(harness.complete(call, Answer::Resume(0)), Disposition::Accepted);
        harness.settle();
    }
    assert_eq!(harness.trace.last().map(String::as_str), Some("outcome run_1 value"));
}

#[test]
fn exactly_one_answer_of_a_call_is_applied() {
    let mut harness = small(RunsLimits::default());
    let run = harness.start(vec![ask(1), ScriptLine::DoneWithReply]);
    harness.settle();
    let call = harness.open[0];
    assert_eq!(harness.complete(call, Answer::Resume(1)), Disposition::Accepted);
    assert_eq!(harness.complete(call, Answer::Resume(2)), Disposition::Dropped);
    assert_eq!(harness.input(Input::Answered { call, answer: Answer::Resume(3) }), Disposition::Dropped);
    let sleep = Input::AnswerAt { call, at: Mono(1), answer: Answer::Resume(4) };
    assert_eq!(harness.input(sleep), Disposition::Dropped);
    harness.settle();
    assert_eq!(harness.outcome(run), Some(&RunOutcome::Value(1)));
    assert_eq!(harness.runs.counters().inputs_dropped, 3);
}

#[test]
fn an_answer_to_an_earlier_step_is_dropped() {
    let mut harness = small(RunsLimits::default());
    harness.start(vec![ask(1), ask(2), DONE]);
    harness.settle();
    let first = harness.open[0];
    harness.complete(first, Answer::Resume(0));
    harness.settle();
    assert_eq!(harness.complete(first, Answer::End(9)), Disposition::Dropped);
    let unknown = CallId { step: 77, ..first };
    assert_eq!(harness.complete(unknown, Answer::End(9)), Disposition::Dropped);
    assert_eq!(harness.runs.gauges().runs, 1);
}

#[test]
fn a_tick_executes_as_many_steps_as_its_budget_which_is_1024_by_default() {
    for (limits, steps) in [
        (RunsLimits::default(), 1024),
        (RunsLimits { max_internal_steps_per_tick: 7, ..RunsLimits::default() }, 7),
    ] {
        let mut harness = Harness::with(limits, |_, _, _| Reply::Now(Answer::Resume(0)));
        for _ in 0..3 {
            harness.start(endless());
        }
        assert_eq!([harness.tick(), harness.tick()], [steps, steps]);
    }
}

#[test]
fn ready_runs_take_turns() {
    let mut harness = Harness::new(|_, _, _| Reply::Now(Answer::Resume(0)));
    for _ in 0..3 {
        harness.start(endless());
    }
    harness.tick();
    let turns: Vec<_> = harness.trace.iter().take(9).map(String::as_str).collect();
    let round = ["call run_1 0 [0]", "call run_2 0 [0]", "call run_3 0 [0]"];
    assert_eq!(turns, [round, round, round].concat());
}

#[test]
fn an_external_completion_is_served_within_one_tick_beside_a_thousand_endless_runs() {
    let mut harness = Harness::new(|_, _, args| match args[0] {
        1 => Reply::Later,
        _ => Reply::Now(Answer::Resume(0)),
    });
    let waiting = harness.start(vec![ask(1), DONE]);
    for _ in 0..1000 {
        harness.start(endless());
    }
    for _ in 0..5 {
        assert_eq!(harness.tick(), 1024, "the budget is shared by all runs");
    }
    let call = harness.open[0];
    harness.complete(call, Answer::Resume(0));
    harness.tick();
    assert_eq!(harness.outcome(waiting), Some(&RunOutcome::Value(1)));
}

#[test]
fn the_steps_of_endless_runs_differ_by_at_most_one() {
    let limits = RunsLimits { max_internal_steps_per_tick: 7, ..RunsLimits::default() };
    let mut harness = Harness::with(limits, |_, _, _| Reply::Now(Answer::Resume(0)));
    for _ in 0..100 {
        harness.start(endless());
    }
    for _ in 0..333 {
        assert_eq!(harness.tick(), 7);
    }
    let mut calls = std::collections::BTreeMap::new();
    for line in &harness.trace {
        *calls.entry(line.clone()).or_insert(0) += 1;
    }
    assert_eq!(calls.len(), 100);
    let (least, most) = (calls.values().min().expect("runs"), calls.values().max().expect("runs"));
    assert!(most - least <= 1, "{least} to {most}");
}

fn completion_order(seed: Option<u64>) -> Vec<String> {
    let mut harness = small(RunsLimits::default());
    if let Some(seed) = seed {
        harness.runs = millrace_runs::Runs::new(RunsLimits::default()).shuffled(seed);
    }
    for _ in 0..20 {
        harness.start(vec![ask(1), DONE]);
    }
    harness.settle();
    for (index, call) in harness.open.clone().into_iter().enumerate() {
        // The first ten completions have one time, the others a later one.
        harness.now = Mono(index as u64 / 10);
        harness.complete(call, Answer::Resume(0));
    }
    harness.tick();
    harness.outcomes.iter().map(|(run, _)| run.to_string()).collect()
}

#[test]
fn completions_are_first_in_first_out_without_a_seed() {
    let in_order: Vec<_> = (1..=20).map(|run| format!("run_{run}")).collect();
    assert_eq!(completion_order(None), in_order);
}

#[test]
fn a_seed_permutes_simultaneous_completions_and_no_others() {
    let order = completion_order(Some(42));
    assert_eq!(order, completion_order(Some(42)), "same seed, same order");
    assert_ne!(order, completion_order(Some(43)));
    let moment = |runs: &[String]| {
        let mut sorted: Vec<u32> = runs.iter().map(|run| run[4..].parse().expect("a number")).collect();
        sorted.sort_unstable();
        sorted
    };
    assert_eq!(moment(&order[..10]), (1..=10).collect::<Vec<u32>>());
    assert_eq!(moment(&order[10..]), (11..=20).collect::<Vec<u32>>());
}

#[test]
fn a_full_table_refuses_a_run_and_gives_its_guest_back() {
    let mut harness = small(RunsLimits { runs_max: 2, ..RunsLimits::default() });
    let first = harness.start(vec![ask(1), DONE]);
    harness.start(vec![ask(1), DONE]);
    let refused = harness.try_start(vec![DONE], None);
    assert_eq!(refused, Err(StartRefused::TooManyRuns { max: 2 }));
    assert_eq!(harness.log.released, 1);
    harness.cancel(first);
    assert!(harness.try_start(vec![DONE], None).is_ok());
    harness.check();
}

#[test]
fn a_full_external_queue_refuses_completions_until_the_next_tick() {
    let mut harness = small(RunsLimits { external_max: 2, ..RunsLimits::default() });
    for _ in 0..3 {
        harness.start(vec![ask(1), DONE]);
    }
    harness.settle();
    let calls = harness.open.clone();
    harness.complete(calls[0], Answer::Resume(0));
    harness.complete(calls[1], Answer::Resume(0));
    let third = Input::Completed { call: calls[2], answer: Answer::Resume(0) };
    let refused = harness.runs.handle(harness.now, third.clone());
    assert_eq!(refused, Err(InputRefused::ExternalQueueFull { max: 2 }));
    harness.tick();
    assert_eq!(harness.input(third), Disposition::Accepted);
    harness.settle();
    assert_eq!(harness.outcomes.len(), 3);
}

#[test]
fn due_timers_wait_for_room_in_the_external_queue() {
    let limits = RunsLimits { external_max: 3, ..RunsLimits::default() };
    let mut harness = Harness::with(limits, |_, _, _| Reply::After(10, Answer::Resume(0)));
    let runs: Vec<_> = (0..10).map(|_| harness.start(vec![ask(1), DONE])).collect();
    harness.settle();
    harness.now = Mono(10);
    harness.tick();
    assert_eq!(harness.outcomes.len(), 3);
    harness.settle();
    let order: Vec<_> = harness.outcomes.iter().map(|(run, _)| *run).collect();
    assert_eq!(order, runs);
}

#[test]
fn a_full_timer_queue_refuses_sleeps_wake_ups_and_deadlines() {
    let mut harness = small(RunsLimits { timers_max: 1, ..RunsLimits::default() });
    harness.start(vec![ask(1), DONE]);
    harness.start(vec![ask(1), DONE]);
    harness.settle();
    let calls = harness.open.clone();
    harness.input(Input::WakeAt { call: calls[0], at: Mono(5), token: 0 });
    let refused = Err(InputRefused::TooManyTimers { max: 1 });
    let sleep = Input::AnswerAt { call: calls[1], at: Mono(5), answer: Answer::Resume(0) };
    assert_eq!(harness.runs.handle(Mono(0), sleep.clone()), refused);
    assert_eq!(
        harness.runs.handle(Mono(0), Input::WakeAt { call: calls[1], at: Mono(5), token: 0 }),
        refused
    );
    let start = harness.try_start(vec![DONE], Some(Mono(9)));
    assert_eq!(start, Err(StartRefused::TooManyTimers { max: 1 }));
    harness.now = Mono(5);
    harness.tick();
    assert_eq!(harness.input(sleep), Disposition::Accepted);
}

#[test]
fn a_run_has_a_bounded_number_of_wake_ups() {
    let mut harness = small(RunsLimits { run_timers_max: 2, ..RunsLimits::default() });
    harness.start(vec![ask(1), DONE]);
    harness.settle();
    let call = harness.open[0];
    for token in 0..2 {
        harness.input(Input::WakeAt { call, at: Mono(5), token });
    }
    let third = Input::WakeAt { call, at: Mono(5), token: 2 };
    assert_eq!(harness.runs.handle(Mono(0), third), Err(InputRefused::TooManyRunTimers { max: 2 }));
}

#[test]
fn limits_of_zero_still_let_runs_end() {
    let limits = RunsLimits { max_internal_steps_per_tick: 0, external_max: 0, ..RunsLimits::default() };
    let mut harness = Harness::with(limits, |_, _, _| Reply::After(10, Answer::Resume(0)));
    harness.start(vec![ask(1), DONE]);
    harness.run_virtual();
    assert_eq!(harness.outcomes.len(), 1);
}

#[test]
fn an_outcome_becomes_a_result_that_keeps_failed_and_cancelled_apart() {
    let mut harness = small(RunsLimits::default());
    let [value, failed, cancelled] = [(); 3].map(|()| harness.start(vec![ask(1), DONE]));
    harness.settle();
    let calls = harness.open.clone();
    harness.complete(calls[0], Answer::Resume(0));
    harness.complete(calls[1], Answer::Unhandled);
    harness.input(Input::Cancel { run: cancelled, reason: Some(3) });
    harness.settle();
    let result = |run| harness.outcome(run).expect("an outcome").clone().into_result();
    assert_eq!(result(value), Ok(1));
    assert_eq!(result(cancelled), Err(RunStopped::Cancelled { reason: Some(3) }));
    let stopped = result(failed).expect_err("failed");
    assert!(matches!(stopped, RunStopped::Failed(_)));
    assert_eq!(stopped.to_string(), "Unhandled effect Test.ask (resume)");
}
