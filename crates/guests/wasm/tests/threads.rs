//! A host used from many threads at once.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::thread;

use millrace_wasm::{Clock, Generation};

use support::{Fixture, doubling, on, on_async, run, sum_module, tail, value};

#[test]
fn runs_started_and_cancelled_by_many_threads_each_have_one_outcome() {
    let fixture = Fixture::new(Clock::Real);
    let instances = [Generation::A, Generation::B].map(|generation| {
        fixture.instance(&sum_module(generation, 4), |handlers| {
            on_async(handlers, "bump", |call| async move {
                call.sleep_ms(call.run().serial() % 3).await?;
                Ok(call.answer(1))
            });
            on(handlers, "tick", |_| tail(1));
        })
    });
    let starter = |index: usize| {
        let instance = instances[index % 2].clone();
        thread::spawn(move || {
            let runs: Vec<_> = (0..25).map(|_| instance.start("main", vec![]).unwrap()).collect();
            let cancelled: Vec<bool> = runs.iter().skip(20).map(|run| run.cancel(None)).collect();
            let kinds: Vec<&str> = runs.iter().map(|run| run.wait().kind()).collect();
            let expected = |accepted: &bool| if *accepted { "cancelled" } else { "value" };
            assert!(kinds[..20].iter().all(|kind| *kind == "value"), "{kinds:?}");
            assert_eq!(kinds[20..], cancelled.iter().map(expected).collect::<Vec<_>>());
            runs.iter().map(|run| run.id()).collect::<Vec<_>>()
        })
    };
    let threads: Vec<_> = (0..6).map(starter).collect();
    let numbers: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let distinct: BTreeSet<u64> = numbers.iter().map(|number| number.0).collect();
    assert_eq!(distinct, (1..=150).collect());
    assert!(fixture.errors.lines().is_empty());
}

#[test]
fn a_handler_may_start_further_runs() {
    let fixture = Fixture::virtual_time();
    let inner = fixture.instance(&sum_module(Generation::A, 3), doubling);
    let outer = fixture.instance(&sum_module(Generation::A, 1), move |handlers| {
        on_async(handlers, "bump", move |call| {
            let started = inner.start("main", vec![]).unwrap();
            async move { Ok(call.answer(value(started.outcome().await) + 100)) }
        });
    });
    assert_eq!(value(run(&outer)), 106);
}
