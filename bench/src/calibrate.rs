//! The physical limits, measured in the same run as what is compared with them.

use crate::load;
use crate::quantiles::Quantiles;
use anyhow::Result;
use axum::http::StatusCode;
use axum::{Router, routing::post};
use highwater_disk::{Disk as _, File, OpenMode, OsDisk};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What this machine can do at this moment.
#[derive(Debug, Clone, Serialize)]
pub struct Calibration {
    /// F: a 4 KiB write and `fdatasync` into a file that was filled with zeros before, microseconds.
    pub sync_us: Quantiles,
    /// R1: one no-op POST of 256 B at a time on one loopback connection, microseconds.
    pub round_trip_us: Quantiles,
    /// H: no-op POSTs of 256 B a second over 64 connections.
    pub no_op_per_second: f64,
    /// C: nanoseconds for a fixed computation; tells whether the processor was shared.
    pub compute_ns: u64,
}

impl Calibration {
    /// Measures everything; about four times `duration`.
    pub fn measure(directory: &Path, duration: Duration) -> Result<Self> {
        let (round_trip_us, no_op_per_second) = no_op(duration)?;
        Ok(Self { sync_us: sync(directory, duration)?, round_trip_us, no_op_per_second, compute_ns: compute() })
    }

    /// The largest relative change of a limit between two calibrations; a cell above 0.2 is noise.
    pub fn drift(&self, after: &Self) -> f64 {
        let change = |before: f64, after: f64| (after / before - 1.0).abs();
        [
            change(self.sync_us.p50, after.sync_us.p50),
            change(self.round_trip_us.p50, after.round_trip_us.p50),
            change(self.no_op_per_second, after.no_op_per_second),
            change(self.compute_ns as f64, after.compute_ns as f64),
        ]
        .into_iter()
        .fold(0.0, f64::max)
    }
}

const BLOCK_BYTES: usize = 4096;
const FILE_BYTES: usize = 16 << 20;

/// A file that was filled with zeros, to be written block by block, again and again.
struct Zeroed {
    file: Arc<dyn File>,
    block: AtomicU64,
}

impl Zeroed {
    fn make(path: &Path) -> Result<Self> {
        let file = OsDisk::new().open(path, OpenMode::Create)?;
        file.write_at(&vec![0; FILE_BYTES], 0)?;
        file.sync_all()?;
        Ok(Self { file, block: AtomicU64::new(0) })
    }

    fn write_and_sync(&self) -> std::io::Result<()> {
        let block = self.block.fetch_add(1, Ordering::Relaxed) % (FILE_BYTES / BLOCK_BYTES) as u64;
        self.file.write_at(&[0x5a; BLOCK_BYTES], block * BLOCK_BYTES as u64)?;
        self.file.sync_data()
    }
}

fn sync(directory: &Path, duration: Duration) -> Result<Quantiles> {
    let path = directory.join("calibration");
    let zeroed = Zeroed::make(&path)?;
    let mut quantiles = Quantiles::recorder();
    let start = Instant::now();
    while start.elapsed() < duration {
        let begun = Instant::now();
        zeroed.write_and_sync()?;
        quantiles.record(begun.elapsed());
    }
    std::fs::remove_file(path)?;
    Ok(quantiles.finish())
}

/// One POST of 256 B at a time to a server that writes 4 KiB and syncs them before each answer, and does nothing else,
/// microseconds. More than a round trip and a sync after each other: processors rest while the disk works.
pub fn round_trip_synced(directory: &Path, duration: Duration) -> Result<Quantiles> {
    let path = directory.join("calibration");
    let zeroed = Arc::new(Zeroed::make(&path)?);
    let answer = async move |_: axum::body::Bytes| match zeroed.write_and_sync() {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let server = load::Server::start(Router::new().route("/", post(answer)))?;
    let report = load::no_op(server.address(), 1, 256, duration)?;
    std::fs::remove_file(path)?;
    Ok(report.latency_us)
}

fn no_op(duration: Duration) -> Result<(Quantiles, f64)> {
    let router = Router::new().route("/", post(|_: axum::body::Bytes| async { "" }));
    let server = load::Server::start(router)?;
    let alone = load::no_op(server.address(), 1, 256, duration)?;
    let crowd = load::no_op(server.address(), 64, 256, duration)?;
    Ok((alone.latency_us, crowd.per_second))
}

fn compute() -> u64 {
    let begun = Instant::now();
    let mut state = 1_u64;
    for _ in 0..20_000_000 {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
