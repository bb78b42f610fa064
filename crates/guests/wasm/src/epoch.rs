//! The thread by which steps that take too long are stopped: it counts up the engine's epoch, and compiled code looks at
//! the epoch as it loops.

use std::io;
use std::thread;
use std::time::Duration;

/// How exact `step_wall_ms_max` is.
const EPOCH_MS: u64 = 10;

/// Counts until the last user of the engine is gone.
pub(crate) fn start_ticker(engine: &wasmtime::Engine) -> io::Result<()> {
    let engine = engine.weak();
    let count = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            thread::sleep(Duration::from_millis(EPOCH_MS));
        }
    };
    thread::Builder::new().name("millrace-epoch".into()).spawn(count).map(drop)
}

/// Epochs after which this many milliseconds have passed: one more, because the current one has begun already.
pub(crate) fn epochs(ms: u64) -> u64 {
    ms.div_ceil(EPOCH_MS).saturating_add(1)
}
