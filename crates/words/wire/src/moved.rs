//! Names that a server which does not lead its store uses to send clients to the leader. The refusal itself is
//! [`FrameError::moved`](crate::FrameError::moved).

/// The close code of a WebSocket whose server does not lead, or leads no longer (RFC 6455 registry: service restart).
pub const MOVED_CLOSE_CODE: u16 = 1012;

/// The HTTP header with the leader's URL, beside the problem's member `leader`. Absent when no server leads.
pub const LEADER_HEADER: &str = "x-millrace-leader";

/// A close frame has room for a reason of this many bytes.
const CLOSE_REASON_BYTES_MAX: usize = 123;

/// Returns the reason of a close with [`MOVED_CLOSE_CODE`]: the leader's URL if it fits, else nothing.
pub fn moved_close_reason(leader: Option<&str>) -> &str {
    leader.filter(|leader| leader.len() <= CLOSE_REASON_BYTES_MAX).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_reason_is_the_leader_if_it_fits() {
        let url = |bytes: usize| format!("ws://{}/", "a".repeat(bytes - 6));
        assert_eq!(moved_close_reason(Some(&url(123))), url(123));
        assert_eq!(moved_close_reason(Some(&url(124))), "");
        assert_eq!(moved_close_reason(None), "");
    }
}
