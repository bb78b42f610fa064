//! Random sequences of requests and changes of readiness, against a model that is too simple to be wrong.
#![allow(clippy::unwrap_used)]

mod harness;

use std::collections::BTreeMap;

use harness::{Answer, Harness, failed};
use millrace_reactor::{FirstDue, LoopLimits, MonoNs, PollEvent, PollReply, Readiness};
use proptest::prelude::*;

const WATCHES_MAX: usize = 6;
const TIMERS_MAX: usize = 5;
/// Handles 4 to 6 are polled, 7 to 9 compute their readiness.
const HANDLES: std::ops::Range<u32> = 4..10;

#[derive(Clone, Debug)]
enum Action {
    Watch { id: u64, handle: u32, interest: u32 },
    Unwatch { id: u64 },
    Arm { id: u64, delay_ns: u64, interval_ns: u64 },
    Cancel { id: u64 },
    Poll { max_events: u32 },
    SetState { handle: u32, state: u32 },
    End { handle: u32 },
    Advance { ns: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    let handle = || 3_u32..11;
    prop_oneof![
        3 => (1_u64..9, handle(), 1_u32..16)
            .prop_map(|(id, handle, interest)| Action::Watch { id, handle, interest }),
        1 => (1_u64..9).prop_map(|id| Action::Unwatch { id }),
        2 => (1_u64..8, 0_u64..50, prop_oneof![Just(0), 1_u64..40])
            .prop_map(|(id, delay_ns, interval_ns)| Action::Arm { id, delay_ns, interval_ns }),
        1 => (1_u64..8).prop_map(|id| Action::Cancel { id }),
        4 => prop_oneof![1_u32..4, Just(64)].prop_map(|max_events| Action::Poll { max_events }),
        3 => (HANDLES, 0_u32..16).prop_map(|(handle, state)| Action::SetState { handle, state }),
        1 => HANDLES.prop_map(|handle| Action::End { handle }),
        2 => (0_u64..60).prop_map(|ns| Action::Advance { ns }),
    ]
}

/// The model keeps everything in plain lists; a POLL looks at all of them.
#[derive(Default)]
struct Model {
    watches: Vec<ModelWatch>,
    /// In the order in which the timers were last armed.
    timers: Vec<ModelTimer>,
    states: BTreeMap<u32, Readiness>,
    now: u64,
}

struct ModelWatch {
    id: u64,
    handle: u32,
    interest: Readiness,
    is_dead: bool,
    /// How many POLLs could have reported this watch since it became ready, and did not.
    passed_over: usize,
}

#[derive(Clone, Copy)]
struct ModelTimer {
    id: u64,
    due: u64,
    interval_ns: u64,
}

impl Model {
    fn watch(&mut self, id: u64, handle: u32, interest: Readiness) -> Answer {
        let in_use = self.watches.iter().any(|watch| watch.id == id);
        if in_use || self.watches.len() == WATCHES_MAX || !self.states.contains_key(&handle) {
            return failed("watch failed");
        }
        self.watches.push(ModelWatch { id, handle, interest, is_dead: false, passed_over: 0 });
        Ok(())
    }

    fn unwatch(&mut self, id: u64) -> Answer {
        let index = self.watches.iter().position(|watch| watch.id == id);
        index.map(|index| self.watches.remove(index)).map(|_| ()).ok_or_else(|| "unknown watch_id".to_owned())
    }

    fn arm(&mut self, id: u64, delay_ns: u64, interval_ns: u64) -> Answer {
        let index = self.timers.iter().position(|timer| timer.id == id);
        if index.is_none() && self.timers.len() == TIMERS_MAX {
            return failed("timer arm failed");
        }
        index.map(|index| self.timers.remove(index));
        self.timers.push(ModelTimer { id, due: self.now + delay_ns, interval_ns });
        Ok(())
    }

    fn cancel(&mut self, id: u64) -> Answer {
        let index = self.timers.iter().position(|timer| timer.id == id);
        index.map(|index| self.timers.remove(index)).map(|_| ()).ok_or_else(|| "unknown timer_id".to_owned())
    }

    fn end(&mut self, handle: u32) {
        self.states.remove(&handle);
        self.watches.iter_mut().filter(|watch| watch.handle == handle).for_each(|watch| watch.is_dead = true);
    }

    fn report(&self, watch: &ModelWatch) -> Readiness {
        let state = self.states.get(&watch.handle).copied().unwrap_or_default();
        if watch.is_dead { Readiness::NONE } else { state.reported_to(watch.interest) }
    }

