//! The suite of stores on the real engines, reached by URL.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cases;
mod place;
mod proxy;

use cases::{Handles, all_cases};
use millrace_conformance::engines::TestEngine;
use place::Way;

macro_rules! engine_tests {
    ($module:ident, $engine:expr) => {
        mod $module {
            use super::*;

            #[test]
            fn alone() {
                all_cases($engine, Way::Direct, Handles::Alone);
            }

            #[test]
            fn in_turn() {
                all_cases($engine, Way::Direct, Handles::Twins);
            }

            #[test]
            fn alone_with_faults() {
                all_cases($engine, Way::Faulty, Handles::Alone);
            }

            #[test]
            fn in_turn_with_faults() {
                all_cases($engine, Way::Faulty, Handles::Twins);
            }

            #[test]
            fn alone_over_a_lossy_line() {
                all_cases($engine, Way::Lossy, Handles::Alone);
            }

            #[test]
            fn in_turn_over_a_lossy_line() {
                all_cases($engine, Way::Lossy, Handles::Twins);
            }
        }
    };
}

engine_tests!(postgres, TestEngine::Postgres);
engine_tests!(seaweed, TestEngine::Seaweed);
engine_tests!(moto, TestEngine::Moto);
engine_tests!(mongo, TestEngine::Mongo);
