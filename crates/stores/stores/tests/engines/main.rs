//! The suite of stores on the real engines, reached by URL: with one handle and with two in turn, directly, over a
//! journal that loses and repeats requests, and over a line that cuts connections.
//!
//! The ordinary run has each case once on each engine, the modes in turn (on moto a third of the cases). All cases in
//! all modes, with 10 random histories in each: `TEST_ENGINE_ROUNDS=10 cargo xtask test every_case_in_every_mode`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cases;
mod jobs;
mod place;
mod proxy;
mod rounds;

use cases::{all_cases, dealt_cases, everything, histories};
use jobs::{Handles, Mode};
use millrace_conformance::engines::TestEngine;
use place::Way;

macro_rules! engine_tests {
    ($module:ident, $engine:expr) => {
        mod $module {
            use super::*;

            #[test]
            fn every_case_in_some_mode() {
                dealt_cases($engine);
            }

            #[test]
            fn histories_of_twins_match_the_memory_store() {
                histories($engine);
            }

            #[test]
            fn every_case_in_every_mode() {
                everything($engine);
            }
        }
    };
}

engine_tests!(postgres, TestEngine::Postgres);
engine_tests!(seaweed, TestEngine::Seaweed);
engine_tests!(moto, TestEngine::Moto);
engine_tests!(mongo, TestEngine::Mongo);

/// PostgreSQL is fast enough for all cases at every run.
mod postgres_directly {
    use super::*;

    #[test]
    fn every_case_alone() {
        all_cases(TestEngine::Postgres, Mode { way: Way::Direct, handles: Handles::Alone });
    }

    #[test]
    fn every_case_in_turn() {
        all_cases(TestEngine::Postgres, Mode { way: Way::Direct, handles: Handles::Twins });
    }
}
