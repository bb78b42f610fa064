//! Random interleavings of inputs, ticks and clock moves, with the properties that hold for all of them.

mod harness;

use std::collections::BTreeMap;

use harness::{Harness, Reply, ask, tell};
use millrace_model::Mono;
use millrace_runs::{Answer, GuestEvent, HandlerError, Input, RunId, RunsLimits, ScriptLine};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Start {
        lines: Vec<u8>,
        deadline_ms: Option<u64>,
    },
    /// Answers a call made so far, whether or not it is still open.
    Complete {
        which: usize,
        answer: u8,
    },
    Sleep {
        which: usize,
        ms: u64,
    },
    Wake {
        which: usize,
        ms: u64,
    },
    Cancel {
        which: usize,
    },
    /// Begins a tick without finishing it, so that inputs arrive between two of its steps.
    BeginTick,
    Step,
    Tick,
    Advance {
        ms: u64,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let which = 0..64_usize;
    let line = 0..6_u8;
    prop_oneof![
        3 => (prop::collection::vec(line, 0..5), prop::option::of(0..40_u64))
            .prop_map(|(lines, deadline_ms)| Act::Start { lines, deadline_ms }),
        6 => (which.clone(), 0..6_u8).prop_map(|(which, answer)| Act::Complete { which, answer }),
        2 => (which.clone(), 0..20_u64).prop_map(|(which, ms)| Act::Sleep { which, ms }),
        2 => (which.clone(), 0..20_u64).prop_map(|(which, ms)| Act::Wake { which, ms }),
        2 => which.prop_map(|which| Act::Cancel { which }),
        2 => Just(Act::BeginTick),
        6 => Just(Act::Step),
        3 => Just(Act::Tick),
        2 => (0..20_u64).prop_map(|ms| Act::Advance { ms }),
    ]
}

fn line(code: u8) -> ScriptLine<i64> {
    match code {
        0 | 1 => ask(1),
        2 => tell(2),
        3 => ScriptLine::DoneWithReply,
        4 => ScriptLine::Fail("scripted".into()),
        _ => ScriptLine::Request { op: 9, args: vec![] },
    }
}

fn answer(code: u8) -> Answer<i64> {
    match code {
        0 | 1 => Answer::Resume(1),
        2 => Answer::Tail(2),
        3 => Answer::End(3),
        4 => Answer::Failed(HandlerError::new("rejected")),
        _ => Answer::Unhandled,
    }
}

struct Play {
    harness: Harness,
    started: Vec<RunId>,
    refused: usize,
}

/// Plays the acts. The handler answers tail operations and every third call at once; the acts answer the others.
fn play(acts: &[Act], seed: Option<u64>) -> Play {
    let limits = RunsLimits {
        max_internal_steps_per_tick: 3,
        runs_max: 5,
        external_max: 3,
        timers_max: 6,
        ..RunsLimits::default()
    };
    let mut asked = 0_u32;
    let mut harness = Harness::with(limits.clone(), move |_, op, _| {
        asked += 1;
        match op {
            harness::TELL => Reply::Now(Answer::Tail(0)),
            _ if asked.is_multiple_of(3) => Reply::Now(Answer::Resume(0)),
            _ => Reply::Later,
        }
    });
    if let Some(seed) = seed {
        harness.runs = millrace_runs::Runs::new(limits).shuffled(seed);
    }
    let mut play = Play { harness, started: Vec::new(), refused: 0 };
    let mut calls = Vec::new();
    for act in acts {
        play.act(act, &calls);
        for call in &play.harness.open {
            if !calls.contains(call) {
                calls.push(*call);
            }
        }
        play.harness.check();
    }
    play
}

