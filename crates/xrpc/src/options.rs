//! Limits and timeouts of the surface, each with its reason.

use highwater_pds::names::Zone;

/// Limits and timeouts.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address at which others reach this server, without a slash at its end: what DID documents name.
    pub public_url: String,
    /// Where the operator can be written to; absent if nowhere.
    pub contact: Option<String>,
    /// Bytes of a body of JSON. Two hundred writes of a commit that fills an event: 2,000,000 bytes of which each may need six
    /// in JSON.
    pub json_bytes_max: usize,
    /// Bytes of a body of JSON with a few short fields, as of a login: names of 2,048 bytes, a password of 512, each of which may
    /// need six in JSON.
    pub fields_bytes_max: usize,
    /// Large bodies of JSON that become values at once. A record of a megabyte may take fifty as values; the others wait as they
    /// came.
    pub parsed_at_once_max: usize,
    /// Bytes of all bodies together that are being read or wait to be written, as far as they came. Five of the largest; one party gets half.
    pub bodies_bytes_max: usize,
    /// Milliseconds without a byte of a body before the request is given up.
    pub body_idle_ms_max: u64,
    /// Milliseconds that a body may take before its average rate counts.
    pub body_grace_ms: u64,
    /// Bytes a second that a body must come to on average behind them: what the slowest connections of phones carry.
    pub body_bytes_per_second_min: u64,
    /// Milliseconds for the whole of a body of JSON: the largest at about 200 kB a second.
    pub body_ms_max: u64,
    /// Reads of records and trees that go on at once, each on a thread of its own and with a few megabytes. More would take threads
    /// from logins and locks, and no disk reads faster.
    pub reads_max: usize,
    /// Milliseconds that a read waits for its turn.
    pub read_wait_ms_max: u64,
    /// Bytes of the large answers that wait for their readers; one address gets half.
    pub answers_bytes_max: usize,
    /// Exports of repositories that are begun at once. The host makes some of them wait for each other; more than these would take
    /// all threads for such waits.
    pub exports_begun_max: usize,
    /// Bytes of a blob. Five megabytes, as the reference server has it, unless the operator says more.
    pub blob_bytes_max: u64,
    /// Uploads at once, each with up to half a megabyte of memory; one account gets half.
    pub uploads_max: usize,
    /// Seconds after which an upload goes that no record refers to; the protocol asks for an hour at least.
    pub blob_temporary_seconds: u64,
    /// What the stream's sockets may cost.
    pub stream: StreamOptions,
    /// How often may be asked.
    pub rates: Rates,
}

/// What the stream's sockets may cost.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// Sockets at once. An idle one costs a few kilobytes.
    pub subscribers_max: usize,
    /// Sockets at once of one address, or one IPv6 network of 64 bits.
    pub subscribers_per_address_max: usize,
    /// Milliseconds between two pings: what is idle between them stays below the two minutes after which middle boxes forget
    /// a connection.
    pub ping_ms: u64,
    /// Milliseconds without a byte taken before a socket is closed. A relay that is over its limit reads nothing for a minute
    /// and comes back to it, so this is twice as long.
    pub write_idle_ms_max: u64,
    /// Milliseconds that the closing handshake, with the last frames before it, may take.
    pub close_ms_max: u64,
}

/// How often may be asked.
#[derive(Debug, Clone)]
pub struct Rates {
    /// Whether the rates below hold.
    pub enabled: bool,
    /// Requests of one address, or one IPv6 network of 64 bits, in five minutes.
    pub requests_per_5_min: u64,
    /// Points of writes of one account in an hour: a create costs 3, an update 2, a delete 1.
    pub points_per_hour: u64,
    /// Points of writes of one account in a day.
    pub points_per_day: u64,
    /// Logins that one address tries for one account in five minutes, and a tenth of those that it tries for all.
    pub sessions_per_5_min: u64,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            enabled: true,
            requests_per_5_min: 3_000,
            points_per_hour: 5_000,
            points_per_day: 35_000,
            sessions_per_5_min: 30,
        }
    }
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            subscribers_max: 1_024,
            subscribers_per_address_max: 64,
            ping_ms: 30_000,
            write_idle_ms_max: 120_000,
            close_ms_max: 5_000,
        }
    }
}

impl Options {
    /// The defaults, for a zone that is reached at its own host.
    #[must_use]
    pub fn new(zone: &Zone) -> Self {
        Self {
            public_url: zone.endpoint(),
            contact: None,
            json_bytes_max: 13 << 20,
            fields_bytes_max: 16 << 10,
            parsed_at_once_max: 4,
            bodies_bytes_max: 65 << 20,
            body_idle_ms_max: 15_000,
            body_grace_ms: 30_000,
            body_bytes_per_second_min: 4_096,
            body_ms_max: 70_000,
            reads_max: 16,
            read_wait_ms_max: 10_000,
            answers_bytes_max: 64 << 20,
            exports_begun_max: 64,
            blob_bytes_max: 5 << 20,
            uploads_max: 32,
            blob_temporary_seconds: 6 * 3_600,
            stream: StreamOptions::default(),
            rates: Rates::default(),
        }
    }
}
