//! Kills processes that a child has started and left in a session of their own, which killing its process group does
//! not reach.
//!
//! Every child gets a mark in its environment, and every process that it starts inherits the mark. When the child has
//! ended, processes that carry its mark are killed. A process that has removed the mark from its environment, or runs
//! as another user, is not found. On other systems than Linux nothing is searched.
//!
//! Rejected: making the child a subreaper (`PR_SET_CHILD_SUBREAPER`). Processes it leaves behind would become its own
//! children, and a program that does not expect that never collects them: thousands of zombies. A cgroup needs rights
//! that a server seldom has.

use std::sync::atomic::{AtomicU64, Ordering};

/// The name of the mark in the environment. The name does not begin with `MILLRACE_`, because those variables are
/// settings.
pub(crate) const MARK: &str = "CHILD_OF_MILLRACE";

/// A mark that no other child has, of this server or of another one.
pub(crate) fn new_mark() -> String {
    static CHILDREN: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    let start = START.get_or_init(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos()));
    format!("{}-{start}-{}", std::process::id(), CHILDREN.fetch_add(1, Ordering::Relaxed))
}

#[cfg(target_os = "linux")]
pub(crate) fn end_all(mark: &str) {
    use rustix::process::{Pid, Signal, kill_process};

    /// Processes that are found may start others meanwhile; the next round finds those.
    const ROUNDS_MAX: usize = 16;

    let wanted = format!("{MARK}={mark}");
    for _ in 0..ROUNDS_MAX {
        let mut found = false;
        for pid in processes() {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let is_marked = environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
            if is_marked && let Some(pid) = Pid::from_raw(pid) {
                found = true;
                // An error means that the process has just ended: fine.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if !found {
            return;
        }
    }
}

/// The numbers of all processes. A zombie is among them, but its environment reads as empty.
#[cfg(target_os = "linux")]
fn processes() -> Vec<i32> {
    let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
    folder.filter_map(Result::ok).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn end_all(_: &str) {}
