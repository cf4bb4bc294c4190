//! Limits and timeouts of the listener, each with its reason.

use highwater_base::limits;

/// Limits and timeouts of one listener.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Bytes of one request's body.
    pub request_bytes_max: u64,
    /// Bytes of the read answers that all connections hold together until their readers took them. Thirty-two of the
    /// largest answers.
    pub answer_bytes_held_max: u64,
    /// Milliseconds that a read waits for room among those answers before it is refused.
    pub answer_room_wait_ms_max: u64,
    /// Readers by events at once. One that waits costs about a kilobyte here, and a connection. Metric:
    /// `highwater_event_readers`.
    pub event_readers_max: usize,
    /// Connections served at once; more wait in the kernel's queue. A quiet one takes about 10 KiB.
    pub connections_max: usize,
    /// Connections from one address, or one IPv6 network of 64 bits; more are closed at once. A proxy's address and this
    /// machine's own are not counted.
    pub connections_per_address_max: usize,
    /// Connections of listeners without streams, which have places of their own.
    pub connections_admin_max: usize,
    /// Whether each request is a line of the log.
    pub requests_logged: bool,
    /// Milliseconds from which on a request that waits for nothing but the server is told in the log.
    pub slow_request_ms: u64,
    /// Milliseconds that a TLS handshake may take.
    pub handshake_ms_max: u64,
    /// Milliseconds between two looks at the files of certificates.
    pub tls_watch_ms: u64,
    /// Milliseconds to receive a request's head, on a new connection and between requests.
    pub head_ms_max: u64,
    /// Milliseconds without a byte of a body before the request is given up. A client of ours gives an append up
    /// after ten seconds without progress, so this is longer than any wait that can still end well.
    pub body_idle_ms_max: u64,
    /// Bytes a second that a body must come to on average after its first half minute.
    pub body_bytes_per_second_min: u64,
    /// Milliseconds without a byte of an answer taken by the reader before its connection is cut. As long may all waits
    /// for it take together that it does not make up for by reading at the floor.
    pub write_idle_ms_max: u64,
    /// Milliseconds without a byte taken by the reader of a socket before it is cut. A relay that has read as much as it
    /// may stops reading for a minute, and comes back. Source: the indigo relay, its limits by host.
    pub socket_idle_ms_max: u64,
    /// Bytes a second at which a reader must take an answer.
    pub answer_bytes_per_second_min: u64,
    /// Milliseconds that reading away the body of a refusal may take.
    pub drain_ms_max: u64,
    /// Milliseconds without a byte of such a body before the connection is closed.
    pub drain_idle_ms_max: u64,
    /// Requests of one HTTP/2 connection at once.
    pub http2_requests_max: u32,
    /// Milliseconds that requests in flight get when the server stops; a long-poll that waits longer is cut.
    pub shutdown_ms_max: u64,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            request_bytes_max: limits::REQUEST_BYTES_MAX,
            answer_bytes_held_max: 32 * limits::READ_BYTES_MAX,
            answer_room_wait_ms_max: 5_000,
            event_readers_max: 16_384,
            connections_max: 16_384,
            connections_per_address_max: 1_024,
            connections_admin_max: 64,
            requests_logged: false,
            slow_request_ms: 1_000,
            handshake_ms_max: 10_000,
            tls_watch_ms: 10_000,
            head_ms_max: 30_000,
            body_idle_ms_max: 15_000,
            body_bytes_per_second_min: 4_096,
            write_idle_ms_max: 30_000,
            socket_idle_ms_max: 120_000,
            answer_bytes_per_second_min: 8_192,
            drain_ms_max: 30_000,
            drain_idle_ms_max: 5_000,
            http2_requests_max: 64,
            shutdown_ms_max: 10_000,
        }
    }
}
