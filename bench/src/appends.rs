//! Appends over HTTP against the round trip, the sync and the no-op rate.

use crate::calibrate::{self, Calibration};
use crate::cell::{Cell, Row};
use crate::load::{self, Load, Report};
use crate::server::Highwater;
use crate::subject::Subject;
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// What is promised of every write in these cells.
pub const SYNCED: &str = "synced=1, of=1 (fdatasync before every answer)";

const KIB: usize = 1 << 10;

/// The loads, each with its name.
pub fn loads() -> Vec<(String, Load)> {
    let mut loads = Vec::new();
    for (bytes, size) in [(256, "256 B"), (16 * KIB, "16 KiB")] {
        for writers in [1, 16, 64, 256] {
            let plural = if writers == 1 { "writer" } else { "writers" };
            let load = Load { writers, streams: writers, bytes, ..Load::default() };
            loads.push((format!("append, {writers} {plural}, {size}"), load));
        }
    }
    let crowd = Load { writers: 64, streams: 64, ..Load::default() };
    for writers in [16, 64] {
        let load = Load { writers, streams: 1, ..crowd };
        loads.push((format!("append, {writers} writers on one stream, 256 B"), load));
    }
    loads.push(("append, 64 producers, 256 B".to_owned(), Load { keyed: true, ..crowd }));
    loads
}

/// The cells of this file.
pub fn cells() -> Vec<Cell> {
    let mut cells: Vec<Cell> = loads()
        .into_iter()
        .map(|(name, load)| {
            let measure = move |directory: &Path, limits: &Calibration, duration: Duration| {
                let server = Highwater::start(directory)?;
                let report = run(&server.subject(), &load, duration)?;
                let mut rows = rows(&load, &report, Some(limits));
                if load.writers == 1 && load.bytes == 256 {
                    let least = calibrate::round_trip_synced(directory, duration)?.p50;
                    rows.push(Row::figure("p50 of a no-op that writes and syncs", least, "µs"));
                    rows.push(Row::figure("p50 / that", report.latency_us.p50 / least, ""));
                }
                Ok(rows)
            };
            Cell { name, durability: SYNCED, run: Box::new(measure) }
        })
        .collect();
    cells.push(Cell {
        name: "append, 64 writers on one stream against 64 streams".to_owned(),
        durability: SYNCED,
        run: Box::new(one_against_many),
    });
    cells.push(Cell {
        name: "append, 64 writers, 256 B, open loop".to_owned(),
        durability: SYNCED,
        run: Box::new(open_loop),
    });
    cells
}

/// Makes the streams of a load and appends to them.
pub fn run(subject: &Subject, load: &Load, duration: Duration) -> Result<Report> {
    let name = format!("a{}-{}-{}-", load.writers, load.streams, load.bytes);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(subject.create(&name, load.streams, "application/octet-stream"))?;
    load::run(subject, &name, load, duration)
}

/// A load's figures, against the limits where these were measured.
pub fn rows(load: &Load, report: &Report, limits: Option<&Calibration>) -> Vec<Row> {
    let mut rows = vec![
        Row::figure("appends", report.per_second, "/s"),
        Row::figure("p50", report.latency_us.p50, "µs"),
        Row::figure("p99", report.latency_us.p99, "µs"),
    ];
    if load.bytes >= KIB {
        rows.push(Row::figure("payload", report.per_second * load.bytes as f64 / f64::from(1 << 20), "MiB/s"));
    }
    if let Some(limits) = limits {
        let floor = limits.round_trip_us.p50 + limits.sync_us.p50;
        if load.writers == 1 && load.bytes == 256 {
            rows.push(Row::at_most("p50 / (R1 + F)", report.latency_us.p50 / floor, 1.3, "≤ 1.3"));
            rows.push(Row::at_most("p99 / (R1 + F)", report.latency_us.p99 / floor, 3.0, "≤ 3"));
        }
        if load.writers == 64 && load.bytes == 256 {
            rows.push(Row::at_least("rate / H", report.per_second / limits.no_op_per_second, 0.5, "≥ 0.5"));
        }
    }
    rows.extend(report.cpu_us_each().map(|us| Row::figure("server's processor time for each", us, "µs")));
    rows.extend(report.switches_each().map(|times| Row::figure("sleeps of a server's thread for each", times, "")));
    rows.extend(report.used.map(|used| Row::figure("memory after it", used.memory_bytes as f64 / 1e6, "MB")));
    rows
}

/// The two in turns, so that both meet the same machine.
fn one_against_many(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let server = Highwater::start(directory)?;
    let many = Load { writers: 64, streams: 64, ..Load::default() };
    let one = Load { streams: 1, ..many };
    let mut rates = [0.0, 0.0];
    for turn in [0, 1, 1, 0] {
        let load = if turn == 0 { many } else { one };
        rates[turn] += run(&server.subject(), &load, duration)?.per_second / 2.0;
    }
    Ok(vec![
        Row::figure("64 streams", rates[0], "/s"),
        Row::figure("one stream", rates[1], "/s"),
        Row::at_least("one stream / 64 streams", rates[1] / rates[0], 0.8, "within 20 %"),
    ])
}

/// At fixed shares of the highest rate, latencies from when a request was due.
fn open_loop(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let server = Highwater::start(directory)?;
    let load = Load { writers: 64, streams: 64, ..Load::default() };
    let highest = run(&server.subject(), &load, duration)?.per_second;
    let mut rows = vec![Row::figure("highest rate, closed loop", highest, "/s")];
    for share in [0.25, 0.5, 0.75] {
        let load = Load { per_second: Some(highest * share), ..load };
        let report = run(&server.subject(), &load, duration)?;
        let at = format!("at {:.0} % of it", share * 100.0);
        rows.push(Row::figure(format!("{at}, appends"), report.per_second, "/s"));
        rows.push(Row::figure(format!("{at}, p50"), report.latency_us.p50, "µs"));
        rows.push(Row::figure(format!("{at}, p99"), report.latency_us.p99, "µs"));
    }
    Ok(rows)
}
