//! The physical limits, measured in the same run as what is compared with them.

use crate::load;
use crate::quantiles::Quantiles;
use anyhow::Result;
use axum::{Router, routing::post};
use highwater_disk::{Disk as _, OpenMode, OsDisk};
use serde::Serialize;
use std::path::Path;
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

fn sync(directory: &Path, duration: Duration) -> Result<Quantiles> {
    const FILE_BYTES: usize = 16 << 20;
    let path = directory.join("calibration");
    let file = OsDisk::new().open(&path, OpenMode::Create)?;
    file.write_at(&vec![0; FILE_BYTES], 0)?;
    file.sync_all()?;
    let block = [0x5a_u8; 4096];
    let mut quantiles = Quantiles::recorder();
    let (start, mut at) = (Instant::now(), 0);
    while start.elapsed() < duration {
        let begun = Instant::now();
        file.write_at(&block, at)?;
        file.sync_data()?;
        quantiles.record(begun.elapsed());
        at = (at + 4096) % FILE_BYTES as u64;
    }
    std::fs::remove_file(path)?;
    Ok(quantiles.finish())
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