impl Play {
    fn act(&mut self, act: &Act, calls: &[millrace_runs::CallId]) {
        let now = self.harness.now;
        let call = |which: usize| calls.get(which % calls.len().max(1)).copied();
        match act {
            Act::Start { lines, deadline_ms } => {
                let lines = lines.iter().copied().map(line).chain([ScriptLine::Done(0)]).collect();
                match self.harness.try_start(lines, deadline_ms.map(|ms| now + ms)) {
                    Ok(run) => self.started.push(run),
                    Err(_) => self.refused += 1,
                }
            }
            Act::Complete { which, answer: code } => {
                if let Some(call) = call(*which) {
                    self.input(Input::Completed { call, answer: answer(*code) });
                }
            }
            Act::Sleep { which, ms } => {
                if let Some(call) = call(*which) {
                    self.input(Input::AnswerAt { call, at: now + *ms, answer: Answer::Resume(0) });
                }
            }
            Act::Wake { which, ms } => {
                if let Some(call) = call(*which) {
                    self.input(Input::WakeAt { call, at: now + *ms, token: 0 });
                }
            }
            Act::Cancel { which } => {
                if let Some(run) = self.started.get(which % self.started.len().max(1)).copied() {
                    self.harness.cancel(run);
                }
            }
            Act::BeginTick => self.harness.begin_tick(),
            Act::Step => {
                self.harness.step();
            }
            Act::Tick => assert!(self.harness.tick() <= 3),
            Act::Advance { ms } => self.harness.now = now + *ms,
        }
    }

    /// Like [`Harness::input`], but a limit may refuse the input.
    fn input(&mut self, input: Input<i64>) {
        let _ = self.harness.runs.handle(self.harness.now, input);
        self.harness.effects();
    }

    /// Cancels the runs that have not ended, so that every run has its outcome.
    fn end(&mut self) {
        for run in self.harness.runs.active().collect::<Vec<_>>() {
            assert!(self.harness.cancel(run));
        }
        self.harness.settle();
    }
}

/// The events of each guest, one letter per event.
fn lives(events: &[GuestEvent<i64>]) -> BTreeMap<u64, String> {
    let mut lives: BTreeMap<u64, String> = BTreeMap::new();
    for event in events {
        let (name, letter) = match event {
            GuestEvent::Started { name } => (name, 's'),
            GuestEvent::Resumed { name, .. } => (name, 'r'),
            GuestEvent::Released { name } => (name, 'x'),
        };
        lives.entry(*name).or_default().push(letter);
    }
    lives
}

/// Checks that no effect of a run follows its outcome.
fn check_trace(trace: &[String]) {
    let mut ended: Vec<&str> = Vec::new();
    for line in trace {
        let words: Vec<&str> = line.split([' ', ':']).collect();
        assert!(!ended.contains(&words[1]), "{line} after the outcome");
        if words[0] == "outcome" {
            ended.push(words[1]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_interleaving_keeps_the_rules(
        acts in prop::collection::vec(act(), 0..120),
        seed in prop::option::of(any::<u64>()),
    ) {
        let mut play = play(&acts, seed);
        play.end();
        let harness = &play.harness;
        for run in &play.started {
            prop_assert!(harness.outcome(*run).is_some(), "{run} has no outcome");
        }
        prop_assert_eq!(harness.outcomes.len(), play.started.len());
        for (name, life) in lives(harness.log.events()) {
            let steps = life.trim_end_matches('x');
            prop_assert_eq!(life.len() - steps.len(), 1, "guest {} was released once: {}", name, life);
            prop_assert!(!steps.trim_start_matches('s').contains('s'), "guest {}: {}", name, life);
            prop_assert!(!steps.starts_with('r') && !steps.contains('x'), "guest {}: {}", name, life);
        }
        prop_assert_eq!(harness.log.released as usize, play.started.len() + play.refused);
        check_trace(&harness.trace);
        let gauges = harness.runs.gauges();
        prop_assert_eq!((gauges.runs, gauges.ready, gauges.external, gauges.timers), (0, 0, 0, 0));
    }

    #[test]
    fn the_same_inputs_and_seed_give_the_same_trace(
        acts in prop::collection::vec(act(), 0..120),
        seed in prop::option::of(any::<u64>()),
    ) {
        prop_assert_eq!(play(&acts, seed).harness.trace, play(&acts, seed).harness.trace);
    }
}

#[test]
fn a_clock_at_its_end_overflows_nothing() {
    let mut harness = Harness::new(|_, _, _| Reply::After(u64::MAX, Answer::Resume(0)));
    harness.now = Mono(u64::MAX);
    harness.start(vec![ask(1), ScriptLine::Done(1)]);
    harness.run_virtual();
    assert_eq!(harness.outcomes.len(), 1);
}
