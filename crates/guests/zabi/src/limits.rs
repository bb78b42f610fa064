//! Every bound of a guest process, with its default and what happens when it is reached.

use millrace_reactor::zcl1::FRAME_BYTES_MAX;
use millrace_reactor::{HandleLimits, LoopLimits};

use crate::aio::AioLimits;
use crate::bus::BusHandleLimits;
use crate::http::HttpLimits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Handles open at once: `zi_cap_open` returns -8; a listener accepts no further connection and returns -8.
    pub handles: HandleLimits,
    /// Loops open at once: `zi_cap_open` returns -8. Each loop takes up to three descriptors, and each read or write of
    /// a handle updates every loop.
    pub loops_max: usize,
    /// Bounds of each loop.
    pub sys_loop: LoopLimits,
    /// Bytes that the host keeps for the guest, over all handles: unread events and completions, requests that wait for
    /// a worker, topics of subscriptions. Each handle responds as if its own bound was reached.
    pub queued_bytes_max: usize,
    /// Events that one call of the operating system's poller returns. More ready handles take more calls, in the same
    /// POLL.
    pub os_events_max: usize,
    /// Blocks that `zi_alloc` has given out: `zi_alloc` returns 0.
    pub allocations_max: usize,
    /// Bytes of one read, or of one write to a standard stream: the call returns this number, and the guest goes on.
    pub transfer_bytes_max: u32,
    /// Bytes of topic and message of `zi_telemetry`: longer texts are cut.
    pub telemetry_bytes_max: u32,
    /// Bytes of a capability's kind, name or parameters in `zi_cap_open`: -2.
    pub open_field_bytes_max: u32,
    /// Sockets of `net/tcp` open at once, listeners included: `zi_cap_open` returns -8; a listener accepts no further
    /// connection and returns -8.
    pub sockets_max: usize,
    /// Longest backlog that a listener gets, whatever it asks for.
    pub tcp_backlog_max: u32,
    /// Addresses of one name that a connection tries: the others are ignored.
    pub tcp_addresses_max: usize,
    /// Worker threads of `file/aio`: further handles wait for their turn.
    pub aio_threads_max: usize,
    /// Requests of one handle that wait for a worker: the acknowledgement is the error `queue full`.
    pub aio_jobs_max: usize,
    /// Files that one handle has open: the completion is the error `too many open files`.
    pub aio_files_max: usize,
    /// Bytes that waiting requests of one handle are to write: `queue full`.
    pub aio_data_bytes_max: usize,
    /// Bytes of unread completions, including those of accepted requests: `queue full`. Acknowledgements have room of
    /// their own; without it `zi_write` returns -6.
    pub aio_output_bytes_max: usize,
    /// Bytes of a path: the acknowledgement is the error `path out of bounds`.
    pub aio_path_bytes_max: u32,
    /// Subscriptions of one handle of `event/bus`: an error frame.
    pub bus_subscriptions_max: usize,
    /// Bytes of unread events on one handle of `event/bus`. On a bus inside the program this subscriber loses further
    /// events, and the publisher's count does not include it; a server keeps further events until there is room.
    pub bus_output_bytes_max: usize,
    /// How long a request waits for a bus outside the program: an error frame; whether it was executed is not known.
    pub bus_wait_ms_max: u64,
    /// Open futures of one handle of `async/default`: code 3.
    pub futures_max: usize,
    /// Listeners of one handle of `net/http`: an error frame.
    pub http_listeners_max: usize,
    /// Connections of `net/http`, over all handles: further ones wait in the backlog of the operating system.
    pub http_connections_max: usize,
    /// Requests that wait for the guest's response: the host responds with 503.
    pub http_requests_max: usize,
    /// Bytes of the body of RESPOND_INLINE: `zi_write` returns -2. A request's body is sent inline if its event fits a
    /// frame, and no more than this; a longer one is a stream. Times the connections, this bounds the memory that
    /// bodies take.
    pub http_body_bytes_max: usize,
    /// Bytes of requests that the guest has not read: the host responds with 503.
    pub http_output_bytes_max: usize,
    /// Parts of a body that is a stream, each of at most 64 KiB or so, that wait for the client or the guest:
    /// `zi_write` returns -6; the client is not read from.
    pub http_body_chunks_max: usize,
}

impl Limits {
    pub(crate) fn aio(&self) -> AioLimits {
        AioLimits {
            jobs_max: self.aio_jobs_max,
            files_max: self.aio_files_max,
            data_bytes_max: self.aio_data_bytes_max,
            output_bytes_max: self.aio_output_bytes_max,
            path_bytes_max: self.aio_path_bytes_max,
        }
    }

    pub(crate) fn http(&self) -> HttpLimits {
        HttpLimits {
            listeners_max: self.http_listeners_max,
            requests_max: self.http_requests_max,
            body_bytes_max: self.http_body_bytes_max,
            output_bytes_max: self.http_output_bytes_max,
            body_chunks_max: self.http_body_chunks_max,
        }
    }

    pub(crate) fn bus(&self) -> BusHandleLimits {
        BusHandleLimits {
            subscriptions_max: self.bus_subscriptions_max,
            // The longest event fits into an empty queue.
            output_bytes_max: self.bus_output_bytes_max.max(FRAME_BYTES_MAX),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            handles: HandleLimits { handles_max: 1 << 16, ..HandleLimits::default() },
            loops_max: 16,
            sys_loop: LoopLimits::default(),
            queued_bytes_max: 64 << 20,
            os_events_max: 1024,
            allocations_max: 1 << 20,
            transfer_bytes_max: 1 << 20,
            telemetry_bytes_max: 4096,
            open_field_bytes_max: 4096,
            sockets_max: 1 << 16,
            tcp_backlog_max: 65_535,
            tcp_addresses_max: 16,
            aio_threads_max: 2,
            aio_jobs_max: 128,
            aio_files_max: 256,
            aio_data_bytes_max: 16 << 20,
            aio_output_bytes_max: 8 << 20,
            aio_path_bytes_max: 4096,
            bus_subscriptions_max: 1024,
            bus_output_bytes_max: 1 << 20,
            bus_wait_ms_max: 5000,
            futures_max: 64,
            http_listeners_max: 16,
            http_connections_max: 1024,
            http_requests_max: 256,
            http_body_bytes_max: 1 << 20,
            http_output_bytes_max: 8 << 20,
            http_body_chunks_max: 8,
        }
    }
}