    /// Checks a reply of POLL, and removes or re-arms the timers it reports.
    fn check_poll(&mut self, max_events: usize, reply: &PollReply) {
        let expected_ready: BTreeMap<u64, (u32, Readiness)> = self
            .watches
            .iter()
            .map(|watch| (watch.id, (watch.handle, self.report(watch))))
            .filter(|(_, (_, report))| !report.is_empty())
            .collect();
        let mut due: Vec<ModelTimer> =
            self.timers.iter().copied().filter(|timer| timer.due <= self.now).collect();
        due.sort_by_key(|timer| timer.due);
        let pending = expected_ready.len() + due.len();
        assert_eq!(reply.events.len(), pending.min(max_events), "as many as there are and fit");
        assert_eq!(reply.more, pending > max_events);

        let mut reported = BTreeMap::new();
        let mut fired = Vec::new();
        for event in &reply.events {
            match *event {
                PollEvent::Ready { watch_id, handle, readiness } => {
                    assert!(fired.is_empty(), "READY before TIMER");
                    let twice = reported.insert(watch_id.0.get(), (handle, readiness));
                    assert_eq!(twice, None, "once per POLL");
                    assert_eq!(expected_ready.get(&watch_id.0.get()), Some(&(handle, readiness)));
                }
                PollEvent::Timer { timer_id, at } => {
                    assert_eq!(at, MonoNs(self.now));
                    fired.push(timer_id.0.get());
                }
            }
        }
        let earliest: Vec<u64> = due.iter().map(|timer| timer.id).take(fired.len()).collect();
        assert_eq!(fired, earliest, "the timers that have been due for longest");
        if max_events > 1 && !due.is_empty() {
            assert!(!fired.is_empty(), "room is reserved for timers");
        }
        self.fire(&fired);
        self.count_passed_over(&expected_ready, &reported);
    }

    fn fire(&mut self, fired: &[u64]) {
        for id in fired {
            let index = self.timers.iter().position(|timer| timer.id == *id).unwrap();
            let mut timer = self.timers.remove(index);
            if timer.interval_ns > 0 {
                while timer.due <= self.now {
                    timer.due += timer.interval_ns;
                }
                self.timers.push(timer);
            }
        }
    }

    fn count_passed_over(
        &mut self,
        expected: &BTreeMap<u64, (u32, Readiness)>,
        reported: &BTreeMap<u64, (u32, Readiness)>,
    ) {
        for watch in &mut self.watches {
            let is_waiting = expected.contains_key(&watch.id) && !reported.contains_key(&watch.id);
            watch.passed_over = if is_waiting { watch.passed_over + 1 } else { 0 };
            assert!(watch.passed_over < 2 * WATCHES_MAX, "watch {} starves", watch.id);
        }
    }
}

fn run(actions: &[Action]) {
    let limits = LoopLimits { watches_max: WATCHES_MAX, timers_max: TIMERS_MAX, ..LoopLimits::default() };
    let mut harness = Harness::with(limits);
    let mut model = Model { now: harness.now.0, ..Model::default() };
    for handle in HANDLES {
        match handle {
            4..=6 => harness.polled(handle, Readiness::NONE),
            _ => harness.computed(handle, Readiness::NONE),
        }
        model.states.insert(handle, Readiness::NONE);
    }
    for action in actions {
        match *action {
            Action::Watch { id, handle, interest } => {
                let interest = Readiness::from_bits(interest).unwrap();
                assert_eq!(harness.watch(id, handle, interest), model.watch(id, handle, interest));
            }
            Action::Unwatch { id } => assert_eq!(harness.unwatch(id), model.unwatch(id)),
            Action::Arm { id, delay_ns, interval_ns } => assert_eq!(
                harness.arm(id, FirstDue::After(delay_ns), interval_ns),
                model.arm(id, delay_ns, interval_ns)
            ),
            Action::Cancel { id } => assert_eq!(harness.cancel(id), model.cancel(id)),
            Action::Poll { max_events } => {
                let reply = harness.poll(max_events);
                model.check_poll(max_events as usize, &reply);
            }
            Action::SetState { handle, state } => {
                let state = Readiness::from_bits(state).unwrap();
                if model.states.contains_key(&handle) {
                    harness.set(handle, state);
                    model.states.insert(handle, state);
                }
            }
            Action::End { handle } => {
                harness.end(handle);
                model.end(handle);
            }
            Action::Advance { ns } => {
                harness.advance_ns(ns);
                model.now += ns;
            }
        }
        harness.sys_loop.check_invariants().unwrap();
        assert_eq!(harness.sys_loop.gauges().timers, model.timers.len());
        assert_eq!(harness.sys_loop.gauges().watches, model.watches.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_loop_does_what_the_model_does(actions in proptest::collection::vec(action(), 1..120)) {
        run(&actions);
    }
}
