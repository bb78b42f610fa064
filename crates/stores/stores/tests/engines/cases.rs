//! The cases of the conformance suite and random histories, each as a job for `jobs.rs`.

use millrace_conformance::engines::TestEngine;
use millrace_conformance::{
    CASES, check_against_memory, check_claims_against_memory, run_case, steps_from_seed,
};

use crate::jobs::{Handles, Job, Mode, run};
use crate::place::Way;
use crate::rounds::{rounds, seed};

/// The driver of MongoDB waits half a second after each cut, so that the ordinary run has one such case in so many.
const MONGO_LOSSY_EVERY: usize = 16;
/// moto takes milliseconds for a request and does one at a time, so that the ordinary run has one case in so many.
const MOTO_EVERY: usize = 3;
/// Each step is several requests.
const HISTORY_STEPS: usize = 60;

/// Runs every case of the suite in one mode.
pub(crate) fn all_cases(engine: TestEngine, mode: Mode) {
    let cases: Vec<Job> = (0..CASES.len()).map(|at| case(at, mode)).collect();
    run(engine, &cases);
}

/// Runs the cases of the suite once, each in another mode than the one before. The seed decides which is first.
pub(crate) fn dealt_cases(engine: TestEngine) {
    let is_dealt = |mode: &Mode| engine != TestEngine::Mongo || mode.way != Way::Lossy;
    let modes: Vec<Mode> = Mode::ALL.into_iter().filter(is_dealt).collect();
    let first = seed() as usize % Mode::ALL.len();
    let dealt = |(turn, at): (usize, usize)| {
        let mode = modes[(first + turn) % modes.len()];
        let is_lossy = engine == TestEngine::Mongo && (first + turn).is_multiple_of(MONGO_LOSSY_EVERY);
        case(at, if is_lossy { Mode { way: Way::Lossy, ..mode } } else { mode })
    };
    let every = if engine == TestEngine::Moto { MOTO_EVERY } else { 1 };
    let chosen = (0..CASES.len()).skip(first % every).step_by(every);
    let cases: Vec<Job> = chosen.enumerate().map(dealt).collect();
    run(engine, &cases);
}

/// Runs every case in every mode, and random histories in each. Only if rounds are asked for.
pub(crate) fn everything(engine: TestEngine) {
    let Some(rounds) = rounds() else {
        println!("skipped: TEST_ENGINE_ROUNDS is not set: each case ran once");
        return;
    };
    for mode in Mode::ALL {
        all_cases(engine, mode);
    }
    for mode in Mode::ALL {
        let seeds = (0..rounds).map(|round| seed() + round);
        let histories: Vec<Job> = seeds
            .flat_map(|seed| [history(seed, HISTORY_STEPS, mode), claims(seed, HISTORY_STEPS, mode)])
            .collect();
        run(engine, &histories);
    }
}

/// Runs a random history of twins and one of their claims, in one of the ways.
pub(crate) fn histories(engine: TestEngine) {
    let ways = if engine == TestEngine::Mongo { &Way::ALL[..2] } else { &Way::ALL[..] };
    let mode =
        |at: u64| Mode { way: ways[((seed() + at) % ways.len() as u64) as usize], handles: Handles::Twins };
    let steps = if engine == TestEngine::Moto { HISTORY_STEPS / MOTO_EVERY } else { HISTORY_STEPS };
    run(engine, &[history(seed(), steps, mode(0)), claims(seed(), steps, mode(1))]);
}

fn case(at: usize, mode: Mode) -> Job {
    let name = CASES[at].0;
    let seed = seed().wrapping_add(at as u64);
    Job { name: name.to_owned(), mode, seed, work: Box::new(move |subject| run_case(name, subject)) }
}

fn history(seed: u64, steps: usize, mode: Mode) -> Job {
    let work = Box::new(move |subject: &mut _| {
        check_against_memory(subject, &steps_from_seed(seed, steps));
    });
    Job { name: format!("history {seed}"), mode, seed, work }
}

fn claims(seed: u64, steps: usize, mode: Mode) -> Job {
    let work = Box::new(move |subject: &mut _| check_claims_against_memory(subject, seed, steps));
    Job { name: format!("claims {seed}"), mode, seed, work }
}
