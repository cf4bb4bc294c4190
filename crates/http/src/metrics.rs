//! What is counted and measured of requests and connections, and how metrics are written down.
//!
//! The text is OpenMetrics 1.0: a `TYPE` and a `HELP` line for each family, then its samples. `docs/reference/metrics.md`
//! is made from it by a test.

use crate::error::{Code, TABLE};
use crate::traffic::Traffic;
use axum::http::{Method, StatusCode};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// 1xx to 5xx; a status of another class does not exist.
const CLASSES: usize = 5;

const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "other"];

/// Upper ends of the buckets of latencies, in seconds. A write on a good disk takes below a millisecond; what takes
/// longer than ten seconds has been given up by its client.
const BUCKETS_S: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// What a request does, as its latency is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// PUT on a stream.
    Create,
    /// POST on a stream.
    Append,
    /// GET on a stream that does not wait.
    Read,
    /// HEAD on a stream.
    Head,
    /// DELETE on a stream.
    Delete,
    /// Everything that is no stream, and what a stream does not do.
    Other,
    /// A long-poll or an event stream, whose time says nothing about the server.
    Wait,
}

/// Those that are measured.
const MEASURED: [(Work, &str); 6] = [
    (Work::Create, "create"),
    (Work::Append, "append"),
    (Work::Read, "read"),
    (Work::Head, "head"),
    (Work::Delete, "delete"),
    (Work::Other, "other"),
];

impl Work {
    /// What a request does; `stream` says whether its path lies below the streams' root.
    pub(crate) fn of(method: &Method, stream: bool, query: Option<&str>) -> Self {
        let waits = query.is_some_and(|query| query.split('&').any(|pair| pair.starts_with("live=")));
        match *method {
            Method::GET if stream && waits => Self::Wait,
            Method::GET if stream => Self::Read,
            Method::PUT if stream => Self::Create,
            Method::POST if stream => Self::Append,
            Method::HEAD if stream => Self::Head,
            Method::DELETE if stream => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// How often something took how long.
#[derive(Debug, Default)]
struct Histogram {
    /// By bucket; the last is for everything above.
    counts: [AtomicU64; BUCKETS_S.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS_S.iter().position(|end| seconds <= *end).unwrap_or(BUCKETS_S.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn render(&self, name: &str, label: &str, out: &mut String) {
        let mut below = 0;
        let ends = BUCKETS_S.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(&self.counts) {
            below += count.load(Ordering::Relaxed);
            line(out, &format!("{name}_bucket{{{label},le=\"{end}\"}} {below}"));
        }
        let sum_s = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        line(out, &format!("{name}_sum{{{label}}} {sum_s}"));
        line(out, &format!("{name}_count{{{label}}} {below}"));
    }
}

/// Answered requests: by method and class of status, by error code, by how long they took.
#[derive(Debug)]
pub(crate) struct Counts {
    answered: [[AtomicU64; CLASSES]; METHODS.len()],
    errors: Vec<AtomicU64>,
    took: [Histogram; MEASURED.len()],
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            answered: Default::default(),
            errors: TABLE.iter().map(|_| AtomicU64::new(0)).collect(),
            took: Default::default(),
        }
    }
}

impl Counts {
    /// Counts one answer.
    pub(crate) fn count(&self, method: &Method, status: StatusCode, error: Option<Code>, work: Work, took: Duration) {
        let row = METHODS.iter().position(|name| *name == method.as_str()).unwrap_or(METHODS.len() - 1);
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES) - 1;
        self.answered[row][class].fetch_add(1, Ordering::Relaxed);
        if let Some(count) = error.and_then(|code| self.errors.get(code as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(at) = MEASURED.iter().position(|(measured, _)| *measured == work) {
            self.took[at].observe(took);
        }
    }

    /// Appends the lines of requests.
    pub(crate) fn render(&self, out: &mut String) {
        header_lines(out, "highwater_http_requests", "counter", "Answered requests, by method and class of status.");
        for (method, classes) in METHODS.iter().zip(&self.answered) {
            for (class, count) in (1..).zip(classes) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = format!("method=\"{method}\",status=\"{class}xx\"");
                    line(out, &format!("highwater_http_requests_total{{{labels}}} {count}"));
                }
            }
        }
        header_lines(out, "highwater_http_errors", "counter", "Answers with an error's code, by the code.");
        for (row, count) in TABLE.iter().zip(&self.errors) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                line(out, &format!("highwater_http_errors_total{{code=\"{}\"}} {count}", row.name));
            }
        }
        let help = "Seconds from a request's head to its answer's, its body's arrival included, by what it does; waiting reads are left out.";
        header_lines(out, "highwater_http_request_seconds", "histogram", help);
        for ((_, name), took) in MEASURED.iter().zip(&self.took) {
            took.render("highwater_http_request_seconds", &format!("work=\"{name}\""), out);
        }
    }
}

/// Appends the lines of connections.
pub(crate) fn render_traffic(traffic: &Traffic, out: &mut String) {
    let families: [(&str, &str, &str, &AtomicU64); 7] = [
        ("highwater_connections", "gauge", "Connections that are there.", &traffic.open),
        ("highwater_connections_accepted", "counter", "Connections that were accepted.", &traffic.accepted),
        ("highwater_connections_refused", "counter", "Connections from addresses that had too many.", &traffic.refused),
        (
            "highwater_connections_stalled",
            "counter",
            "Connections cut because nothing, or too little, was taken.",
            &traffic.readers_cut,
        ),
        ("highwater_tls_handshakes_failed", "counter", "TLS handshakes that failed.", &traffic.handshakes_failed),
        (
            "highwater_tls_certificates_taken",
            "counter",
            "Renewed certificates that were found and taken.",
            &traffic.certificates_taken,
        ),
        (
            "highwater_tls_certificates_refused",
            "counter",
            "Renewed certificates that do not work.",
            &traffic.certificates_refused,
        ),
    ];
    for (name, kind, help, value) in families {
        number(out, name, kind, help, value.load(Ordering::Relaxed));
    }
}

/// Appends a family of one sample without labels.
pub(crate) fn number(out: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    header_lines(out, name, kind, help);
    let suffix = if kind == "counter" { "_total" } else { "" };
    line(out, &format!("{name}{suffix} {value}"));
}

pub(crate) fn header_lines(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, &format!("# TYPE {name} {kind}"));
    line(out, &format!("# HELP {name} {help}"));
}

pub(crate) fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    writeln!(out, "{text}").expect("a string takes every line");
}
