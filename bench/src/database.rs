//! The extension against stock SQLite in the same process, on the same disk.

mod host;
mod restore;

use crate::calibrate::Calibration;
use crate::cell::{Cell, Row};
use crate::quantiles::Quantiles;
use crate::server::Highwater;
use anyhow::Result;
use host::{Database, Synchronous};
use std::path::Path;
use std::time::{Duration, Instant};

pub use restore::child as restore_child;

/// The cells of this file.
pub fn cells() -> Vec<Cell> {
    vec![
        Cell {
            name: "database, commit of 7 pages, NORMAL".to_owned(),
            durability: "process crash, both sides",
            run: Box::new(normal),
        },
        Cell {
            name: "database, commit of 7 pages, FULL".to_owned(),
            durability: "power loss, both sides",
            run: Box::new(full),
        },
        Cell {
            name: "database, synced() after one commit, FULL".to_owned(),
            durability: "local fdatasync, then synced=1, of=1 at the stream",
            run: Box::new(synced),
        },
        Cell {
            name: "database, restore".to_owned(),
            durability: "synced before the command ends",
            run: Box::new(restore::measure),
        },
    ]
}

/// Commits until the time is over, the two databases taking turns so that both see the same machine.
fn in_turns(pair: [&mut Database; 2], duration: Duration) -> Result<[Quantiles; 2]> {
    let mut recorders = [Quantiles::recorder(), Quantiles::recorder()];
    let start = Instant::now();
    let [stock, ours] = pair;
    while start.elapsed() < duration * 2 {
        for _ in 0..50 {
            recorders[0].record(stock.commit()?);
        }
        for _ in 0..50 {
            recorders[1].record(ours.commit()?);
        }
    }
    Ok(recorders.map(|recorder| recorder.finish()))
}

fn compare(directory: &Path, duration: Duration, synchronous: Synchronous) -> Result<[Quantiles; 2]> {
    let server = Highwater::start(directory)?;
    let mut stock = Database::stock(&directory.join("stock.db"), synchronous)?;
    let mut ours = Database::replicated(&directory.join("ours.db"), &server.url("bench/db"), synchronous)?;
    let result = in_turns([&mut stock, &mut ours], duration)?;
    ours.synced()?;
    Ok(result)
}

fn figures([stock, ours]: [Quantiles; 2]) -> Vec<Row> {
    vec![
        Row::figure("stock p50", stock.p50, "µs"),
        Row::figure("stock p99", stock.p99, "µs"),
        Row::figure("highwater p50", ours.p50, "µs"),
        Row::figure("highwater p99", ours.p99, "µs"),
    ]
}

fn normal(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let [stock, ours] = compare(directory, duration, Synchronous::Normal)?;
    let mut rows = figures([stock, ours]);
    rows.push(Row::at_most("overhead p50 / 120 µs", (ours.p50 - stock.p50) / 120.0, 1.0, "≤ 1 (0.12 ms)"));
    rows.push(Row::at_most("overhead p99 / 300 µs", (ours.p99 - stock.p99) / 300.0, 1.0, "≤ 1 (0.3 ms)"));
    Ok(rows)
}

fn full(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let [stock, ours] = compare(directory, duration, Synchronous::Full)?;
    let mut rows = figures([stock, ours]);
    rows.push(Row::at_least("rate against stock FULL", stock.p50 / ours.p50, 0.95, "≥ 0.95"));
    Ok(rows)
}

fn synced(directory: &Path, limits: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let server = Highwater::start(directory)?;
    let mut ours = Database::replicated(&directory.join("ours.db"), &server.url("bench/db"), Synchronous::Full)?;
    ours.synced()?;
    let (mut after_commit, mut idle) = (Quantiles::recorder(), Quantiles::recorder());
    let start = Instant::now();
    while start.elapsed() < duration {
        let begun = Instant::now();
        ours.commit()?;
        ours.synced()?;
        after_commit.record(begun.elapsed());
        let begun = Instant::now();
        ours.synced()?;
        idle.record(begun.elapsed());
    }
    let (after_commit, idle) = (after_commit.finish(), idle.finish());
    let limit = 2.0 * limits.sync_us.p50 + 2000.0;
    Ok(vec![
        Row::figure("commit + synced() p50", after_commit.p50, "µs"),
        Row::figure("commit + synced() p99", after_commit.p99, "µs"),
        Row::at_most("commit + synced() p50 / (2 F + 2 ms)", after_commit.p50 / limit, 1.0, "≤ 1"),
        Row::figure(
            "commit + synced() p50 / (3 F + R1)",
            after_commit.p50 / (3.0 * limits.sync_us.p50 + limits.round_trip_us.p50),
            "",
        ),
        Row::at_most("idle synced() p50 / 1 ms", idle.p50 / 1000.0, 1.0, "≤ 1, one round trip"),
    ])
}
