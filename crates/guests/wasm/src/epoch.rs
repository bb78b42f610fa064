//! The thread that stops steps which take too long: it increments the engine's epoch, and compiled code checks the
//! epoch as it loops.

use std::io;
use std::thread;
use std::time::Duration;

/// The precision of `step_wall_ms_max`.
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

/// The number of epochs after which this many milliseconds have passed: one more, because the current epoch has begun
/// already.
pub(crate) fn epochs(ms: u64) -> u64 {
    ms.div_ceil(EPOCH_MS).saturating_add(1)
}
