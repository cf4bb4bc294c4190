//! Appends over HTTP against the round trip, the sync and the no-op rate.

use crate::calibrate::Calibration;
use crate::cell::{Cell, Row};
use crate::load::{self, Load};
use crate::server::Highwater;
use anyhow::{Result, ensure};
use highwater_client::{Client, Options, Outcome, Stream, StreamUrl};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SYNCED: &str = "synced=1, of=1 (fdatasync before every answer)";

/// The cells of this file.
pub fn cells() -> Vec<Cell> {
    vec![
        Cell { name: "append, one writer, 256 B", durability: SYNCED, run: one_writer },
        Cell { name: "append, 64 writers on 64 streams, 256 B", durability: SYNCED, run: many_streams },
        Cell { name: "append, 64 writers on one stream, 256 B", durability: SYNCED, run: one_stream },
        Cell { name: "append, 64 writers, 16 KiB", durability: SYNCED, run: large },
    ]
}

fn create(server: &Highwater, streams: usize) -> Result<()> {
    let client = Arc::new(Client::new(Options::default())?);
    for number in 0..streams {
        let url = StreamUrl::parse(&server.url(&path(number)))?;
        let (_, answer) = Stream::new(client.clone(), url).create("application/octet-stream", None, false);
        ensure!(matches!(answer.outcome, Outcome::Done(_)), "create: {}", answer.describe());
    }
    Ok(())
}

fn path(number: usize) -> String {
    format!("bench/s{number}")
}

fn appends(
    directory: &Path,
    connections: usize,
    streams: usize,
    bytes: usize,
    duration: Duration,
) -> Result<load::Report> {
    let server = Highwater::start(directory)?;
    create(&server, streams)?;
    let load = Load { connections, body_bytes: bytes, duration, ..Load::default() };
    load::run(server.address(), &load, |number| format!("/v1/stream/{}", path(number % streams)))
}

fn one_writer(directory: &Path, limits: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let report = appends(directory, 1, 1, 256, duration)?;
    let (f, r1) = (&limits.sync_us, &limits.round_trip_us);
    Ok(vec![
        Row::figure("p50", report.latency_us.p50, "µs"),
        Row::figure("p99", report.latency_us.p99, "µs"),
        Row::figure("appends", report.per_second, "/s"),
        Row::at_most("p50 / (R1 + F)", report.latency_us.p50 / (r1.p50 + f.p50), 1.3, "≤ 1.3"),
        Row::at_most("p99 / (R1 + F)", report.latency_us.p99 / (r1.p50 + f.p50), 3.0, "≤ 3"),
    ])
}

fn crowd(report: load::Report, limits: &Calibration) -> Vec<Row> {
    vec![
        Row::figure("appends", report.per_second, "/s"),
        Row::figure("p50", report.latency_us.p50, "µs"),
        Row::figure("p99", report.latency_us.p99, "µs"),
        Row::at_least("rate / H", report.per_second / limits.no_op_per_second, 0.5, "≥ 0.5"),
    ]
}

fn many_streams(directory: &Path, limits: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    Ok(crowd(appends(directory, 64, 64, 256, duration)?, limits))
}

fn one_stream(directory: &Path, limits: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    Ok(crowd(appends(directory, 64, 1, 256, duration)?, limits))
}

fn large(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let report = appends(directory, 64, 64, 16 << 10, duration)?;
    Ok(vec![
        Row::figure("appends", report.per_second, "/s"),
        Row::figure("payload", report.per_second * 16.0 / 1024.0, "MiB/s"),
        Row::figure("p99", report.latency_us.p99, "µs"),
    ])
}
