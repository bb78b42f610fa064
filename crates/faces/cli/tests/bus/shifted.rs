//! A separate wall clock for a child process: a library loaded by LD_PRELOAD adds a number of milliseconds, read from a
//! file, to the system's wall clock. The monotonic clocks are unchanged.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long shift_ms(void) {
    const char *path = getenv("SHIFTED_CLOCK_FILE");
    char text[32] = {0};
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? atoll(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && clock == CLOCK_REALTIME) {
        long long ms = shift_ms();
        long long ns = at->tv_nsec + (ms % 1000) * 1000000LL;
        at->tv_sec += ms / 1000 + (ns < 0 ? -1 : ns >= 1000000000LL ? 1 : 0);
        at->tv_nsec = (ns + 1000000000LL) % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

pub const HOUR_MS: i64 = 3_600_000;
pub const DAY_MS: i64 = 24 * HOUR_MS;

pub struct ShiftedClock {
    folder: TempDir,
}

impl ShiftedClock {
    pub fn new() -> ShiftedClock {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = ShiftedClock { folder };
        let source = clock.folder.path().join("clock.c");
        std::fs::write(&source, SOURCE).expect("a file");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(clock.library())
            .arg(&source)
            .status()
            .expect("a C compiler");
        assert!(built.success());
        clock.shift(0);
        clock
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("clock.so")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("shift")
    }

    /// Returns the environment variables that the child needs.
    pub fn env(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library()), ("SHIFTED_CLOCK_FILE", self.file())]
    }

    /// Sets the offset of the child's wall clock. The file is renamed into place, so that no read finds half a number.
    pub fn shift(&self, ms: i64) {
        let fresh: &Path = &self.folder.path().join("fresh");
        std::fs::write(fresh, ms.to_string()).expect("a file");
        std::fs::rename(fresh, self.file()).expect("a file");
    }
}
