//! Returns memory to the system after many connections (a "crowd") have closed.
//!
//! glibc keeps freed memory that lies between blocks still in use: a server that once had 5,000 connections kept all of
//! their memory for ever (decision 0039). Other allocators were measured and need more memory from the start; glibc
//! only needs a call of `malloc_trim`.

use std::time::Duration;

const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// So many connections must have closed before trimming is worth its cost, some milliseconds per 100 MiB.
const CROWD_MIN: usize = 64;

/// Checks the number of connections periodically and trims memory after many have closed. Never returns.
pub(super) async fn give_back_after_crowds(connections: impl Fn() -> usize) {
    let mut crowd = Crowd::default();
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        looks.tick().await;
        if crowd.has_left(connections()) {
            // On a blocking thread, because trimming takes the allocator's locks one after another.
            let _ = tokio::task::spawn_blocking(give_back).await;
        }
    }
}

/// The most connections there have been since memory was last returned.
#[derive(Debug, Default)]
struct Crowd {
    most: usize,
}

impl Crowd {
    /// Returns whether so many connections have closed that their memory is worth returning.
    fn has_left(&mut self, connections: usize) -> bool {
        self.most = self.most.max(connections);
        let left = self.most - connections >= CROWD_MIN && connections <= self.most / 2;
        if left {
            self.most = connections;
        }
        left
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn give_back() {
    // SAFETY: `malloc_trim` takes no pointer and may be called from any thread at any time.
    let released = unsafe { libc::malloc_trim(0) };
    tracing::debug!(released = released == 1, "memory of connections that have left is given back");
}

/// Other allocators return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_at_least_half_of_a_crowd_has_left() {
        let mut crowd = Crowd::default();
        let mut asked = |connections: &[usize]| -> Vec<bool> {
            connections.iter().map(|count| crowd.has_left(*count)).collect()
        };
        assert_eq!(asked(&[0, 10, 0]), [false; 3], "a few are no crowd");
        assert_eq!(asked(&[1000, 5000, 4000, 2501]), [false; 4]);
        assert_eq!(asked(&[2500, 2400, 1300, 1250, 0]), [true, false, false, true, true]);
        assert_eq!(asked(&[0, 100, 36]), [false, false, true], "and again after the next crowd");
    }
}
