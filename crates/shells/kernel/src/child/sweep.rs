//! Ends what a child has started and left in a session of its own, which its process group does not reach.
//!
//! Every child gets a mark in its environment, and whoever it starts inherits it. When the child has ended, processes that
//! carry its mark are killed. A process that has removed the mark from its environment, or runs as another user, is not
//! found. Elsewhere than on Linux nothing is looked for.
//!
//! Rejected: to make the child a subreaper (`PR_SET_CHILD_SUBREAPER`). Whatever it leaves behind would become its own
//! child, and a program that does not expect that never collects them: thousands of zombies. A cgroup needs rights that a
//! server seldom has.

use std::sync::atomic::{AtomicU64, Ordering};

/// The name of the mark in the environment. Not one of `MILLRACE_...`, which are settings.
pub(super) const MARK: &str = "CHILD_OF_MILLRACE";

/// One that no other child has, of this server or of another one.
pub(super) fn new_mark() -> String {
    static CHILDREN: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    let start = START.get_or_init(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos()));
    format!("{}-{start}-{}", std::process::id(), CHILDREN.fetch_add(1, Ordering::Relaxed))
}

#[cfg(target_os = "linux")]
pub(super) fn end_all(mark: &str) {
    use rustix::process::{Pid, Signal, kill_process};

    /// Those that are found may start others meanwhile, which are found in the next round.
    const ROUNDS_MAX: usize = 16;

    let wanted = format!("{MARK}={mark}");
    for _ in 0..ROUNDS_MAX {
        let mut found = false;
        for pid in processes() {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let is_marked = environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
            if is_marked && let Some(pid) = Pid::from_raw(pid) {
                found = true;
                // It may have ended this moment: fine.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if !found {
            return;
        }
    }
}

/// One that is dead and was not collected has no environment.
#[cfg(target_os = "linux")]
fn processes() -> Vec<i32> {
    let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
    folder.filter_map(Result::ok).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn end_all(_: &str) {}
