//! Processor time, for loads that never wait: unlike wall-clock time, it does not depend on how busy the machine is.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A stopwatch of the processor time of this process, all threads together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime(Duration);

impl CpuTime {
    pub(crate) fn start() -> CpuTime {
        CpuTime(read())
    }

    pub(crate) fn elapsed(self) -> Duration {
        read().saturating_sub(self.0)
    }
}

fn read() -> Duration {
    let read = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(read.tv_sec).unwrap_or(0), u32::try_from(read.tv_nsec).unwrap_or(0))
}
